"""Baselines: other descriptors and whole pipelines, with the same interfaces."""

from collections.abc import Callable
from functools import partial

from doap.baselines.binary import akaze, beblid, boostdesc, latch, orb, teblid
from doap.baselines.dsp_sift import ColmapSift, colmap_rootsift, dsp_sift
from doap.baselines.onnx import OnnxDescriber
from doap.baselines.opencv import OpenCVBaseline
from doap.baselines.pipelines import PIPELINES, Pipeline
from doap.baselines.real import daisy, rootsift, rootsift_wide, sift, vgg
from doap.baselines.weight_files import SUFFIXES, load_baseline
from doap.describer import Describer
from doap.extractor import Extractor

BASELINES: dict[str, Callable[[], Describer | Extractor]] = {
    "sift": sift,
    "rootsift": rootsift,
    "rootsift-wide": rootsift_wide,
    "vgg": vgg,
    "daisy": daisy,
    "teblid": teblid,
    "teblid-512": partial(teblid, bits=512),
    "beblid": beblid,
    "beblid-512": partial(beblid, bits=512),
    "boostdesc": boostdesc,
    "latch": latch,
    "orb": orb,
    "akaze": akaze,
    "colmap-sift": colmap_rootsift,
    "dsp-sift": dsp_sift,
}
"""Baselines that need no file, by name; `BASELINES[name]()` creates one."""

__all__ = [
    "BASELINES",
    "PIPELINES",
    "SUFFIXES",
    "ColmapSift",
    "OnnxDescriber",
    "OpenCVBaseline",
    "Pipeline",
    "akaze",
    "beblid",
    "boostdesc",
    "colmap_rootsift",
    "daisy",
    "dsp_sift",
    "latch",
    "load_baseline",
    "orb",
    "rootsift",
    "rootsift_wide",
    "sift",
    "teblid",
    "vgg",
]

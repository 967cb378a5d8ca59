"""Baselines: other descriptors with the interface `Describer`."""

from collections.abc import Callable
from functools import partial

from doap.baselines.binary import akaze, beblid, boostdesc, latch, orb, teblid
from doap.baselines.dsp_sift import ColmapBaseline, colmap_rootsift, dsp_sift
from doap.baselines.onnx import OnnxDescriber
from doap.baselines.opencv import OpenCVBaseline
from doap.baselines.pipelines import PIPELINES, Pipeline
from doap.baselines.real import daisy, rootsift, sift, vgg
from doap.baselines.weight_files import SUFFIXES, load_baseline
from doap.baselines.wide import WideBaseline, rootsift_wide
from doap.describer import Describer

BASELINES: dict[str, Callable[[], Describer]] = {
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
    "ColmapBaseline",
    "OnnxDescriber",
    "OpenCVBaseline",
    "Pipeline",
    "WideBaseline",
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

"""Baselines: other descriptors and whole pipelines, with the same interfaces."""

from collections.abc import Callable
from functools import partial

import torch

from doap.baselines.aliked import Aliked
from doap.baselines.disk import Disk
from doap.baselines.dsp_sift import ColmapSift, colmap_rootsift, dsp_sift
from doap.baselines.onnx import OnnxDescriber
from doap.baselines.opencv import akaze, orb, rootsift, rootsift_wide, sift, teblid
from doap.baselines.pipeline import Pipeline
from doap.baselines.weight_files import SUFFIXES, load_baseline
from doap.baselines.xfeat import XFeat
from doap.describer import Describer
from doap.extractor import Extractor

BASELINES: dict[str, Callable[[], Describer | Extractor]] = {
    "sift": sift,
    "rootsift": rootsift,
    "rootsift-wide": rootsift_wide,
    "teblid": teblid,
    "orb": orb,
    "akaze": akaze,
    "colmap-sift": colmap_rootsift,
    "dsp-sift": dsp_sift,
}
"""Baselines that need no file, by name; `BASELINES[name]()` creates one."""
PIPELINES: dict[str, Callable[[torch.device], Pipeline]] = {
    "aliked-lightglue": Aliked,
    "disk-lightglue": Disk,
    "xfeat": XFeat,
    "xfeat-lighterglue": partial(XFeat, name="xfeat-lighterglue"),
}
"""Learned pipelines by name; `PIPELINES[name](device)` creates one."""

__all__ = [
    "BASELINES",
    "PIPELINES",
    "SUFFIXES",
    "ColmapSift",
    "OnnxDescriber",
    "colmap_rootsift",
    "dsp_sift",
    "load_baseline",
    "rootsift",
    "rootsift_wide",
    "sift",
    "teblid",
]

"""Other descriptors with the face of a `Descriptor`, so that anything can be compared with anything."""

from collections.abc import Callable
from functools import partial

from doap.baselines.binary import akaze, beblid, boostdesc, latch, orb, teblid
from doap.baselines.describer import (
    Describer,
    DetectsKeypoints,
    FunctionDescriber,
    ImageDescriber,
    extent_of,
    fingerprint,
    from_function,
)
from doap.baselines.dsp_sift import ColmapBaseline, colmap_rootsift, dsp_sift
from doap.baselines.onnx import OnnxDescriber
from doap.baselines.opencv import OpenCVBaseline
from doap.baselines.real import daisy, rootsift, sift, vgg
from doap.baselines.tfeat import tfeat

# All that need no file.
BASELINES: dict[str, Callable[[], Describer]] = {
    "sift": sift,
    "rootsift": rootsift,
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

__all__ = [
    "BASELINES",
    "ColmapBaseline",
    "Describer",
    "DetectsKeypoints",
    "FunctionDescriber",
    "ImageDescriber",
    "OnnxDescriber",
    "OpenCVBaseline",
    "akaze",
    "beblid",
    "boostdesc",
    "colmap_rootsift",
    "daisy",
    "dsp_sift",
    "extent_of",
    "fingerprint",
    "from_function",
    "latch",
    "orb",
    "rootsift",
    "sift",
    "teblid",
    "tfeat",
    "vgg",
]

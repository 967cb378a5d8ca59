"""Other descriptors with the face of a `Descriptor`, so that anything can be compared with anything."""

from collections.abc import Callable
from functools import partial

from doap.peers.binary import akaze, beblid, boostdesc, latch, orb, teblid
from doap.peers.describer import (
    Describer,
    FunctionDescriber,
    ImageDescriber,
    OwnKeypoints,
    extent_of,
    fingerprint,
    from_function,
)
from doap.peers.dsp_sift import ColmapPeer, colmap_rootsift, dsp_sift
from doap.peers.onnx import OnnxDescriber
from doap.peers.opencv import Peer
from doap.peers.real import daisy, rootsift, sift, vgg
from doap.peers.tfeat import tfeat

# All that need no file.
PEERS: dict[str, Callable[[], Describer]] = {
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
    "PEERS",
    "ColmapPeer",
    "Describer",
    "FunctionDescriber",
    "ImageDescriber",
    "OnnxDescriber",
    "OwnKeypoints",
    "Peer",
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

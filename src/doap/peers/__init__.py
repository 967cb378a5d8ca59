"""Other descriptors with the face of a `Descriptor`, so that anything can be compared with anything."""

from collections.abc import Callable

from doap.peers.describer import Describer, FunctionDescriber, ImageDescriber, fingerprint, from_function
from doap.peers.opencv import Peer, beblid, rootsift, sift, teblid

PEERS: dict[str, Callable[[], Describer]] = {"sift": sift, "rootsift": rootsift, "teblid": teblid, "beblid": beblid}

__all__ = [
    "PEERS",
    "Describer",
    "FunctionDescriber",
    "ImageDescriber",
    "Peer",
    "beblid",
    "fingerprint",
    "from_function",
    "rootsift",
    "sift",
    "teblid",
]

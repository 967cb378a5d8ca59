"""The descriptors for `torch.hub.load(REPOSITORY, "doap_128")`, with or without doap installed."""

import pathlib
import sys

try:
    import doap
except ImportError:
    # torch.hub adds only the root of the repository to the path, and only while it runs this file.
    sys.path.append(str(pathlib.Path(__file__).with_name("src")))
    import doap

dependencies = ["torch", "numpy", "cv2", "pydantic", "safetensors"]


def doap_128(**options):
    """128 floats, the default. The options are `device` and `precision`, as for `doap.Descriptor.load`."""
    return doap.Descriptor.load("doap-128", **options)


def doap_256bit(**options):
    """256 bits in 32 bytes. The options are those of `doap_128`."""
    return doap.Descriptor.load("doap-256bit", **options)


def doap_fast(**options):
    """128 floats at the speed of OpenCV's SIFT on a CPU. The options are those of `doap_128`."""
    return doap.Descriptor.load("doap-fast", **options)

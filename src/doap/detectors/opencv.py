"""Access to functions that some OpenCV builds lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from doap._support.errors import ArgumentError


def contrib(function: str, *, needed_by: str) -> Callable[..., Any]:
    """Return a function of OpenCV's contrib modules, or raise an error that explains how to install it.

    Builds without contrib have an empty `cv2.xfeatures2d`. Before version 5, some of its functions
    were in `cv2` itself.

    Args:
        function: Name of the function, such as `AKAZE_create`.
        needed_by: Name of the detector or descriptor that needs it.
    """
    import cv2

    for module in (getattr(cv2, "xfeatures2d", None), cv2):
        found: Callable[..., Any] | None = getattr(module, function, None)
        if found is not None:
            return found
    raise ArgumentError(
        f"{needed_by}: this OpenCV lacks xfeatures2d.{function}. "
        "Run `pip install opencv-contrib-python-headless` instead of other opencv packages."
    )

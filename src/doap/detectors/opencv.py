"""What not every OpenCV has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from doap.errors import ArgumentError


def contrib(function: str, *, needed_by: str) -> Callable[..., Any]:
    """A function of OpenCV's contrib modules, or an error that says how to get it.

    `cv2.xfeatures2d` is there in every build of OpenCV 4 and 5, but empty without contrib, so it is
    the function that is looked for. What moved there in version 5 is found in `cv2` itself before.

    Args:
        function: such as `AKAZE_create`.
        needed_by: the name of the detector or descriptor that cannot do without.
    """
    import cv2

    homes = (getattr(cv2, "xfeatures2d", None), cv2)
    found: Callable[..., Any] | None = next(
        (getattr(home, function) for home in homes if hasattr(home, function)), None
    )
    if found is None:
        raise ArgumentError(
            f"{needed_by}: expected an OpenCV with xfeatures2d.{function}, got one without; "
            "run `pip install opencv-contrib-python-headless` in place of other opencv packages"
        )
    return found

"""The wheels of OpenCV: which are installed, and which of them `cv2` comes from.

Four wheels share the folder `cv2`. pip does not know that they exclude each other: the one installed last replaces the
files of the others, which stay in the list of installed packages.
"""

from __future__ import annotations

from importlib import import_module, metadata


def wheel_name(*, contrib: bool, windows: bool) -> str:
    """Return the wheel with or without the contrib modules, and the windows of `cv2.imshow`.

    >>> wheel_name(contrib=True, windows=False)
    'opencv-contrib-python-headless'
    """
    return f"opencv-{'contrib-' if contrib else ''}python{'' if windows else '-headless'}"


WHEELS = tuple(wheel_name(contrib=contrib, windows=windows) for contrib in (False, True) for windows in (True, False))


def loaded_wheel() -> str:
    """Return the wheel that the files of `cv2` come from; for other builds of OpenCV, opencv-python."""
    try:
        version = import_module("cv2.version")
    except ImportError:
        return wheel_name(contrib=False, windows=True)
    return wheel_name(contrib=version.contrib, windows=not version.headless)


def installed_wheels() -> dict[str, str]:
    """Return the versions of the installed wheels by name, whether or not their files are still there."""
    found = {}
    for name in WHEELS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def complete_wheel(*, contrib: bool = False, windows: bool = True) -> str:
    """Return the arguments of `pip install` for a wheel that replaces all installed ones without losing a function.

    Args:
        contrib: Include the contrib modules, even if no installed wheel has them.
        windows: Keep the windows of installed wheels; on servers, these need missing libraries.
    """
    installed = installed_wheels()
    contrib = contrib or any("contrib" in name for name in installed)
    name = wheel_name(contrib=contrib, windows=windows and any("headless" not in name for name in installed))
    # Its files may be those of another wheel. Those of the others are replaced, too.
    return f"--force-reinstall --no-deps {name}=={installed[name]}" if name in installed else name

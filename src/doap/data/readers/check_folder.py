"""What is this folder, and what is wrong with it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from doap.data.readers import hpatches, hpatches_tasks, oxford, phototour, romepatches
from doap.data.readers.files import attempt
from doap.errors import DataError
from doap.images import list_images

COLMAP = ("cameras", "images", "points3D")
STORE = ("patches.npy", "groups.parquet", "meta.json")


@dataclass(frozen=True)
class FolderCheck:
    """What a folder is.

    Attributes:
        kind: a key of `KINDS`, or `unknown`.
        summary: what is in it, one line.
        problems: all that is wrong with it, one line each; empty if it can be used.
    """

    kind: str
    summary: str
    problems: tuple[str, ...]


def check_folder(path: str | Path) -> FolderCheck:
    """Say what a folder is and list all that is wrong with it.

    Kinds are tried in the order of `KINDS`, the most particular first: a PhotoTour set is a folder of images too.
    """
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path}: expected a folder, got {'a file' if path.exists() else 'nothing there'}")
    for kind, (recognise, examine) in KINDS.items():
        if recognise(path):
            summary, problems = examine(path)
            return FolderCheck(kind, summary, tuple(problems))
    known = ", ".join(KINDS)
    return FolderCheck("unknown", "nothing doap knows", (f"{path}: expected one of {known}, got none of them",))


def _is_unfinished(root: Path) -> bool:
    return root.name.endswith(".unfinished")


def _examine_unfinished(root: Path) -> tuple[str, list[str]]:
    way_out = "run the command that builds it again, and it goes on"
    return "doap patch groups, not finished", [f"{root}: expected a finished set, got one being built; {way_out}"]


def _is_store(root: Path) -> bool:
    # meta.json alone is too common a name to go by.
    return any((root / name).is_file() for name in STORE[:2])


def _examine_store(root: Path) -> tuple[str, list[str]]:
    missing = [f"{root / name}: expected a file, got nothing there" for name in STORE if not (root / name).is_file()]
    if missing:
        return "doap patch groups, not whole", missing
    from doap.data.store import check_set

    problems: list[str] = []
    found = attempt(problems, check_set, root)
    if found is None:
        return "doap patch groups, damaged", problems
    scenes = len(found.groups_per_scene)
    return f"doap patch groups: {found.patches:,} patches in {found.groups:,} groups of {scenes:,} scenes", problems


def _colmap_files(root: Path) -> dict[str, Path]:
    """The files of the model by name; COLMAP keeps it in the folder itself, in sparse, or in sparse/0."""
    for folder in (root, root / "sparse", root / "sparse" / "0"):
        for ending in ("bin", "txt"):
            paths = {name: folder / f"{name}.{ending}" for name in COLMAP}
            if any(path.is_file() for path in paths.values()):
                return paths
    return {}


def _is_colmap(root: Path) -> bool:
    return bool(_colmap_files(root))


def _examine_colmap(root: Path) -> tuple[str, list[str]]:
    files = _colmap_files(root).values()
    folder = next(iter(files)).parent
    missing = [
        f"{path}: expected a file, got nothing there; export the model again" for path in files if not path.is_file()
    ]
    return f"COLMAP model in {folder}", missing


def _has_images(root: Path) -> bool:
    return bool(attempt([], list_images, root))


def _examine_images(root: Path) -> tuple[str, list[str]]:
    images = list_images(root)
    empty = [f"{path}: expected an image, got an empty file" for path in images if not path.stat().st_size]
    return f"folder of {len(images):,} images", empty


KINDS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], tuple[str, list[str]]]]] = {
    "unfinished": (_is_unfinished, _examine_unfinished),
    "patch-groups": (_is_store, _examine_store),
    "phototour": (phototour.recognise, phototour.examine),
    "hpatches": (hpatches.recognise, hpatches.examine),
    "hpatches-tasks": (hpatches_tasks.recognise, hpatches_tasks.examine),
    "romepatches": (romepatches.recognise, romepatches.examine),
    "sequences": (oxford.recognise, oxford.examine),
    "colmap": (_is_colmap, _examine_colmap),
    "images": (_has_images, _examine_images),
}

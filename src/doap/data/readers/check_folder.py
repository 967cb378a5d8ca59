"""Recognise datasets, COLMAP models and image folders, and find their problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from doap._support.errors import DataError
from doap._support.text import counted
from doap.data.readers import hpatches, hpatches_tasks, oxford, phototour, romepatches
from doap.data.readers.files import attempt
from doap.images import list_images

COLMAP = ("cameras", "images", "points3D")
STORE = ("patches.npy", "groups.parquet", "meta.json")


@dataclass(frozen=True)
class FolderCheck:
    """Kind and problems of a folder.

    Attributes:
        kind: Key of `KINDS`, or `unknown`.
        summary: Contents in one line.
        problems: All problems, one line each; empty if the folder can be used.
    """

    kind: str
    summary: str
    problems: tuple[str, ...]


def check_folder(path: str | Path) -> FolderCheck:
    """Recognise the kind of a folder and list all its problems.

    Kinds are tried in the order of `KINDS`, the most specific first: a PhotoTour dataset is also a
    folder of images.

        found = check_folder("my.patches")
        print(found.kind, found.summary, found.problems)
    """
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path}: expected a folder, but it {'is a file' if path.exists() else 'does not exist'}.")
    for kind, (recognise, examine) in KINDS.items():
        if recognise(path):
            summary, problems = examine(path)
            return FolderCheck(kind, summary, tuple(problems))
    known = ", ".join(KINDS)
    return FolderCheck("unknown", "unknown contents", (f"{path}: expected one of {known}, got none of them.",))


def _is_unfinished(root: Path) -> bool:
    return root.name.endswith(".unfinished")


def _examine_unfinished(root: Path) -> tuple[str, list[str]]:
    return "unfinished patch set", [f"{root}: the set is not finished. Run the same command again to continue."]


def _is_store(root: Path) -> bool:
    # Other folders contain a meta.json too.
    return any((root / name).is_file() for name in STORE[:2])


def _examine_store(root: Path) -> tuple[str, list[str]]:
    missing = [f"{root / name}: no such file." for name in STORE if not (root / name).is_file()]
    if missing:
        return "incomplete patch set", missing
    from doap.data.store import check_set

    problems: list[str] = []
    found = attempt(problems, check_set, root)
    if found is None:
        return "damaged patch set", problems
    scenes = len(found.groups_per_scene)
    sizes = counted(found.patches, "patch"), counted(found.groups, "group"), counted(scenes, "scene")
    return "patch set: {} in {} of {}".format(*sizes), problems


def _colmap_files(root: Path) -> dict[str, Path]:
    """Return the files of a model in the folder itself, in sparse, or in sparse/0."""
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
    missing = [f"{path}: no such file. Export the model again." for path in files if not path.is_file()]
    return f"COLMAP model in {folder}", missing


def _has_images(root: Path) -> bool:
    return bool(attempt([], list_images, root))


def _examine_images(root: Path) -> tuple[str, list[str]]:
    images = list_images(root)
    broken = [f"{path}: a link without a target." for path in images if not path.exists()]
    empty = [f"{path}: the image file is empty." for path in images if path.exists() and not path.stat().st_size]
    return f"folder of {len(images):,} images", broken + empty


KINDS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], tuple[str, list[str]]]]] = {
    "unfinished": (_is_unfinished, _examine_unfinished),
    "patch-set": (_is_store, _examine_store),
    "phototour": (phototour.recognise, phototour.examine),
    "hpatches": (hpatches.recognise, hpatches.examine),
    "hpatches-tasks": (hpatches_tasks.recognise, hpatches_tasks.examine),
    "romepatches": (romepatches.recognise, romepatches.examine),
    "sequences": (oxford.recognise, oxford.examine),
    "colmap": (_is_colmap, _examine_colmap),
    "images": (_has_images, _examine_images),
}

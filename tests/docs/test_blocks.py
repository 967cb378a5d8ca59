"""Every code block of the documentation runs, page by page, as a reader would run it.

Blocks with the language `python` are executed; the blocks of a page share their names. Blocks without a language, or
with `console`, contain commands. A block that cannot run in a test has `<!-- not run: reason -->` on the line before;
its commands are still parsed. The cells of notebooks run when the site is built; here, only their commands are parsed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import types
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import cv2
import numpy as np
import pytest
import torch
import typer

import doap
from doap.baselines import BASELINES
from doap.cli import app, main
from doap.data.builders import build_from_images
from doap.data.sampler import SAMPLERS
from doap.detectors import DETECTORS
from doap.evaluation import BENCHMARKS
from doap.export import EXPORTERS
from doap.images import read_grey
from doap.images.synthetic_views import SyntheticViews
from doap.loss import LOSSES
from doap.networks import NETWORKS
from oracles.photos import write_photo
from oracles.plane_scene import FOCAL, HEIGHT, VIEWS, WIDTH, pose, render

pycolmap = pytest.importorskip("pycolmap")
for needed in ("h5py", "kornia", "onnxruntime", "faiss", "pandas", "duckdb", "polars"):
    pytest.importorskip(needed)

# One worker of xdist writes the workspace for all pages.
pytestmark = pytest.mark.xdist_group("blocks")
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "notebooks").glob("*.md"))]
FENCE = re.compile(r"^(?:<!--\s*not run:(?P<reason>.*?)-->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its first line, and the reason if it is not run."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def runs(self) -> bool:
        """Whether the block runs here; blocks of other languages and the cells of notebooks do not."""
        return self.reason is None and self.language in ("python", "console", "")

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command, without comments; empty for blocks in another language."""
        if self.language not in ("", "console"):
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line.removeprefix("$ "), comments=True))]


def find_blocks(page):
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, fence.start("text")), fence["language"], fence["text"], fence["reason"])
        for fence in FENCE.finditer(text)
    ]


BLOCKS = {page.name: find_blocks(page) for page in PAGES}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder with small versions of the files that the pages use."""
    folder = tmp_path_factory.mktemp("workspace")
    # About 180 keypoints per photo: enough for all commands, and few to describe with a large network.
    height, width = 70, 90
    left = read_grey(write_photo(folder / "left.jpg", 0, height, width))
    rotations = [cv2.getRotationMatrix2D((width / 2, height / 2), 4.0 * turn, 1) for turn in range(6)]
    (folder / "data" / "oxford" / "rotated").mkdir(parents=True)
    for number, rotation in enumerate(rotations, start=1):
        path = folder / "data" / "oxford" / "rotated" / f"img{number}.png"
        cv2.imwrite(str(path), cv2.warpAffine(left, rotation, (width, height)))
        if number > 1:
            np.savetxt(path.with_name(f"H1to{number}p"), np.vstack([rotation, [0, 0, 1]]))
    shutil.copy(path.with_name("img3.png"), folder / "right.jpg")
    shutil.copy(folder / "left.jpg", folder / "photo.jpg")
    for number in range(6):
        write_photo(folder / "photos" / f"{number}.jpg", number, height, width)
    torch.manual_seed(0)
    doap.Descriptor.build("fast").save(folder / "my.safetensors")
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    for number, scene in enumerate(("castle", "harbour", "church", "bridge")):
        write_photo(folder / "scenes" / scene / "1.png", number)
    build_from_images(folder / "scenes", folder / "my.patches", views=SyntheticViews(count=4, keypoints=60))
    (folder / "pairs.txt").write_text("1.png 2.png\n1.png 3.png\n", encoding="utf-8")
    reconstruct(folder)
    return folder


def reconstruct(folder):
    """Write images/, database.db as `doap colmap images/` does, and a model sparse/0 with the known cameras."""
    (folder / "images").mkdir()
    (folder / "sparse" / "0").mkdir(parents=True)
    for number, view in enumerate(VIEWS, start=1):
        cv2.imwrite(str(folder / "images" / f"{number}.png"), render(pose(*view)))
    database = folder / "database.db"
    doap.write_colmap(folder / "images", database)
    model = pycolmap.Reconstruction()
    with pycolmap.Database.open(database) as opened:
        images = sorted(opened.read_all_images(), key=lambda image: image.name)
        for image, view in zip(images, VIEWS, strict=True):
            camera = opened.read_camera(image.camera_id)
            camera.params = [FOCAL, WIDTH / 2, HEIGHT / 2, 0]
            model.add_camera_with_trivial_rig(camera)
            posed = pycolmap.Image(name=image.name, camera_id=camera.camera_id, image_id=image.image_id)
            model.add_image_with_trivial_frame(posed, pycolmap.Rigid3d(pose(*view)))
    pycolmap.triangulate_points(model, database, folder / "images", folder / "sparse" / "0")


def run_command(words, monkeypatch):
    """Run a doap command in this process, where torch is imported once; skip pip and reject other programs."""
    if words[0] == "pip":
        return
    if words[0].startswith("PYTHONPATH="):
        monkeypatch.syspath_prepend(words.pop(0).partition("=")[2])
    assert words[0] == "doap", f"{shlex.join(words)}: expected a doap command, or `<!-- not run: reason -->`"
    # A page may show two ways to write the same output.
    for out in (Path(words[index + 1]) for index, word in enumerate(words) if word == "--out"):
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code, shlex.join(words)


@pytest.fixture
def registries():
    """Remove the entries that a page adds to the registries."""
    with ExitStack() as stack:
        for registry in (BASELINES, BENCHMARKS, DETECTORS, EXPORTERS, LOSSES, NETWORKS, SAMPLERS):
            stack.enter_context(patch.dict(registry))
        yield


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", [name for name, found in BLOCKS.items() if any(one.runs for one in found)])
def test_every_block_of_a_page_runs(page, workspace, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    shutil.copytree(workspace, folder)
    monkeypatch.chdir(folder)
    # Dataclasses look up the module that defines them.
    module = types.ModuleType(page)
    monkeypatch.setitem(sys.modules, page, module)
    for block in BLOCKS[page]:
        if block.reason is not None:
            continue
        if block.language == "python":
            # Leading empty lines make an error report the line of the page.
            code = compile("\n" * block.line + block.text, block.page, "exec")
            exec(code, module.__dict__)
        for words in block.commands:
            run_command(words, monkeypatch)


def test_blocks_that_are_not_run_have_a_reason(capsys):
    skipped = [block for found in BLOCKS.values() for block in found if block.reason is not None]
    with capsys.disabled():
        for block in (block for block in skipped if block.page.name != "cli.md"):
            print(f"\nnot run: {block.page.name}:{block.line}:{block.reason.rstrip()}", end="")  # noqa: T201
    assert all(len(block.reason.split()) >= 2 for block in skipped)


@pytest.fixture(scope="module")
def command_line():
    """The commands of doap; making them takes longer than parsing a command."""
    return typer.main.get_command(app)


@pytest.mark.parametrize("page", BLOCKS)
def test_commands_that_are_not_run_parse(page, command_line):
    for words in (words for block in BLOCKS[page] if block.reason is not None for words in block.commands):
        if "doap" not in words:
            continue
        arguments = words[words.index("doap") + 1 :]
        context = command_line.make_context("doap", arguments.copy())
        while hasattr(context.command, "commands"):
            name, command, arguments = context.command.resolve_command(context, arguments)
            context = command.make_context(name, arguments.copy(), parent=context)


def test_every_fence_is_found():
    """An odd number of fences, or an indented one, would hide blocks from this file."""
    for page in PAGES:
        lines = page.read_text(encoding="utf-8").splitlines()
        assert sum(line.lstrip().startswith("```") for line in lines) == 2 * len(BLOCKS[page.name]), page

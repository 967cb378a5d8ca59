"""Installed packages add names for commands, and only for names that the user gives."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import doap as library
from doap.baselines import rootsift
from doap.collection.extractor import open_extractor
from doap.collection.index import build_index
from doap.collection.search import extract_query
from doap.descriptor import Descriptor, load_stored
from doap.detectors import as_detector
from doap.evaluation import open_benchmark
from oracles.feature_sets import write_features
from oracles.interpreter import run_python
from oracles.photo_patches import write_set
from oracles.photos import write_photo

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Folder in which pip installed the example package."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("installed")
    # setuptools writes files beside the sources.
    sources = shutil.copytree(EXAMPLE, folder / "sources")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", folder / "site")
    run_python("-m", "pip", "install", *options, sources)
    return folder / "site"


@pytest.fixture
def command(installed):
    """Run a command of doap in a process that finds the example package, and return its JSON."""
    path = os.pathsep.join([str(installed), str(Path(library.__file__).parents[1])])
    return lambda *words: json.loads(run_python("-m", "doap", *words, "--json", PYTHONPATH=path).stdout)


@pytest.mark.slow
def test_an_installed_descriptor_and_detector_match_a_photo_with_itself(command, tmp_path):
    photo = write_photo(tmp_path / "photo.png", 0)
    found = command("match", photo, photo, "--descriptor", "thumbnail", "--detector", "corners")
    assert found["keypoints"][0] > 200
    assert found["inliers"] > 0.9 * found["keypoints"][0]


@pytest.mark.slow
def test_an_installed_benchmark_ranks_an_installed_descriptor_above_chance(command, tmp_path):
    patches = write_set(tmp_path / "set", write_photo(tmp_path / "photo.png", 0))
    figures = command("eval", "thumbnail", "controls", "darker", patches, "--out", tmp_path / "out")["figures"]
    assert figures["thumbnail"]["accuracy"]["value"] > 0.9
    assert figures["random"]["accuracy"]["value"] < 0.1


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Write an installed package: its entry points, and a module that leaves a mark when it is imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(package, *lines, code=""):
        information = tmp_path / f"{package}-1.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (information / "entry_points.txt").write_text("\n".join(lines))
        mark = tmp_path / f"{package}.imported"
        (tmp_path / f"{package}.py").write_text(f"open({str(mark)!r}, 'w').close()\n{code}")
        monkeypatch.delitem(sys.modules, package, raising=False)
        return mark

    return write


GROUPS = ("[doap.descriptors]", "rootsift = evil:make", "mine = evil:make", "[doap.detectors]", "sift = evil:make")
GROUPS += ("mine = evil:make", "[doap.benchmarks]", "patches = evil:make", "mine = evil:make")


def test_a_name_of_doap_cannot_be_replaced(register, tmp_path):
    mark = register("evil", *GROUPS, code="make = None")
    assert library.load("rootsift").fingerprint() == rootsift().fingerprint()
    assert as_detector("sift").name == "sift"
    with pytest.raises(library.DataError, match="not a patch set"):
        open_benchmark("patches", tmp_path)
    assert not mark.exists()


def test_a_stored_name_does_not_load_an_installed_package(register, tmp_path):
    mark = register("evil", *GROUPS, code="make = None")
    photo = write_photo(tmp_path / "photos" / "a.png", 0)
    info = open_extractor("rootsift", max_keypoints=50).info
    images = {"a.png": library.extract(photo, "rootsift", max_keypoints=50)}
    for number, change in enumerate(({"descriptor": "mine"}, {"detector": "mine"})):
        changed = replace(info, **change)
        features = write_features(tmp_path / f"features-{number}", images, extractor=changed)
        with pytest.raises(library.DoapError, match="'mine'"):
            extract_query(build_index(features, tmp_path / f"index-{number}"), photo)
    with pytest.raises(library.DataError):
        load_stored("mine", "any file")
    weights = Descriptor.build(dim=8)
    weights.spec = weights.spec.model_copy(update={"network": "mine"})
    with pytest.raises(library.DataError):
        library.load(weights.save(tmp_path / "a.safetensors"))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("code", "reason"),
    [("1 / 0", "ZeroDivisionError"), ("import absent", "absent"), ("", "make"), ("make = 3", "got 3")],
)
def test_a_broken_package_is_one_line_that_names_it(doap, register, code, reason):
    register("evil", *GROUPS, code=code)
    photos = ("match", "--sample", "--max-keypoints", 50)
    for option in ("--descriptor", "--detector"):
        ran = doap(*photos, option, "mine")
        assert ran.returncode == 1
        assert len(ran.stderr.splitlines()) == 1
        assert "the package evil" in ran.stderr
        assert reason in ran.stderr
    ran = doap("eval", "rootsift", "mine", "data", "--out", "out")
    assert (ran.returncode, "the package evil" in ran.stderr) == (1, True)


def test_what_a_package_makes_is_checked(register):
    register("evil", *GROUPS, code="make = dict")
    with pytest.raises(library.DataError, match="mine: expected a Describer or an Extractor, got dict"):
        library.load("mine")
    with pytest.raises(library.ArgumentError, match=r"detector: expected .* got dict"):
        as_detector("mine")


def test_two_packages_with_the_same_name_are_refused(register):
    marks = [register(name, "[doap.detectors]", f"mine = {name}:make") for name in ("evil", "good")]
    with pytest.raises(library.DataError, match="evil and good"):
        as_detector("mine")
    assert not any(mark.exists() for mark in marks)


def test_an_unknown_name_lists_those_of_installed_packages(register):
    register("good", "[doap.detectors]", "mine = good:make")
    with pytest.raises(library.ArgumentError, match=r"sift, .*, mine, got 'yours'"):
        as_detector("yours")


def test_the_help_looks_nothing_up(register, tmp_path):
    mark = register("evil", *GROUPS)
    path = os.pathsep.join([str(tmp_path), str(Path(library.__file__).parents[1])])
    code = (
        "import sys\nfrom doap.cli import main\nsys.argv = ['doap', '--help']\ntry: main()\nexcept SystemExit: pass\n"
    )
    run_python("-c", code + "assert 'doap._support.plugins' not in sys.modules", PYTHONPATH=path)
    assert not mark.exists()

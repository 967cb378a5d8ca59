"""The engine Ray: a real one, with two processors, whose processes are killed on the way."""

import logging
import os
import sys
from pathlib import Path

import pytest
import torch

import oracles
from doap.descriptor import Descriptor
from doap.errors import MissingExtra
from doap.images import list_images
from doap.pipeline import extract
from doap.scale import FeatureSet, extract_folder
from oracles.deadly import DEADLY_WIDTH, DeadlyDescriber, DeadlyDetector
from oracles.photos import write_photo

# Ray warns of parts of itself.
pytestmark = pytest.mark.filterwarnings("ignore")
MOST, PHOTOS = 40, 20


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where Ray keeps a key of its own; and its processes are to find what tests send them."""
    pytest.importorskip("ray", reason="ray is not installed; pip install 'doap[scale]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PYTHONPATH", str(Path(oracles.__file__).parents[1]), prepend=os.pathsep)
        yield
    logging.getLogger("ray.data").setLevel(logging.NOTSET)


@pytest.fixture
def photos(tmp_path):
    for seed in range(PHOTOS):
        write_photo(tmp_path / "photos" / f"{seed:02}.png", seed, 100, 120 + seed)
    (tmp_path / "photos" / "cut.png").write_bytes((tmp_path / "photos" / "00.png").read_bytes()[:1000])
    return tmp_path / "photos"


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Descriptor.build().eval()


def run(photos, out, descriptor, engine, **settings):
    return extract_folder(
        photos, out, descriptor, descriptor_name="some", max_keypoints=MOST, engine=engine, workers=2, **settings
    )


def rows_of(out):
    """Rows of a set, without what names the extractor; a row that is there twice is there twice."""
    return sorted(
        (one.name, one.checksum, one.features.frames.tobytes(), one.features.descriptors.numpy().tobytes())
        for one in FeatureSet(out).stream()
    )


def test_ray_makes_what_local_processes_make(photos, network, home, tmp_path):
    there = run(photos, tmp_path / "ray", network, "ray")
    here = run(photos, tmp_path / "local", network, "local")
    assert (there.written, there.failed) == (here.written, here.failed) == (PHOTOS, {"cut.png": here.failed["cut.png"]})
    assert rows_of(tmp_path / "ray") == rows_of(tmp_path / "local")
    # One knows the other's work for its own.
    assert run(photos, tmp_path / "ray", network, "local").written == 0


def test_killed_actors_and_tasks_cost_nothing_and_a_deadly_image_fails_alone(photos, network, home, tmp_path):
    write_photo(photos / "05-deadly.png", 99, 100, DEADLY_WIDTH)
    (ended_actors := tmp_path / "actors").mkdir()
    (ended_tasks := tmp_path / "tasks").mkdir()
    detector, describer = DeadlyDetector(ended_tasks, 1000), DeadlyDescriber(network, ended_actors, 2)
    done = run(photos, tmp_path / "f", describer, "ray", detector=detector)
    assert len(list(ended_actors.iterdir())) == 2
    assert len(list(ended_tasks.iterdir())) == 8
    assert (done.written, sorted(done.failed)) == (PHOTOS, ["05-deadly.png", "cut.png"])
    assert "died 4 times" in done.failed["05-deadly.png"]
    features = FeatureSet(tmp_path / "f")
    assert len(list(features.stream())) == PHOTOS
    for path in list_images(photos):
        if path.name in features.failed:
            continue
        expected = extract(path, network, max_keypoints=MOST).descriptors
        torch.testing.assert_close(features.read(path.name).features.descriptors, expected, rtol=0, atol=2**-11)


def test_without_ray_it_is_said_what_to_install(photos, network, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"ray is not installed\. Run `pip install 'doap\[scale\]'`"):
        run(photos, tmp_path / "f", network, "ray")

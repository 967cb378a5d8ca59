"""The Ray engine on two processors, with killed processes."""

import logging
import os
import sys
from pathlib import Path

import pytest
import torch

import oracles
from doap.descriptor import Descriptor
from doap.errors import ArgumentError, MissingExtra
from doap.images import list_images
from doap.pipeline import extract
from doap.scale import FeatureSet, extract_folder
from doap.scale.extractor import open_extractor
from doap.scale.ray import plan_actors
from doap.scale.stages import Describe
from oracles.deadly import DEADLY_WIDTH, DeadlyDescriber, DeadlyDetector
from oracles.photos import write_photo

# Ray emits warnings about its own internals. Its tests share one worker of xdist, and most of them one start of Ray.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("ray")]
MAX_KEYPOINTS, PHOTOS = 40, 8


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home folder for Ray's key, and a path on which its processes find the objects of these tests."""
    pytest.importorskip("ray", reason="ray is not installed; pip install 'doap[scale]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PYTHONPATH", str(Path(oracles.__file__).parents[1]), prepend=os.pathsep)
        yield
    logging.getLogger("ray.data").setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def cluster(home):
    """A running Ray, which `extract_folder` uses and does not stop."""
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    assert ray.is_initialized()
    ray.shutdown()


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
    return extract_folder(photos, out, descriptor, max_keypoints=MAX_KEYPOINTS, engine=engine, workers=2, **settings)


def rows_of(out):
    """All rows of a set, without the fingerprint, including duplicates."""
    return sorted(
        (one.name, one.checksum, one.features.frames.tobytes(), one.features.descriptors.numpy().tobytes())
        for one in FeatureSet(out).stream()
    )


def test_ray_and_local_extract_the_same_features(photos, network, home, tmp_path):
    """Without a running Ray, one is started and stopped."""
    ray = run(photos, tmp_path / "ray", network, "ray")
    local = run(photos, tmp_path / "local", network, "local")
    assert (ray.extracted, ray.skipped) == (local.extracted, local.skipped)
    assert (local.extracted, list(local.skipped)) == (PHOTOS, ["cut.png"])
    assert rows_of(tmp_path / "ray") == rows_of(tmp_path / "local")
    # Each engine reuses the features of the other.
    assert run(photos, tmp_path / "ray", network, "local").extracted == 0


def test_a_descriptor_by_name_is_loaded_in_the_processes_of_ray(photos, cluster, tmp_path):
    """RootSIFT cannot be pickled and reads the image itself."""
    assert run(photos, tmp_path / "ray", "rootsift", "ray").extracted == PHOTOS
    assert run(photos, tmp_path / "ray", "rootsift", "local").extracted == 0


def test_killed_actors_and_tasks_lose_no_image_and_only_a_deadly_image_fails(photos, network, cluster, tmp_path):
    write_photo(photos / "05-deadly.png", 99, 100, DEADLY_WIDTH)
    (killed_actors := tmp_path / "actors").mkdir()
    (killed_tasks := tmp_path / "tasks").mkdir()
    detector, describer = DeadlyDetector(killed_tasks, 1000), DeadlyDescriber(network, killed_actors, 2)
    summary = run(photos, tmp_path / "f", describer, "ray", detector=detector)
    assert len(list(killed_actors.iterdir())) == 2
    assert len(list(killed_tasks.iterdir())) == 8
    assert (summary.extracted, sorted(summary.skipped)) == (PHOTOS, ["05-deadly.png", "cut.png"])
    assert "crashed 4 times" in summary.skipped["05-deadly.png"]
    features = FeatureSet(tmp_path / "f")
    assert len(list(features.stream())) == PHOTOS
    for path in list_images(photos):
        if path.name in features.failed:
            continue
        expected = extract(path, network, max_keypoints=MAX_KEYPOINTS).descriptors
        torch.testing.assert_close(features.read(path.name).features.descriptors, expected, rtol=0, atol=2**-11)


def test_without_ray_the_error_names_the_extra(photos, network, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"ray is not installed\. Run `pip install 'doap\[scale\]'`"):
        run(photos, tmp_path / "f", network, "ray")


@pytest.mark.parametrize(
    ("cluster", "device", "expected"),
    [
        ({"CPU": 8.0}, "auto", ("cpu", 8, {"num_cpus": 0})),
        ({"CPU": 8.0, "GPU": 2.0}, "auto", ("cuda", 2, {"num_gpus": 1})),
        ({"CPU": 8.0, "GPU": 2.0}, "cuda:1", ("cuda", 2, {"num_gpus": 1})),
        ({"CPU": 8.0, "GPU": 2.0}, "cpu", ("cpu", 8, {"num_cpus": 0})),
    ],
)
def test_actors_request_the_gpus_of_the_cluster(network, cluster, device, expected):
    describe = Describe(network, open_extractor(network).info)
    assert plan_actors(cluster, describe, device) == expected


def test_actors_without_a_network_request_no_gpu():
    describe = Describe(None, open_extractor("rootsift").info)
    assert plan_actors({"CPU": 8.0, "GPU": 2.0}, describe, "cuda") == ("cpu", 8, {"num_cpus": 0})


def test_a_cluster_without_gpus_refuses_cuda(network):
    describe = Describe(network, open_extractor(network).info)
    with pytest.raises(ArgumentError, match="device: the Ray cluster has no GPU for cuda"):
        plan_actors({"CPU": 8.0}, describe, "cuda")

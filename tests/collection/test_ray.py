"""The Ray engine on two processors, with killed processes."""

import logging
import os
import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch

import oracles
from doap._support.errors import ArgumentError, DataError
from doap.collection import FeatureSet, extract_folder
from doap.collection.extractor import open_extractor
from doap.collection.features import PartWriter
from doap.collection.image_folder import ImageFolder
from doap.collection.local import ImageExtractor
from doap.collection.ray import extract_with_ray, plan_tasks
from doap.collection.storage import StoredFile
from doap.descriptor import Descriptor
from doap.images import list_images
from doap.pipeline import extract
from oracles.deadly import DEADLY_WIDTH, DeadlyDescriber, DeadlyDetector, SlowDetector
from oracles.photos import write_photo

# Ray emits warnings about its own internals. Its tests share one worker of xdist, and most of them one start of Ray.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("ray")]
MAX_KEYPOINTS, PHOTOS = 40, 8


@pytest.fixture(scope="module")
def import_path():
    """A path on which the processes of Ray find the objects of these tests."""
    pytest.importorskip("ray", reason="ray is not installed; pip install 'doap[ray]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(oracles.__file__).parents[1]), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def cluster(import_path):
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
    return Descriptor.build("fast").eval()


def run(photos, out, descriptor, engine, **settings):
    return extract_folder(photos, out, descriptor, max_keypoints=MAX_KEYPOINTS, engine=engine, workers=2, **settings)


def rows_of(out):
    """All rows of a set, without the fingerprint, including duplicates."""
    return sorted(
        (one.name, one.checksum, one.features.frames.tobytes(), one.features.descriptors.numpy().tobytes())
        for one in FeatureSet(out).stream()
    )


def test_ray_and_local_extract_the_same_features(photos, network, import_path, tmp_path):
    """Without a running Ray, one is started and stopped."""
    ray = run(photos, tmp_path / "ray", network, "ray")
    local = run(photos, tmp_path / "local", network, "local")
    assert (ray.extracted, ray.skipped) == (local.extracted, local.skipped)
    assert (local.extracted, list(local.skipped)) == (PHOTOS, ["cut.png"])
    assert rows_of(tmp_path / "ray") == rows_of(tmp_path / "local")
    # Each engine reuses the features of the other.
    assert run(photos, tmp_path / "ray", network, "local").extracted == 0


def test_killed_tasks_lose_no_image_and_only_a_deadly_image_fails(photos, network, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("doap.collection.ray.RETRIES", 1)
    write_photo(photos / "05-deadly.png", 99, 100, DEADLY_WIDTH)
    (killed_describing := tmp_path / "describing").mkdir()
    (killed_detecting := tmp_path / "detecting").mkdir()
    detector, describer = DeadlyDetector(killed_detecting, 1000), DeadlyDescriber(network, killed_describing, 1)
    summary = run(photos, tmp_path / "f", describer, "ray", detector=detector)
    assert len(list(killed_describing.iterdir())) == 1
    # Twice together with other images, and twice alone.
    assert len(list(killed_detecting.iterdir())) == 4
    assert (summary.extracted, sorted(summary.skipped)) == (PHOTOS, ["05-deadly.png", "cut.png"])
    features = FeatureSet(tmp_path / "f")
    assert len(list(features.stream())) == PHOTOS
    for path in list_images(photos):
        if path.name in features.failed:
            continue
        expected = extract(path, network, max_keypoints=MAX_KEYPOINTS).descriptors
        torch.testing.assert_close(features.read(path.name).features.descriptors, expected, rtol=0, atol=2**-11)


def image_extractor(descriptor, folder, detector="sift"):
    configured = open_extractor(descriptor, detector=detector, max_keypoints=MAX_KEYPOINTS)
    return ImageExtractor(ImageFolder.open(folder), configured.extractor, configured.info)


def shared_by_tasks(photos, out, descriptor, detector="sift"):
    """Images, where to write their features, and their extractor."""
    extract = image_extractor(descriptor, photos, detector)
    sources = [StoredFile(name, stamp) for name, stamp in extract.folder.list().items()]
    with PartWriter(out, extract.info) as writer:
        return sources, writer.target, extract


def test_features_that_cannot_be_written_end_the_run(photos, network, cluster, tmp_path):
    sources, *shared = shared_by_tasks(photos, tmp_path / "f", network)
    shutil.rmtree(tmp_path / "f")
    (tmp_path / "f").touch()
    with pytest.raises(DataError):
        list(extract_with_ray(sources, *shared, 2, None, "cpu"))


def test_an_interrupted_run_leaves_no_task_behind(photos, network, cluster, tmp_path):
    import ray

    detector = SlowDetector(seconds=1)
    sources, *shared = shared_by_tasks(photos, tmp_path / "f", network, detector)
    run = extract_with_ray(sources, *shared, 2, None, "cpu")
    with closing(run) as tables:
        next(tables)
    while ray.available_resources().get("CPU") != 2:
        time.sleep(0.1)
    written = list((tmp_path / "f").glob("part-*"))
    assert len(written) < len(sources) / 2
    time.sleep(2)
    assert list((tmp_path / "f").glob("part-*")) == written


def test_tasks_request_processors_and_a_share_of_a_gpu_for_a_network(network, tmp_path):
    describe, own = image_extractor(network, tmp_path), image_extractor("rootsift", tmp_path)
    processors, share = ("cpu", {"num_cpus": 1}), ("cuda", {"num_cpus": 1, "num_gpus": 0.125})
    gpus = {"CPU": 8.0, "GPU": 2.0}
    assert plan_tasks({"CPU": 8.0}, describe, "auto") == plan_tasks(gpus, describe, "cpu") == processors
    assert plan_tasks(gpus, describe, "auto") == plan_tasks(gpus, describe, "cuda:1") == share
    assert plan_tasks(gpus, own, "cuda") == processors
    with pytest.raises(ArgumentError):
        plan_tasks({"CPU": 8.0}, describe, "cuda")

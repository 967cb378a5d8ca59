"""The Ray engine on two processors, with killed processes."""

import logging
import os
import shutil
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from doap._support.errors import ArgumentError, DataError, MissingExtra
from doap.collection import FeatureSet, extract_folder
from doap.collection.extractor import open_extractor
from doap.collection.features import PartWriter
from doap.collection.image_folder import ImageFolder, Source
from doap.collection.ray import (
    IMAGES_PER_PART,
    Plan,
    Stages,
    extract_with_ray,
    plan_workers,
    run_tasks,
    run_with_actors,
    split_into_parts,
)
from doap.collection.stages import Describe, make_stages
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


def test_a_describer_that_reads_the_image_itself_runs_in_the_processes_of_ray(photos, cluster, tmp_path):
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


def describe_stage(descriptor):
    configured = open_extractor(descriptor)
    return Describe(configured.extractor, configured.info)


def stages_of(photos, out, descriptor, detector="sift"):
    """Images, and what Ray does with them."""
    folder = ImageFolder.open(photos)
    extractor = open_extractor(descriptor, detector=detector, max_keypoints=MAX_KEYPOINTS)
    detect, describe = make_stages(folder, extractor)
    sources = [Source(name, stamp) for name, stamp in folder.list().items()]
    with PartWriter(out, extractor.info) as writer:
        return sources, Stages(detect, describe, writer.target)


@pytest.mark.parametrize("together", [True, False])
def test_actors_describe_what_tasks_detect(photos, network, cluster, tmp_path, together):
    """As with GPUs, but on processors."""
    sources, stages = stages_of(photos, tmp_path / "actors", network)
    tables = list(run_with_actors(sources, stages, Plan("cpu", 2, {"num_cpus": 0}), together))
    assert sorted(name for rows in tables for name in rows["name"].to_pylist()) == [source.name for source in sources]
    run(photos, tmp_path / "local", network, "local")
    assert rows_of(tmp_path / "actors") == rows_of(tmp_path / "local")


def test_features_that_cannot_be_written_end_the_run(photos, network, cluster, tmp_path):
    sources, stages = stages_of(photos, tmp_path / "f", network)
    shutil.rmtree(tmp_path / "f")
    (tmp_path / "f").touch()
    with pytest.raises(DataError, match="cannot be written: Not a directory"):
        list(extract_with_ray(sources, stages.target, stages.detect, stages.describe, 2, None, "cpu"))


def test_an_interrupted_run_leaves_no_task_behind(photos, network, cluster, tmp_path):
    import ray

    detector = SlowDetector(seconds=1)
    sources, stages = stages_of(photos, tmp_path / "f", network, detector)
    with closing(run_tasks(sources, stages, Plan("cpu", 2, {"num_cpus": 1}), False)) as tables:
        next(tables)
    while ray.available_resources().get("CPU") != 2:
        time.sleep(0.1)
    written = list((tmp_path / "f").glob("part-*"))
    assert len(written) < len(sources) / 2
    time.sleep(2)
    assert list((tmp_path / "f").glob("part-*")) == written


@given(st.integers(0, 2000), st.integers(1, 50), st.integers(1, 200))
def test_parts_hold_all_images_in_order_and_become_smaller(images, workers, largest):
    sources = [Source(str(number)) for number in range(images)]
    parts = list(split_into_parts(sources, workers, largest))
    assert [source for part in parts for source in part] == sources
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes, default=0) <= largest


def test_images_per_task_grow_with_the_archive_up_to_a_limit():
    """The process that starts the run pays per task."""
    largest = [len(next(split_into_parts(range(images), 8, IMAGES_PER_PART))) for images in (10, 1000, 10_000_000)]
    assert largest == [4, 63, IMAGES_PER_PART]


def test_without_ray_the_error_names_the_extra(photos, network, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"ray is not installed\. Run `pip install 'doap\[scale\]'`"):
        run(photos, tmp_path / "f", network, "ray")


@pytest.mark.parametrize(
    ("cluster", "device", "expected"),
    [
        ({"CPU": 8.0}, "auto", ("cpu", 8, {"num_cpus": 1})),
        ({"CPU": 8.0, "GPU": 2.0}, "auto", ("cuda", 2, {"num_gpus": 1})),
        ({"CPU": 8.0, "GPU": 2.0}, "cuda:1", ("cuda", 2, {"num_gpus": 1})),
        ({"CPU": 8.0, "GPU": 2.0}, "cpu", ("cpu", 8, {"num_cpus": 1})),
    ],
)
def test_workers_request_the_gpus_or_processors_of_the_cluster(network, cluster, device, expected):
    describe = describe_stage(network)
    assert plan_workers(cluster, describe, device) == expected


def test_workers_without_a_network_request_no_gpu():
    describe = describe_stage("rootsift")
    assert plan_workers({"CPU": 8.0, "GPU": 2.0}, describe, "cuda") == ("cpu", 8, {"num_cpus": 1})


def test_a_cluster_without_gpus_refuses_cuda(network):
    describe = describe_stage(network)
    with pytest.raises(ArgumentError, match="device: the Ray cluster has no GPU for cuda"):
        plan_workers({"CPU": 8.0}, describe, "cuda")

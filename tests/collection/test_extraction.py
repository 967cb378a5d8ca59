"""Extraction of a folder on this machine: equal to `doap.extract`, resumable, and robust against crashes."""

import pickle
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError, DataError
from doap.baselines import BASELINES, rootsift
from doap.collection import FeatureSet, extract_folder
from doap.collection.extractor import open_extractor
from doap.collection.image_folder import ImageFolder
from doap.collection.local import ImageExtractor, make_portable
from doap.collection.storage import StoredFile
from doap.describer import from_function
from doap.descriptor import Descriptor
from doap.detectors import colmap, sift
from doap.images import list_images, read_grey
from doap.pipeline import as_extractor, extract
from oracles.deadly import DEADLY_WIDTH, DeadlyDetector
from oracles.interpreter import run_python
from oracles.photos import write_photo

MAX_KEYPOINTS = 40
PHOTOS = 18


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photos in two folders, one flat image, and three files that are not images."""
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(PHOTOS - 1):
        write_photo(folder / f"{seed % 2}" / f"{seed:02}.png", seed, 100, 120 + seed)
    cv2.imwrite(str(folder / "flat.png"), np.full((50, 60), 99, np.uint8))
    (folder / "cut.png").write_bytes((folder / "0" / "00.png").read_bytes()[:1000])
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_text("not an image")
    return folder


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Descriptor.build("fast").eval()


def run(images, out, descriptor, **settings):
    return extract_folder(images, out, descriptor, **{"max_keypoints": MAX_KEYPOINTS, "workers": 1} | settings)


def assert_complete(out, images, descriptor, detector=None, error=2**-11, without=()):
    """Check that the set holds each readable image once, with the features of `doap.extract`."""
    features = FeatureSet(out)
    names = [path.relative_to(images).as_posix() for path in list_images(images)]
    readable = [name for name in names if Path(name).stem not in ("cut", "empty", "text", *without)]
    assert features.names == readable
    assert sorted(features.failed) == sorted(set(names) - set(readable))
    assert sorted(image.name for image in features.stream()) == readable
    for name in readable:
        expected = extract(images / name, descriptor, detector=detector, max_keypoints=MAX_KEYPOINTS)
        stored = features.read(name).features
        np.testing.assert_array_equal(stored.frames, expected.frames)
        np.testing.assert_array_equal(stored.responses, expected.responses)
        assert stored.image_size == expected.image_size
        torch.testing.assert_close(stored.descriptors, expected.descriptors, rtol=0, atol=error)


@pytest.mark.parametrize(
    "name", ["real network", "wide network", "binary network", "rootsift", "teblid", "colmap-sift", "function"]
)
def test_images_together_equal_extract(name, photos, network):
    detector = sift()
    if name == "real network":
        descriptor = network
    elif name == "wide network":
        descriptor = Descriptor(network.network, 32, extent=1.5).eval()
    elif name == "binary network":
        descriptor = Descriptor.build("l2net-st", kind="binary", dim=256)
    elif name == "function":
        descriptor = from_function(lambda patches: patches.flatten(1)[:, ::64])
    else:
        descriptor, detector = BASELINES[name](), colmap() if name == "colmap-sift" else sift()
    extractor = open_extractor(descriptor, detector=detector, max_keypoints=MAX_KEYPOINTS)
    extract_images = ImageExtractor(ImageFolder.open(photos), extractor.extractor, extractor.info)
    portable = make_portable(extract_images, None if name == "function" else partial(as_extractor, name))
    # A local function cannot be sent.
    assert (portable is None) == (name == "function")
    extract_images = extract_images if portable is None else pickle.loads(pickle.dumps(portable))
    names = ["flat.png", "0/00.png", "cut.png", "1/01.png", "0/02.png"]
    rows = extract_images([StoredFile(name, "") for name in names]).to_pylist()
    assert [row["name"] for row in rows] == names
    for row in rows:
        if row["name"] == "cut.png":
            assert row["error"].startswith(f"{photos}/cut.png: ")
            assert row["frames"] == []
            continue
        expected = extract(photos / row["name"], descriptor, detector=detector, max_keypoints=MAX_KEYPOINTS)
        assert (row["error"], row["fingerprint"]) == (None, extractor.info.fingerprint)
        assert (row["height"], row["width"]) == expected.image_size == read_grey(photos / row["name"]).shape
        np.testing.assert_array_equal(np.reshape(row["frames"], (-1, 2, 3)), expected.frames)
        stored = expected.descriptors if extractor.info.kind == "binary" else expected.descriptors.half()
        assert row["descriptors"] == stored.numpy().tobytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_only_changed_images_are_extracted_again(photos, network, tmp_path, workers):
    images, out = tmp_path / "images", tmp_path / "features"
    for path in list_images(photos):
        (images / path.relative_to(photos)).parent.mkdir(parents=True, exist_ok=True)
        (images / path.relative_to(photos)).write_bytes(path.read_bytes())
    events = []
    first = run(images, out, network, workers=workers, progress=lambda *event: events.append(event))
    assert (first.out, first.extracted, first.reused, first.removed) == (out, PHOTOS, 0, 0)
    assert sorted(first.skipped) == ["cut.png", "empty.jpg", "text.jpg"]
    assert_complete(out, images, network)
    assert [event[0] for event in events] == sorted(event[0] for event in events)
    assert events[-1][:2] == (PHOTOS + 3, PHOTOS + 3)
    assert events[-1][2].endswith("images/s")

    before = FeatureSet(out).checksum()
    again = run(images, out, network)
    assert (again.extracted, again.reused, again.skipped) == (0, PHOTOS, first.skipped)
    assert FeatureSet(out).checksum() == before

    write_photo(images / "0" / "02.png", 99, 100, 130)
    write_photo(images / "cut.png", 98, 100, 130)
    write_photo(images / "new.png", 97, 100, 130)
    (images / "1" / "03.png").unlink()
    (images / "text.jpg").unlink()
    third = run(images, out, network)
    assert (third.extracted, third.reused, third.removed, list(third.skipped)) == (3, PHOTOS - 2, 2, ["empty.jpg"])
    (images / "cut.png").rename(images / "whole.png")
    fourth = run(images, out, network)
    assert (fourth.extracted, fourth.reused, fourth.removed) == (1, PHOTOS, 1)
    assert_complete(out, images, network)


def test_another_extractor_extracts_everything_again_and_deletes_old_parts(network, tmp_path):
    few = tmp_path / "images"
    for seed in range(3):
        write_photo(few / f"{seed}.png", seed, 100, 120)
    run(few, tmp_path / "f", network)
    again = run(few, tmp_path / "f", "rootsift")
    assert (again.extracted, again.reused) == (3, 0)
    assert [part.name[:11] for part in sorted((tmp_path / "f").iterdir())] == [
        "_meta.json",
        "part-000002",
    ]
    assert_complete(tmp_path / "f", few, rootsift())


@pytest.fixture
def deadly(photos, tmp_path):
    """A folder with an image that kills the process, and the ledger of killed processes."""
    images = tmp_path / "images"
    images.mkdir()
    for path in [*list_images(photos / "0"), photos / "cut.png"]:
        (images / path.name).write_bytes(path.read_bytes())
    write_photo(images / "05-deadly.png", 5, 100, DEADLY_WIDTH)
    (tmp_path / "ledger").mkdir()
    return images, tmp_path / "ledger"


def test_no_image_is_lost_when_a_worker_is_killed(deadly, network, tmp_path):
    images, ledger = deadly
    summary = run(images, tmp_path / "f", network, detector=DeadlyDetector(ledger, 1), workers=2)
    assert len(list(ledger.iterdir())) == 1
    assert (summary.extracted, list(summary.skipped)) == (len(list_images(images)) - 1, ["cut.png"])
    assert_complete(tmp_path / "f", images, network)


def test_an_image_that_kills_every_worker_is_skipped_and_tried_again(deadly, network, tmp_path):
    images, ledger = deadly
    # Once together with other images, and three times on its own.
    detector = DeadlyDetector(ledger, 4)
    summary = run(images, tmp_path / "f", network, detector=detector, workers=2)
    assert sorted(summary.skipped) == ["05-deadly.png", "cut.png"]
    assert_complete(tmp_path / "f", images, network, without=["05-deadly"])
    again = run(images, tmp_path / "f", network, detector=detector, workers=2)
    assert (again.extracted, list(again.skipped)) == (1, ["cut.png"])
    assert_complete(tmp_path / "f", images, network)


DRIVER = """
import signal
import sys
import time
import torch
import doap.collection.features
from doap.descriptor import Descriptor
from doap.collection import extract_folder

def report(done, total, text):
    print(done, flush=True)
    if done >= 8:
        time.sleep(60)  # until the process is stopped

if __name__ == "__main__":
    # Background jobs of a shell ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # 1 writes a part per batch.
    doap.collection.features._PART_BYTES = int(sys.argv[3])
    torch.manual_seed(0)
    network = Descriptor.build("fast").eval()
    workers = int(sys.argv[4])
    extract_folder(sys.argv[1], sys.argv[2], network, max_keypoints=40, workers=workers, progress=report)
"""


@pytest.mark.parametrize(("how", "part", "workers"), [(signal.SIGINT, 1 << 30, 2), (signal.SIGKILL, 1, 1)])
def test_a_stopped_run_resumes(how, part, workers, photos, network, tmp_path):
    script, out = tmp_path / "driver.py", tmp_path / "f"
    script.write_text(DRIVER)
    command = [sys.executable, str(script), str(photos), str(out), str(part), str(workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        for line in driver.stdout:
            if int(line) >= 8:
                break
        children = _descendants(driver.pid)
        driver.send_signal(how)
        driver.communicate(timeout=60)
    assert bool(children) == (workers > 1)
    assert driver.returncode != 0
    stored = FeatureSet(out)
    assert 8 <= len(stored.checksums) < PHOTOS + 3
    deadline = time.monotonic() + 30
    while any(_is_alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_is_alive(pid) for pid in children)
    summary = run(photos, out, network)
    assert (summary.extracted, summary.reused) == (PHOTOS - len(stored), len(stored))
    assert_complete(out, photos, network)


def _descendants(pid):
    """The children of a process and their children, such as forked workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return children + [one for child in children for one in _descendants(child)]


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class ExhaustedDetector:
    """SIFT that fails for lack of memory as long as a file exists."""

    name, magnification = "exhausted", 6.0

    def __init__(self, file):
        self.file = file

    def detect(self, image, max_keypoints=None):
        if self.file.exists():
            raise MemoryError
        return sift().detect(image, max_keypoints)


def test_an_image_for_which_memory_did_not_suffice_is_tried_again(photos, tmp_path):
    configured = open_extractor("rootsift", detector=ExhaustedDetector(tmp_path / "full"), max_keypoints=10)
    extract_images = ImageExtractor(ImageFolder.open(photos), configured.extractor, configured.info)
    (tmp_path / "full").touch()
    (row,) = extract_images([StoredFile("0/00.png", "")]).to_pylist()
    assert (row["error"] is None, row["checksum"]) == (False, "")


def test_a_script_without_a_main_guard_gets_a_clear_error(photos, tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import sys\nfrom doap.collection import extract_folder\n"
        "extract_folder(sys.argv[1], sys.argv[2], 'orb', workers=2)\n"
    )
    ran = run_python(script, photos, tmp_path / "f", fails=True)
    assert ran.returncode == 1
    assert "needs `if __name__ == '__main__':`" in ran.stderr.splitlines()[-1]


def test_an_object_that_cannot_be_pickled_needs_a_name_or_one_worker(photos, tmp_path):
    baseline = rootsift()
    baseline.local = lambda: None
    with pytest.raises(ArgumentError):
        run(photos, tmp_path / "f", baseline, workers=2)
    assert not (tmp_path / "f").exists()
    assert run(photos, tmp_path / "f", baseline).extracted == PHOTOS


def test_a_file_is_stored_as_an_absolute_path_and_an_object_without_a_name(network, photos, tmp_path, monkeypatch):
    network.save(tmp_path / "my.safetensors")
    monkeypatch.chdir(tmp_path)
    assert open_extractor("my.safetensors").info.descriptor == str(tmp_path / "my.safetensors")
    assert open_extractor("rootsift").info.descriptor == "rootsift"
    assert open_extractor(network).info.descriptor is None
    assert open_extractor(network).info.fingerprint == open_extractor("my.safetensors").info.fingerprint


def test_bad_arguments_are_refused_before_anything_is_written(photos, network, tmp_path):
    out = tmp_path / "f"
    (tmp_path / "none").mkdir()
    for images, settings, error in [
        (photos, {"engine": "dask"}, ArgumentError),
        (photos, {"workers": 0}, ArgumentError),
        (photos, {"workers": 2**31}, ArgumentError),
        (photos, {"address": "auto"}, ArgumentError),
        (photos, {"max_keypoints": 0}, ArgumentError),
        (photos, {"tile": 100}, ArgumentError),
        (tmp_path / "none", {}, DataError),
    ]:
        with pytest.raises(error):
            run(images, out, network, **settings)
    with pytest.raises(ArgumentError):
        run(photos, out, BASELINES["colmap-sift"](), detector="sift")
    assert not out.exists()

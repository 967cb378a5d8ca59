"""Features of a folder by processes of this machine: as `doap.extract` makes them, whatever dies on the way."""

import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from doap.baselines import BASELINES
from doap.describer import fingerprint, from_function
from doap.descriptor import Descriptor
from doap.detectors import DETECTORS, colmap, sift
from doap.errors import ArgumentError, DataError
from doap.images import list_images, read_grey
from doap.pipeline import extract
from doap.scale import FeatureSet, extract_folder, extractor_of
from doap.scale.stages import make_stages, sendable
from oracles.deadly import DEADLY_WIDTH, DeadlyDetector
from oracles.photos import write_photo

MOST = 40
PHOTOS = 18


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photos in two folders, one of them flat, and three files that are none."""
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
    return Descriptor.build().eval()


def run(images, out, descriptor, **settings):
    return extract_folder(
        images, out, descriptor, descriptor_name="some", **{"max_keypoints": MOST, "workers": 1} | settings
    )


def assert_complete(out, images, descriptor, detector=None, error=2**-11, without=()):
    """The set has each image that can be read once, as `doap.extract` makes it."""
    features = FeatureSet(out)
    names = [path.relative_to(images).as_posix() for path in list_images(images)]
    readable = [name for name in names if Path(name).stem not in ("cut", "empty", "text", *without)]
    assert features.names == readable
    assert sorted(features.failed) == sorted(set(names) - set(readable))
    assert [one.name for one in sorted(features.stream(), key=lambda one: one.name)] == readable
    for name in readable:
        expected, stored = (
            extract(images / name, descriptor, detector=detector, max_keypoints=MOST),
            features.read(name),
        )
        np.testing.assert_array_equal(stored.features.frames, expected.frames)
        np.testing.assert_array_equal(stored.features.responses, expected.responses)
        assert stored.features.image_size == expected.image_size
        torch.testing.assert_close(stored.features.descriptors, expected.descriptors, rtol=0, atol=error)


@pytest.mark.parametrize(
    "name", ["real network", "wide network", "binary network", "rootsift", "teblid", "colmap-sift", "function"]
)
def test_the_two_stages_together_are_extract(name, photos, network):
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
    extractor = extractor_of(descriptor, descriptor_name=name, detector=detector, max_keypoints=MOST)
    look, describe = make_stages(photos, descriptor, detector, extractor, None, network_travels=False)
    look = pickle.loads(pickle.dumps(look))
    names = ["flat.png", "0/00.png", "cut.png", "1/01.png", "0/02.png"]
    rows = describe([look(name) for name in names]).to_pylist()
    assert [row["name"] for row in rows] == names
    for row in rows:
        if row["name"] == "cut.png":
            assert (row["error"], row["keypoints"]) == (
                f"{photos}/cut.png: expected a whole image, got a truncated one; copy it again",
                [],
            )
            continue
        expected = extract(photos / row["name"], descriptor, detector=detector, max_keypoints=MOST)
        assert (row["error"], row["extractor"]) == (None, extractor.fingerprint)
        assert (row["height"], row["width"]) == expected.image_size == read_grey(photos / row["name"]).shape
        np.testing.assert_array_equal(np.reshape(row["keypoints"], (-1, 2, 3)), expected.frames)
        stored = expected.descriptors if extractor.kind == "binary" else expected.descriptors.half()
        assert row["descriptors"] == stored.numpy().tobytes()


def test_a_folder_is_extracted_and_done_again_only_where_it_changed(photos, network, tmp_path):
    images, out = tmp_path / "images", tmp_path / "features"
    for path in list_images(photos):
        (images / path.relative_to(photos)).parent.mkdir(parents=True, exist_ok=True)
        (images / path.relative_to(photos)).write_bytes(path.read_bytes())
    told = []
    done = run(images, out, network, workers=2, progress=lambda *event: told.append(event))
    assert (done.written, done.kept, done.removed, sorted(done.failed)) == (
        PHOTOS,
        0,
        0,
        ["cut.png", "empty.jpg", "text.jpg"],
    )
    assert "truncated" in done.failed["cut.png"]
    assert "empty" in done.failed["empty.jpg"]
    assert "damaged or foreign" in done.failed["text.jpg"]
    assert_complete(out, images, network)
    assert [event[0] for event in told] == sorted(event[0] for event in told)
    assert told[-1][:2] == (PHOTOS + 3, PHOTOS + 3)
    assert told[-1][2].endswith("images/s")

    before = FeatureSet(out).checksum()
    again = run(images, out, network)
    assert (again.written, again.kept, again.failed) == (0, PHOTOS + 3, done.failed)
    assert FeatureSet(out).checksum() == before

    write_photo(images / "0" / "02.png", 99, 100, 130)
    write_photo(images / "cut.png", 98, 100, 130)
    write_photo(images / "new.png", 97, 100, 130)
    (images / "1" / "03.png").unlink()
    (images / "text.jpg").unlink()
    third = run(images, out, network)
    assert (third.written, third.kept, third.removed, list(third.failed)) == (3, PHOTOS - 1, 2, ["empty.jpg"])
    (images / "cut.png").rename(images / "whole.png")
    fourth = run(images, out, network, max_keypoints=MOST)
    assert (fourth.written, fourth.kept, fourth.removed) == (1, PHOTOS + 1, 1)
    assert_complete(out, images, network)


def test_threads_of_the_program_are_what_they_were(photos, network, tmp_path):
    """The network is shared by threads of one processor each; neither this thread nor one that begins later is."""

    def of_a_new_thread():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run(photos, tmp_path / "features", network)
        assert (torch.get_num_threads(), of_a_new_thread()) == (2, 2)
    finally:
        torch.set_num_threads(before)


def test_another_extractor_makes_all_anew_and_leaves_nothing_behind(photos, network, tmp_path):
    few = tmp_path / "images"
    for seed in range(3):
        write_photo(few / f"{seed}.png", seed, 100, 120)
    run(few, tmp_path / "f", network)
    # RootSIFT cannot be pickled, and sees the image.
    done = run(few, tmp_path / "f", BASELINES["rootsift"](), stored="uint8")
    assert (done.written, done.kept) == (3, 0)
    assert [part.name for part in sorted((tmp_path / "f").iterdir())] == ["meta.json", "part-000002.parquet"]
    assert_complete(tmp_path / "f", few, BASELINES["rootsift"](), error=0.01)


@pytest.fixture
def deadly(photos, tmp_path):
    """The folder with one image more, a deadly one, and the ledger of the processes that it ended."""
    images = tmp_path / "images"
    images.mkdir()
    for path in [*list_images(photos / "0"), photos / "cut.png"]:
        (images / path.name).write_bytes(path.read_bytes())
    write_photo(images / "05-deadly.png", 5, 100, DEADLY_WIDTH)
    (tmp_path / "ledger").mkdir()
    return images, tmp_path / "ledger"


def test_a_process_killed_in_the_middle_costs_nothing(deadly, network, tmp_path):
    images, ledger = deadly
    done = run(images, tmp_path / "f", network, detector=DeadlyDetector(ledger, 1))
    assert len(list(ledger.iterdir())) == 1
    assert (done.written, list(done.failed)) == (len(list_images(images)) - 1, ["cut.png"])
    assert_complete(tmp_path / "f", images, network)


def test_an_image_that_ends_every_process_fails_alone_and_is_tried_again(deadly, network, tmp_path):
    images, ledger = deadly
    # Once among others and three times alone.
    detector = DeadlyDetector(ledger, 4)
    done = run(images, tmp_path / "f", network, detector=detector)
    assert "ended 3 processes" in done.failed["05-deadly.png"]
    assert_complete(tmp_path / "f", images, network, without=["05-deadly"])
    again = run(images, tmp_path / "f", network, detector=detector)
    assert (again.written, list(again.failed)) == (1, ["cut.png"])
    assert_complete(tmp_path / "f", images, network)


DRIVER = """
import signal
import sys
import time
import torch
import doap.scale.features
from doap.descriptor import Descriptor
from doap.scale import extract_folder

def report(done, total, text):
    print(done, flush=True)
    if done >= 8:
        time.sleep(60)  # Until it is stopped.

if __name__ == "__main__":
    # Whoever runs the tests in the background has made interrupts ignored, here too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A part for each batch.
    doap.scale.features._BYTES_OF_A_PART = int(sys.argv[3])
    torch.manual_seed(0)
    network = Descriptor.build().eval()
    extract_folder(sys.argv[1], sys.argv[2], network, descriptor_name="some", max_keypoints=40, workers=1, progress=report)
"""


@pytest.mark.parametrize(("how", "part"), [(signal.SIGINT, 1 << 30), (signal.SIGKILL, 1)])
def test_a_run_that_was_stopped_is_resumed_where_it_was(how, part, photos, network, tmp_path):
    script, out = tmp_path / "driver.py", tmp_path / "f"
    script.write_text(DRIVER)
    command = [sys.executable, str(script), str(photos), str(out), str(part)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        for line in driver.stdout:
            if int(line) >= 8:
                break
        children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
        driver.send_signal(how)
        driver.communicate(timeout=60)
    assert children
    assert driver.returncode != 0
    there = FeatureSet(out).checksums
    assert 8 <= len(there) < PHOTOS + 3
    patience = time.monotonic() + 30
    while any(_is_alive(pid) for pid in children) and time.monotonic() < patience:
        time.sleep(0.1)
    assert not any(_is_alive(pid) for pid in children)
    done = run(photos, out, network)
    assert (done.kept, done.written + len(done.failed)) == (
        len(there),
        PHOTOS + 3 - len(there) + len(set(there) & set(done.failed)),
    )
    assert_complete(out, photos, network)


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_script_without_a_guard_is_told_so(photos, tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import sys\nfrom doap.baselines import orb\nfrom doap.scale import extract_folder\n"
        "extract_folder(sys.argv[1], sys.argv[2], orb(), descriptor_name='orb')\n"
    )
    ran = subprocess.run([sys.executable, script, photos, tmp_path / "f"], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert "needs `if __name__ == '__main__':`" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", BASELINES)
def test_every_peer_gets_to_other_processes(name):
    peer = BASELINES[name]()
    arrived = pickle.loads(pickle.dumps(sendable(peer, None)))
    assert (arrived.name, fingerprint(arrived)) == (peer.name, fingerprint(peer))


@pytest.mark.parametrize("name", DETECTORS)
def test_every_detector_gets_to_other_processes(name, photos):
    image = read_grey(photos / "0" / "00.png")
    detector = DETECTORS[name]()
    for there, here in zip(
        pickle.loads(pickle.dumps(detector)).detect(image, 9), detector.detect(image, 9), strict=True
    ):
        np.testing.assert_array_equal(there, here)


def test_a_peer_with_other_settings_is_not_taken_for_its_namesake():
    from doap.baselines import rootsift

    with pytest.raises(
        ArgumentError, match="expected one that can be pickled, got a OpenCVBaseline that cannot; give reopen="
    ):
        sendable(rootsift(patch_size=64), None)
    arrived = pickle.loads(pickle.dumps(sendable(rootsift(patch_size=64), rootsift)))
    assert arrived.patch_size == 32


def test_bad_arguments_are_refused_before_anything_is_written(photos, network, tmp_path):
    out = tmp_path / "f"
    (tmp_path / "none").mkdir()
    for images, settings, error, words in [
        (photos, {"engine": "dask"}, ArgumentError, "engine: expected one of local, ray"),
        (photos, {"workers": 0}, ArgumentError, "workers: expected 1 or more"),
        (photos, {"address": "auto"}, ArgumentError, "address: expected none without the engine ray"),
        (photos, {"stored": "bits"}, ArgumentError, "stored: expected bits for binary"),
        (photos, {"max_keypoints": 0}, ArgumentError, "max_keypoints"),
        (tmp_path / "none", {}, DataError, "expected images"),
    ]:
        with pytest.raises(error, match=words):
            run(images, out, network, **settings)
    with pytest.raises(ArgumentError, match="expected frames that COLMAP finds"):
        run(photos, out, BASELINES["colmap-sift"](), detector=sift())
    assert not out.exists()


def test_a_descriptor_with_keypoints_of_its_own_brings_its_detector(photos, tmp_path):
    images = tmp_path / "images"
    write_photo(images / "a.png", 1, 100, 120)
    run(images, tmp_path / "f", BASELINES["colmap-sift"]())
    assert FeatureSet(tmp_path / "f").extractor.detector == "colmap"
    assert_complete(tmp_path / "f", images, BASELINES["colmap-sift"](), colmap())

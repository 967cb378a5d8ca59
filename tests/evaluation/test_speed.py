"""The benchmark `speed`: what is timed, with how many threads, and how times are combined."""

import time

import cv2
import numpy as np
import pytest
import torch

import doap
from doap._support.errors import DataError
from doap.baselines import BASELINES
from doap.describer import PatchDescriber
from doap.detectors import sift
from doap.evaluation.candidates import open_candidate
from doap.evaluation.speed import PhotoTimes, SpeedBenchmark, _figures, one_thread
from doap.extractor import KeypointExtractor
from doap.types import Features, Matches
from oracles.photos import write_photo

COLMAP = ("colmap-sift", "dsp-sift")
FIGURES = ["ms per 1,000 keypoints", "× SIFT", "s per image", "s per pair"]


class Sleeping(PatchDescriber):
    """Describe each call in at least a given time, and record the number of threads."""

    patch_size, dim, kind, extent = 32, 1, "real", 1.0

    def __init__(self, seconds):
        self.seconds, self.calls, self.threads = seconds, 0, set()

    def describe_patches(self, patches):
        self.calls += 1
        self.threads.add((torch.get_num_threads(), cv2.getNumThreads()))
        time.sleep(self.seconds)
        return patches.mean(dim=(2, 3))


class SleepingPipeline(KeypointExtractor):
    """A pipeline with SIFT keypoints that sleeps in each of its steps."""

    def __init__(self, seconds):
        super().__init__(Sleeping(seconds), sift())
        self.seconds, self.matcher = seconds, self

    def match(self, features0, features1):
        time.sleep(2 * self.seconds)
        return Matches(np.zeros((0, 2), np.int64), np.zeros(0, np.float32))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(3):
        write_photo(folder / f"{seed}.png", seed, 96, 128)
    return folder


@pytest.fixture(scope="module")
def benchmark(photos):
    return SpeedBenchmark(photos, max_keypoints=40, repeats=2)


def values(scores):
    return {figure.name: figure.total.value for figure in scores.figures}


def test_description_takes_at_least_the_time_of_the_describer(benchmark):
    found = values(benchmark.evaluate(open_candidate(Sleeping(0.02)), seed=0))
    keypoints = sum(len(photo.frames) for photo in benchmark.photos)
    assert found["ms per 1,000 keypoints"] >= 3 * 0.02 / keypoints * 1e6
    assert found["s per image"] >= 0.02


def test_a_pipeline_is_timed_as_a_whole_and_with_its_own_matcher(benchmark):
    found = values(benchmark.evaluate(open_candidate(SleepingPipeline(0.01)), seed=0))
    keypoints = sum(len(photo.frames) for photo in benchmark.photos)
    assert found["s per pair"] >= 0.02
    # One pass detects and describes, so both figures are the same time.
    assert found["ms per 1,000 keypoints"] * keypoints / 1e6 == pytest.approx(3 * found["s per image"])


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in COLMAP])
def test_native_calls_return_descriptors_of_the_same_form(photos, name):
    image = cv2.imread(str(photos / "0.png"), cv2.IMREAD_GRAYSCALE)
    keypoints = cv2.SIFT.create(nfeatures=40).detect(image)
    describer = doap.load(name)
    described = describer.compute_natively(image, keypoints)
    assert 0 < len(described) <= len(keypoints)
    assert described.shape[1] == (describer.dim if describer.kind == "real" else describer.dim // 8)


def test_figures_are_ratios_of_sums():
    """Compare with a computation by hand: photos with more keypoints count more."""

    def times(keypoints, description, reference, shared):
        frames = np.zeros((keypoints, 2, 3), np.float32)
        features = Features(frames, frames[:, 0, 0], torch.zeros(keypoints, 4), (10, 10))
        return PhotoTimes(features, description, 0.5, reference, shared)

    figures = _figures([times(100, 0.2, 0.1, 100), times(300, 0.4, 0.3, 100)], [1.0, 2.0], seed=0)
    found = {figure.name: figure.total.value for figure in figures}
    assert found["ms per 1,000 keypoints"] == pytest.approx(1000 * 0.6 / 400 * 1000)
    assert found["× SIFT"] == pytest.approx((0.6 / 400) / (0.4 / 200))
    assert found["s per image"] == pytest.approx((0.7 + 0.9) / 2)
    assert found["s per pair"] == pytest.approx(1.5)


def test_one_photo_or_none_with_keypoints_is_refused(tmp_path):
    photo = write_photo(tmp_path / "a.png", 0, 64, 64)
    with pytest.raises(DataError):
        SpeedBenchmark(tmp_path)
    cv2.imwrite(str(photo.with_name("b.png")), np.full((64, 64), 9, np.uint8))
    with pytest.raises(DataError):
        SpeedBenchmark(tmp_path)


def test_one_thread_is_used_and_the_number_is_restored_even_after_an_error(photos, benchmark):
    before = torch.get_num_threads(), cv2.getNumThreads()
    describer = Sleeping(0)
    candidate = open_candidate(describer)
    describer.threads.clear()
    benchmark.evaluate(candidate, seed=0)
    assert describer.threads == {(1, 1)}
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert (torch.get_num_threads(), cv2.getNumThreads()) == before

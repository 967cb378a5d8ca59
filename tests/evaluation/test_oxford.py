"""The benchmark `oxford`: its metrics, oracles that score 1, controls at chance level, and unusual images."""

import functools
import shutil

import cv2
import numpy as np
import pytest
import torch

from doap._support.random_streams import stream
from doap.baselines import rootsift
from doap.describer import Describer
from doap.evaluation.bootstrap import central_interval
from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.image_pair import RECALLS, score_one_to_one
from doap.evaluation.overlap import overlap_errors
from doap.evaluation.oxford import OxfordBenchmark
from doap.images import read_grey, scales, transform_frames
from oracles.photos import write_photo

HEIGHT, WIDTH = 200, 260


def homographies():
    """Return (6, 3, 3): the identity, then growing rotations and tilts about the centre."""
    to_middle = np.array([[1, 0, -WIDTH / 2], [0, 1, -HEIGHT / 2], [0, 0, 1]])
    made = [np.eye(3)]
    for step in range(1, 6):
        turn = np.radians(8 * step)
        view = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [1e-4 * step, 0, 1]])
        made.append(np.linalg.inv(to_middle) @ view @ to_middle)
    return np.stack(made)


def write_sequence(folder, to_each, photo=None, hpatches=False):
    """Write a photo, its views by (6, 3, 3) homographies, and the homographies, in either layout."""
    photo = read_grey(write_photo(folder / "made.png", 0, HEIGHT, WIDTH)) if photo is None else photo
    (folder / "made.png").unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    for number, homography in enumerate(to_each, start=1):
        view = cv2.warpPerspective(photo, homography, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REFLECT)
        cv2.imwrite(str(folder / f"{'' if hpatches else 'img'}{number}.png"), view)
        if number > 1:
            np.savetxt(folder / (f"H_1_{number}" if hpatches else f"H1to{number}p"), homography)
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_sequence(tmp_path_factory.mktemp("set") / "blobs", homographies())


@pytest.fixture(scope="module")
def benchmark(root):
    return OxfordBenchmark(root, max_keypoints=300)


@pytest.fixture(scope="module")
def scores(benchmark):
    return benchmark.evaluate(open_candidate(rootsift()), seed=0)


@pytest.fixture(scope="module")
def of_sequences(tmp_path_factory):
    """Return the benchmark of a number of sequences, the first easy and the last hard, and RootSIFT's scores."""

    @functools.cache
    def evaluated(count):
        folder = tmp_path_factory.mktemp(f"{count} sequences")
        for number in range(count):
            views = homographies() + np.array([[0, 0, 0], [0, 0, 0], [1.5e-4 * number, 0, 0]])
            views[0] = np.eye(3)
            write_sequence(folder / f"s{number}", views)
        benchmark = OxfordBenchmark(folder, max_keypoints=150)
        return benchmark, benchmark.evaluate(open_candidate(rootsift()), seed=0)

    return evaluated


def photos(benchmark):
    """Return the six photos of a sequence."""
    return [benchmark.pairs[0].photos[0], *(pair.photos[1] for pair in benchmark.pairs)]


def value(scores, name):
    return next(figure.total.value for figure in scores.figures if figure.name == name)


class Lookup:
    """A describer of frames that returns given descriptors for each image."""

    dim, kind, extent, ratio = 64, "real", 1.0, 0.9

    def __init__(self, benchmark, known):
        self.known = {
            photo.image.tobytes(): descriptors for photo, descriptors in zip(photos(benchmark), known, strict=True)
        }

    def describe(self, image, frames):
        return torch.from_numpy(self.known[image.tobytes()])

    def fingerprint(self):
        return "lookup"


def test_intervals_resample_sequences_and_then_their_pairs(of_sequences):
    """The oracle pools the pairs of each resample and takes the mean."""
    benchmark, scores = of_sequences(4)
    assert benchmark.protocol["resampled"] == "sequences, and pairs of images within sequences"
    precision = [found.matches.average_precision for found in benchmark._score_pairs(open_candidate(rootsift()))]
    generator, means = stream(0, "bootstrap"), []
    for _ in range(400):
        drawn = []
        for sequence in generator.integers(4, size=4):
            drawn += [precision[5 * sequence + pair] for pair in generator.integers(5, size=5)]
        means.append(np.mean(drawn))
    total = scores.figures[0].total
    assert total.resampled == pytest.approx(means, abs=1e-6)
    assert (total.low, total.high) == pytest.approx(central_interval(means))
    assert total.value == pytest.approx(np.mean(precision))
    for figure in scores.figures:
        assert figure.total.units == 4
        assert figure.total.low <= figure.total.value <= figure.total.high


def test_average_precision_equals_the_definition(benchmark):
    """Sort all distances, match greedily, compute the overlap of every match, and count precision."""
    baseline = rootsift()
    pair = benchmark.pairs[1]
    described = [baseline.describe(photo.image, photo.frames) for photo in pair.photos]
    shared0, shared1 = (
        one[torch.from_numpy(shared)].double() for one, shared in zip(described, pair.shared, strict=True)
    )
    distances = (shared0[:, None] - shared1).norm(dim=2).numpy()
    frames0, frames1 = (
        photo.frames[shared].astype(float) for photo, shared in zip(pair.photos, pair.shared, strict=True)
    )
    carried = transform_frames(frames1, np.linalg.inv(pair.homography)).astype(float)
    used0, used1, hits, gains = set(), set(), 0, []
    for index in np.argsort(distances, axis=None):
        item0, item1 = (int(one) for one in np.unravel_index(index, distances.shape))
        if item0 in used0 or item1 in used1:
            continue
        used0.add(item0)
        used1.add(item1)
        region0, region1 = frames0[[item0]], carried[[item1]]
        for region in (region0, region1):
            region[:, :, :2] *= 30 / scales(frames0[[item0]])
        if overlap_errors(region0, region1)[0] <= 0.4:
            hits += 1
            gains.append(hits / len(used0))
    found = score_one_to_one(pair, *described)
    assert found.average_precision == pytest.approx(sum(gains) / len(pair.positives), abs=1e-3)
    assert found.recall == pytest.approx(hits / len(pair.positives))


def test_true_correspondences_score_one(benchmark):
    """Corresponding keypoints get the same random descriptor."""
    random = np.random.default_rng(0)
    names = [random.normal(size=(len(photo.frames), 64)).astype(np.float32) for photo in photos(benchmark)]
    for number, pair in enumerate(benchmark.pairs, start=1):
        own0, own1 = (shared[pair.positives[:, side]] for side, shared in enumerate(pair.shared))
        names[number][own1] = names[0][own0]
    oracle = Lookup(benchmark, names)
    assert isinstance(oracle, Describer)
    scores = benchmark.evaluate(open_candidate(oracle), seed=0)
    assert value(scores, "mAP") == 1
    assert value(scores, "recall") == 1
    assert [y for _, y in scores.curves[0].points] == [1] * len(RECALLS)
    assert scores.histogram.matches[0] == 1


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_score_chance(benchmark, name):
    """The chance level of precision is the share of all keypoint pairs that overlap, about 0.01."""
    share = np.mean([len(pair.overlapping) / (len(pair.shared[0]) * len(pair.shared[1])) for pair in benchmark.pairs])
    assert share < 0.015
    scores = benchmark.evaluate(open_candidate(CONTROLS[name]()), seed=0)
    assert value(scores, "mAP") < share
    assert value(scores, "recall") < 6 * share
    assert value(scores, "MMA@3") < 6 * share
    assert value(scores, "homography AUC@5") < 0.05


def test_equal_descriptors_of_equal_images_score_chance(tmp_path):
    """The strongest keypoints of equal images correspond; ties must not exploit their order."""
    benchmark = OxfordBenchmark(write_sequence(tmp_path / "same", np.tile(np.eye(3), (6, 1, 1))), max_keypoints=200)
    constant = benchmark.evaluate(open_candidate(CONTROLS["constant"]()), seed=0)
    assert value(constant, "mAP") < 0.01
    assert value(constant, "MMA@3") == 0
    assert value(benchmark.evaluate(open_candidate(rootsift()), seed=0), "mAP") > 0.99


def test_an_image_without_keypoints_has_no_matches(root, tmp_path):
    folder = shutil.copytree(root, tmp_path / "one flat")
    cv2.imwrite(str(folder / "img3.png"), np.full((HEIGHT, WIDTH), 128, np.uint8))
    benchmark = OxfordBenchmark(folder, max_keypoints=200)
    scores = benchmark.evaluate(open_candidate(rootsift()), seed=0)
    assert benchmark.protocol["pairs without correspondences"] == "1, left out of mAP and recall"
    assert [figure.parts["one flat"].units for figure in scores.figures] == [4, 4, 5, 5, 5, 5]
    assert value(scores, "mAP") > 0.5


def test_checksum_covers_images_and_homographies_but_not_paths(root, benchmark, tmp_path):
    folder = shutil.copytree(root, tmp_path / "moved")
    assert OxfordBenchmark(folder, max_keypoints=50).dataset.sha256 == benchmark.dataset.sha256
    np.savetxt(folder / "H1to3p", homographies()[2] + 1e-9)
    moved = OxfordBenchmark(folder, max_keypoints=50).dataset.sha256
    shutil.copyfile(folder / "img5.png", folder / "img4.png")
    assert len({benchmark.dataset.sha256, moved, OxfordBenchmark(folder, max_keypoints=50).dataset.sha256}) == 3

"""Image sequences: what mAP, MMA and the rest are, who must score 1 and who must score chance, and odd images."""

from __future__ import annotations

import dataclasses
import json
import shutil

import cv2
import numpy as np
import pytest
import torch

from doap.baselines import rootsift, teblid
from doap.describer import ImageDescriber, from_function
from doap.detectors import harris_laplace, sift
from doap.errors import ArgumentError, DataError
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.controls import CONTROLS
from doap.evaluation.image_pair import RECALLS, find
from doap.evaluation.overlap import overlap_errors
from doap.evaluation.oxford import open_oxford
from doap.images import centres, extract_patches, read_grey, scales, transform_frames
from oracles.photos import write_photo

HEIGHT, WIDTH = 200, 260


def homographies():
    """(6, 3, 3): the identity, then turns and slants about the middle that grow."""
    to_middle = np.array([[1, 0, -WIDTH / 2], [0, 1, -HEIGHT / 2], [0, 0, 1]])
    made = [np.eye(3)]
    for step in range(1, 6):
        turn = np.radians(8 * step)
        view = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [1e-4 * step, 0, 1]])
        made.append(np.linalg.inv(to_middle) @ view @ to_middle)
    return np.stack(made)


def write_sequence(folder, to_each, photo=None, hpatches=False):
    """A photo, views of it by (6, 3, 3) homographies, and these, in either layout."""
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
    return open_oxford(root, max_keypoints=300)


@pytest.fixture(scope="module")
def judged(benchmark):
    return benchmark.judge(CachedDescriber(rootsift()), seed=0)


def photos(benchmark):
    """The six of one sequence."""
    return [benchmark.pairs[0].photos[0], *(pair.photos[1] for pair in benchmark.pairs)]


def value(judged, name):
    return next(figure.total.value for figure in judged.figures if figure.name == name)


class Knowing:
    """A describer of frames that is told what to say of each image."""

    patch_size, dim, kind, extent, detector = 32, 64, "real", 1.0, sift()

    def __init__(self, benchmark, known):
        self.known = {photo.image.tobytes(): told for photo, told in zip(photos(benchmark), known, strict=True)}

    def describe(self, patches):
        return torch.zeros(len(patches), self.dim)

    def describe_frames(self, image, frames):
        # Of the picture that fingerprints are taken of, it knows nothing.
        nothing = np.zeros((len(frames), self.dim), np.float32)
        return torch.from_numpy(self.known.get(image.tobytes(), nothing))


def test_figures_are_named_and_the_first_is_map(judged):
    assert [figure.name for figure in judged.figures] == [
        "mAP",
        "recall",
        "MMA@3",
        "homography AUC@1",
        "homography AUC@3",
        "homography AUC@5",
    ]
    for figure in judged.figures:
        assert (figure.better, figure.unit, set(figure.parts)) == ("higher", "pairs of images", {"blobs"})
        assert 0 <= figure.total.low <= figure.total.value <= figure.total.high <= 1
        assert figure.total.units == 5


def test_a_good_descriptor_matches_most(judged):
    assert value(judged, "mAP") > 0.5
    assert value(judged, "MMA@3") > 0.5
    assert value(judged, "homography AUC@5") > 0.7


def test_judging_twice_is_judging_once(benchmark, judged):
    again = benchmark.judge(CachedDescriber(rootsift()), seed=0)
    assert (again.figures, again.curves, again.histogram) == (judged.figures, judged.curves, judged.histogram)


def test_average_precision_is_that_of_the_definition(benchmark):
    """Sort all distances, walk; overlap by looking at every match; AP by counting at each right one."""
    peer = rootsift()
    pair = benchmark.pairs[1]
    described = [peer.describe_frames(photo.image, photo.frames) for photo in pair.photos]
    seen0, seen1 = (one[torch.from_numpy(seen)].double() for one, seen in zip(described, pair.seen, strict=True))
    distances = (seen0[:, None] - seen1).norm(dim=2).numpy()
    frames0, frames1 = (photo.frames[seen].astype(float) for photo, seen in zip(pair.photos, pair.seen, strict=True))
    carried = transform_frames(frames1, np.linalg.inv(pair.homography)).astype(float)
    used0, used1, hits, gains = set(), set(), 0, []
    for place in np.argsort(distances, axis=None):
        item0, item1 = (int(one) for one in np.unravel_index(place, distances.shape))
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
    found = find(pair, *described)
    assert found.average_precision == pytest.approx(sum(gains) / len(pair.positives), abs=1e-3)
    assert found.recall == pytest.approx(hits / len(pair.positives))


def test_true_partners_score_one(benchmark):
    """Each keypoint of image 1 has a name, which its partners in the other images bear too."""
    random = np.random.default_rng(0)
    names = [random.normal(size=(len(photo.frames), 64)).astype(np.float32) for photo in photos(benchmark)]
    for number, pair in enumerate(benchmark.pairs, start=1):
        own0, own1 = (seen[pair.positives[:, side]] for side, seen in enumerate(pair.seen))
        names[number][own1] = names[0][own0]
    oracle = Knowing(benchmark, names)
    assert isinstance(oracle, ImageDescriber)
    judged = benchmark.judge(CachedDescriber(oracle), seed=0)
    assert value(judged, "mAP") == 1
    assert value(judged, "recall") == 1
    assert [y for _, y in judged.curves[0].points] == [1] * len(RECALLS)
    assert judged.histogram.matches[0] == 1


def test_true_places_score_nearly_one(benchmark):
    """Where a keypoint lies in image 1, and how large it is there."""
    known = []
    for photo, homography in zip(photos(benchmark), homographies(), strict=True):
        there = transform_frames(photo.frames, np.linalg.inv(homography))
        known.append(np.column_stack([centres(there), 20 * np.log(scales(there)), np.zeros((len(there), 61))]))
    judged = benchmark.judge(CachedDescriber(Knowing(benchmark, [one.astype(np.float32) for one in known])), seed=0)
    assert value(judged, "mAP") > 0.97
    assert value(judged, "homography AUC@3") > 0.8


@pytest.mark.parametrize("name", CONTROLS)
def test_descriptors_that_know_nothing_score_chance(benchmark, name):
    """Chance is a precision of 0.01: this many of all pairs of keypoints overlap."""
    share = np.mean([len(pair.overlapping) / (len(pair.seen[0]) * len(pair.seen[1])) for pair in benchmark.pairs])
    assert share < 0.015
    judged = benchmark.judge(CachedDescriber(CONTROLS[name]()), seed=0)
    assert value(judged, "mAP") < share
    assert value(judged, "recall") < 6 * share
    assert value(judged, "MMA@3") < 6 * share
    assert value(judged, "homography AUC@5") < 0.05


def test_equal_descriptors_of_equal_images_score_chance(tmp_path):
    """The strongest keypoint of one image is the strongest of the other, and ties must not tell."""
    benchmark = open_oxford(write_sequence(tmp_path / "same", np.tile(np.eye(3), (6, 1, 1))), max_keypoints=200)
    constant = benchmark.judge(CachedDescriber(CONTROLS["constant"]()), seed=0)
    assert value(constant, "mAP") < 0.01
    assert value(constant, "MMA@3") == 0
    assert value(benchmark.judge(CachedDescriber(rootsift()), seed=0), "mAP") > 0.99


def test_both_layouts_give_the_same(benchmark, judged, tmp_path):
    other = open_oxford(write_sequence(tmp_path / "v_blobs", homographies(), hpatches=True), max_keypoints=300)
    assert other.dataset.sha256 == benchmark.dataset.sha256
    assert value(other.judge(CachedDescriber(rootsift()), seed=0), "mAP") == value(judged, "mAP")


def test_bits_are_judged_by_hamming(benchmark):
    judged = benchmark.judge(CachedDescriber(teblid()), seed=0)
    assert value(judged, "mAP") > 0.3
    assert judged.gallery.best_distances[0] == round(float(judged.gallery.best_distances[0]))


def test_figures_and_protocol_can_be_written_as_json(benchmark, judged):
    parts = (*judged.figures, *judged.curves, judged.histogram)
    text = json.dumps([benchmark.protocol, *(dataclasses.asdict(part) for part in parts)], allow_nan=False)
    assert '"overlap error at most": 0.4' in text


def test_curves_fall_or_rise(judged):
    by_recall, by_pixels = judged.curves
    assert [x for x, _ in by_pixels.points] == list(range(1, 11))
    assert (np.diff([y for _, y in by_pixels.points]) >= 0).all()
    assert by_pixels.points[2][1] == value(judged, "MMA@3")
    assert by_recall.points[0][1] > 0.9 > by_recall.points[-1][1]


def test_corresponding_keypoints_are_nearer_than_others(judged):
    middles = np.add(judged.histogram.edges[1:], judged.histogram.edges[:-1]) / 2
    assert sum(judged.histogram.matches) == pytest.approx(1)
    assert sum(judged.histogram.others) == pytest.approx(1)
    assert middles @ judged.histogram.matches < 0.7 * (middles @ judged.histogram.others)


def test_gallery_shows_patches_of_the_keypoints(benchmark):
    of_patches = from_function(rootsift().describe)
    gallery = benchmark.judge(CachedDescriber(of_patches), seed=0).gallery
    assert gallery.best.shape == (5, 2, 32, 32)
    assert gallery.worst.shape == (len(gallery.worst_distances), 3, 32, 32)
    assert (np.diff(gallery.best_distances) >= 0).all()
    assert (np.diff(gallery.worst_distances[:, 1]) >= 0).all()
    of_image_1 = extract_patches(photos(benchmark)[0].image, photos(benchmark)[0].frames, 32)
    for query in (*gallery.best[:, 0], *gallery.worst[:, 0]):
        assert (of_image_1 == query).all(axis=(1, 2)).any()
    described = of_patches.describe(torch.from_numpy(gallery.worst.reshape(-1, 1, 32, 32)) / 255)
    query, *others = described.view(-1, 3, 128).unbind(1)
    apart = torch.stack([(query - other).norm(dim=1) for other in others], dim=1)
    np.testing.assert_allclose(gallery.worst_distances, apart, atol=1e-3)


def test_another_detector_may_look(root):
    benchmark = open_oxford(root, detector=harris_laplace(), max_keypoints=100)
    assert (benchmark.protocol["detector"], benchmark.protocol["keypoints of an image"]) == ("harris-laplace", 100)
    assert all(len(photo.frames) <= 100 for photo in photos(benchmark))


def test_an_image_without_keypoints_has_no_matches(root, tmp_path):
    folder = shutil.copytree(root, tmp_path / "one flat")
    cv2.imwrite(str(folder / "img3.png"), np.full((HEIGHT, WIDTH), 128, np.uint8))
    benchmark = open_oxford(folder, max_keypoints=200)
    judged = benchmark.judge(CachedDescriber(rootsift()), seed=0)
    assert benchmark.protocol["pairs without correspondences"] == "1, left out of mAP and recall"
    assert [figure.total.units for figure in judged.figures] == [4, 4, 5, 5, 5, 5]
    assert value(judged, "mAP") > 0.5


def test_images_that_have_nothing_in_common_are_refused(root, tmp_path):
    far = np.eye(3)
    far[0, 2] = 10 * WIDTH
    folder = shutil.copytree(root, tmp_path / "apart")
    for number in range(2, 7):
        np.savetxt(folder / f"H1to{number}p", far)
    with pytest.raises(DataError, match="apart: expected keypoints of sift that are found again in another image, got"):
        open_oxford(folder, max_keypoints=100)


def test_one_keypoint_of_an_image_is_enough(tmp_path):
    benchmark = open_oxford(write_sequence(tmp_path / "same", np.tile(np.eye(3), (6, 1, 1))), max_keypoints=1)
    judged = benchmark.judge(CachedDescriber(rootsift()), seed=0)
    assert (value(judged, "mAP"), value(judged, "MMA@3"), value(judged, "homography AUC@5")) == (1, 1, 0)
    assert judged.histogram is None
    assert judged.gallery.worst.shape == (0, 3, 32, 32)


def test_a_homography_to_infinity_is_no_obstacle(root, benchmark, tmp_path):
    folder = shutil.copytree(root, tmp_path / "infinite")
    image = read_grey(folder / "img1.png")
    x = float(centres(photos(benchmark)[0].frames)[0, 0])
    np.savetxt(folder / "H1to4p", [[1, 0, 0], [0, 1, 0], [-1 / x, 0, 1]])
    cv2.imwrite(str(folder / "img4.png"), image)
    judged = open_oxford(folder, max_keypoints=300).judge(CachedDescriber(rootsift()), seed=0)
    assert all(np.isfinite(figure.total.value) for figure in judged.figures)


def test_images_of_other_sizes_are_compared_where_both_see(root, tmp_path):
    folder = shutil.copytree(root, tmp_path / "sizes")
    half = read_grey(folder / "img2.png")[:, : WIDTH // 2]
    cv2.imwrite(str(folder / "img2.png"), half)
    pair = open_oxford(folder, max_keypoints=300).pairs[0]
    points = centres(transform_frames(pair.photos[0].frames[pair.seen[0]], pair.homography))
    assert points[:, 0].max() <= WIDTH // 2 - 0.5
    assert len(pair.positives) > 20


def test_checksum_tells_images_and_homographies_but_not_where_they_lie(root, benchmark, tmp_path):
    folder = shutil.copytree(root, tmp_path / "moved")
    assert open_oxford(folder, max_keypoints=50).dataset.sha256 == benchmark.dataset.sha256
    np.savetxt(folder / "H1to3p", homographies()[2] + 1e-9)
    moved = open_oxford(folder, max_keypoints=50).dataset.sha256
    shutil.copyfile(folder / "img5.png", folder / "img4.png")
    assert len({benchmark.dataset.sha256, moved, open_oxford(folder, max_keypoints=50).dataset.sha256}) == 3


def test_progress_names_the_sequences(root):
    told = []
    open_oxford(root, max_keypoints=50, progress=lambda *one: told.append(one))
    assert told == [(0, 1, "blobs"), (1, 1, "done")]


def test_bad_settings_are_refused(root):
    with pytest.raises(ArgumentError, match="most: expected 1 keypoint of an image or more, got 0"):
        open_oxford(root, max_keypoints=0)
    with pytest.raises(ArgumentError, match="threshold: expected an overlap error above 0 and up to"):
        open_oxford(root, max_keypoints=50, threshold=0.7)


@pytest.mark.data
def test_graf_is_matched(data_folder):
    benchmark = open_oxford(data_folder / "oxford_affine" / "graf", max_keypoints=500)
    assert 100 < len(benchmark.pairs[0].positives) < 500
    judged = benchmark.judge(CachedDescriber(rootsift()), seed=0)
    assert 0.3 < value(judged, "mAP") < 0.9
    assert 0.1 < value(judged, "MMA@3") < 0.6
    assert value(judged, "homography AUC@5") > 0.1


def test_a_function_of_patches_is_judged(benchmark):
    """Even the mean of a patch says a little."""
    judged = benchmark.judge(CachedDescriber(from_function(lambda patches: patches.mean(dim=(2, 3)))), seed=0)
    assert 0 < value(judged, "mAP") < 0.1

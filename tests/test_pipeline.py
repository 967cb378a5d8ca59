"""Extraction, matching and verification, also for unusual, damaged, tiny and huge images."""

import json
import struct
import sys
import zlib
from dataclasses import replace
from itertools import combinations

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

import doap
from doap._support.errors import ArgumentError, ShapeError
from doap.baselines import rootsift, teblid
from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.extractor import KeypointExtractor, extract_sample
from doap.images import read_grey
from oracles.interpreter import run_python
from oracles.photos import write_photo


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_photo(tmp_path_factory.mktemp("photo") / "a.png", seed=0, height=120, width=160)


@pytest.fixture(scope="module")
def grey(photo):
    return read_grey(photo)


@pytest.fixture(scope="module")
def features(grey):
    return doap.extract(grey, rootsift(), max_keypoints=100)


@pytest.mark.parametrize("describer", [rootsift, teblid])
def test_an_image_without_keypoints_has_zero_features_of_the_right_width(describer):
    none = doap.extract(np.zeros((120, 160), np.uint8), describer())
    width = 128 if describer is rootsift else 32
    assert (none.frames.shape, none.descriptors.shape) == ((0, 2, 3), (0, width))
    some = doap.extract(np.random.default_rng(0).integers(0, 256, (60, 60), np.uint8), describer())
    for pair in ((none, none), (none, some), (some, none)):
        matches = doap.match(*pair)
        assert matches.indices.shape == (0, 2)
        view = doap.verify(*pair, matches)
        assert (view.matrix, view.inliers.shape) == (None, (0,))


def test_a_large_image_is_downscaled_and_its_frames_are_in_original_pixels(grey):
    large = cv2.resize(grey, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC)
    whole, small = doap.extract(grey, "rootsift"), doap.extract(large, "rootsift", max_image_size=160)
    assert small.image_size == large.shape
    assert abs(len(small) - len(whole)) < 0.2 * len(whole)
    assert small.keypoints.max() > 2 * max(grey.shape)


def test_match_images_is_extract_match_and_verify(photo, grey):
    found = doap.match_images(photo, grey[:, 30:].copy(), "rootsift", max_keypoints=200, model="homography", ratio=0.9)
    features0, features1 = (doap.extract(one, rootsift(), max_keypoints=200) for one in (grey, grey[:, 30:].copy()))
    matches = doap.match(features0, features1, ratio=0.9)
    geometry = doap.verify(features0, features1, matches, model="homography")
    assert np.array_equal(found.image0, grey)
    assert np.array_equal(found.features1.frames, features1.frames)
    assert np.array_equal(found.matches.indices, matches.indices)
    assert np.array_equal(found.geometry.inliers, geometry.inliers)
    np.testing.assert_allclose(found.geometry.matrix, [[1, 0, -30], [0, 1, 0], [0, 0, 1]], atol=0.2)


def test_without_a_ratio_match_images_uses_that_of_the_descriptor_and_a_ratio_of_one_omits_the_test(grey):
    describer, other = rootsift(), np.random.default_rng(0).integers(0, 256, grey.shape, np.uint8)
    describer.ratio = 0.97
    by_default, omitted = (doap.match_images(grey, other, describer, ratio=ratio) for ratio in (None, 1))
    features = by_default.features0, by_default.features1
    expected, every = doap.match(*features, ratio=0.97), doap.match(*features)
    assert np.array_equal(by_default.matches.indices, expected.indices)
    assert np.array_equal(omitted.matches.indices, every.indices)
    assert 0 < len(expected) < len(every)


def test_features_of_different_descriptors_are_not_matched(grey):
    weights = [Descriptor.build("l2net") for _ in range(2)]
    describers = [rootsift(), "sift", "doap-128", *weights]
    found = [doap.extract(grey, describer, max_keypoints=5) for describer in describers]
    for first, second in combinations(found, 2):
        with pytest.raises(ArgumentError):
            doap.match(first, second)
        # Features of unknown origin are matched.
        doap.match(first, replace(second, fingerprint=None))


def test_features_of_the_same_descriptor_match_however_it_was_loaded(grey):
    first, second = (
        doap.extract(grey, doap.load("doap-128", precision=precision), detector=detector, max_keypoints=20)
        for precision, detector in (("float32", "sift"), ("bfloat16", "orb"))
    )
    assert first.fingerprint == second.fingerprint is not None
    assert len(doap.match(first, second.strongest(10))) > 0


def test_the_extent_of_a_descriptor_enlarges_its_patches(grey):
    torch.manual_seed(0)
    plain = Descriptor.build(dim=16).eval()
    wide = Descriptor(plain.network, 32, extent=1.5).eval()
    frames, _ = sift().detect(grey, 20)
    larger = frames.copy()
    larger[:, :, :2] *= 1.5
    assert torch.equal(wide.describe(grey, frames), plain.describe(grey, larger))
    features = doap.extract(grey, wide, max_keypoints=20)
    assert np.array_equal(features.frames, frames)
    assert torch.equal(features.descriptors, plain.describe(grey, larger))
    assert wide.fingerprint() != plain.fingerprint()


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (2, 2), (5, 7)])
def test_an_image_of_a_few_pixels_has_no_keypoints(shape):
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    tiny = doap.extract(image, rootsift())
    assert (len(tiny), tiny.image_size) == (0, shape)


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (np.zeros((0, 9), np.uint8), ArgumentError),
        *((np.zeros(shape, np.uint8), ShapeError) for shape in ((3, 9, 9), (9, 9, 2), (1, 9, 9, 3), (9,))),
        (np.zeros((9, 9), np.float32), ArgumentError),
        (np.zeros((9, 9, 3), np.float32), ArgumentError),
        (torch.zeros(9, 9, dtype=torch.uint8), ArgumentError),
        (None, ArgumentError),
        ([[0, 1], [1, 0]], ArgumentError),
    ],
)
def test_an_image_of_the_wrong_size_or_type_is_an_error(image, error):
    with pytest.raises(error):
        doap.extract(image, rootsift())


def test_pillow_images_and_colour_arrays_are_accepted(grey, features):
    colour = cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR)
    images = [Image.fromarray(grey), Image.fromarray(colour), grey[:, :, None], colour, np.dstack([colour, grey])]
    for image in images:
        assert np.array_equal(doap.extract(image, rootsift(), max_keypoints=100).frames, features.frames)
        assert len(doap.match_images(image, grey, "rootsift", max_keypoints=20).matches) == 20


def test_keypoints_are_detected_where_the_mask_is_not_black(grey, features, tmp_path):
    mask = np.zeros(grey.shape, np.uint8)
    mask[20:90, 50:140] = 1
    path = tmp_path / "mask.png"
    cv2.imwrite(str(path), mask)
    everywhere = doap.extract(grey, rootsift(), max_keypoints=10_000)
    x, y = np.rint(everywhere.keypoints).astype(int).T
    inside = mask[y.clip(0, 119), x.clip(0, 159)] > 0
    assert 0 < inside.sum() < len(everywhere)
    for given in (
        mask,
        mask > 0,
        mask.astype(np.uint16),
        path,
        Image.fromarray(mask),
        cv2.cvtColor(mask, cv2.COLOR_GRAY2BGR),
    ):
        found = doap.extract(grey, rootsift(), max_keypoints=10_000, mask=given)
        assert np.array_equal(found.frames, everywhere.frames[inside])
        assert torch.equal(found.descriptors, everywhere.descriptors[inside])
    # The maximum applies after the mask.
    few = doap.extract(grey, rootsift(), max_keypoints=20, mask=mask)
    assert np.array_equal(few.frames, everywhere.frames[inside][:20])
    assert len(doap.extract(grey, rootsift(), mask=np.zeros_like(mask))) == 0
    with pytest.raises(ShapeError):
        doap.extract(grey, rootsift(), mask=mask.T)
    assert np.array_equal(doap.extract(grey, rootsift(), max_keypoints=100, mask=mask + 1).frames, features.frames)


def test_the_mask_of_a_downscaled_image_has_the_size_of_the_original(grey):
    large, mask = (cv2.resize(one, None, fx=2, fy=2) for one in (grey, np.zeros_like(grey)))
    mask[:, 160:] = 255
    found = doap.extract(large, rootsift(), max_image_size=160, mask=mask)
    assert len(found) > 20
    assert found.keypoints[:, 0].min() > 159
    with pytest.raises(ShapeError):
        doap.extract(large, rootsift(), max_image_size=160, mask=mask[::2, ::2])


HUGE = """
import json, resource, sys
import doap
from doap.baselines import rootsift

features = doap.extract(sys.argv[1], rootsift(), max_keypoints=50)
# In kilobytes on Linux and in bytes on a Mac.
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"peak": peak, "size": features.image_size, "keypoints": features.keypoints.tolist()}))
"""


def write_huge(path, corner, side):
    """Write a black grey-level PNG with one textured corner, without holding all pixels in memory."""
    packer = zlib.compressobj(1)
    rows = [packer.compress(b"\0" + row.tobytes() + bytes(side - len(row))) for row in corner]
    rows += [packer.compress(bytes(side + 1)) for _ in range(side - len(corner))]
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))]
    chunks += [(b"IDAT", b"".join(rows) + packer.flush()), (b"IEND", b"")]
    with path.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for name, data in chunks:
            file.write(struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no resource module")
def test_an_image_of_400_megapixels_fits_in_memory(tmp_path):
    corner = read_grey(write_photo(tmp_path / "corner.png", 0, 1000, 1000))
    write_huge(tmp_path / "huge.png", corner, 20_000)
    measured = json.loads(run_python("-c", HUGE, tmp_path / "huge.png").stdout)
    # The pixels take 0.4 GB; most of the rest is the detector's pyramid of the image downscaled to
    # 3,200 × 3,200.
    assert measured["peak"] < 4e9
    assert measured["size"] == [20_000, 20_000]
    keypoints = np.array(measured["keypoints"])
    assert len(keypoints) == 50
    # In pixels of the file, and therefore within the textured corner, or as far beyond it as a large blob reaches.
    assert keypoints.max() < 1100
    assert keypoints.max() > 500


def test_a_sample_depends_on_settings_of_detector_and_descriptor():
    samples = [
        extract_sample(KeypointExtractor(describer, detector))
        for describer, detector in (
            (rootsift(), sift()),
            (rootsift(), sift(contrast=0.021)),
            (rootsift(), sift(magnification=6.1)),
            (rootsift(), sift(precise=False)),
            (teblid(), sift()),
        )
    ]
    assert len({one.frames.tobytes() + one.descriptors.numpy().tobytes() for one in samples}) == len(samples)
    again = extract_sample(KeypointExtractor(rootsift(), sift()))
    assert again.frames.tobytes() == samples[0].frames.tobytes()
    assert torch.equal(again.descriptors, samples[0].descriptors)

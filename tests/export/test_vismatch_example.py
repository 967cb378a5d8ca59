"""The matcher for vismatch in `examples/integrations`, with the contract of its base class, which needs torchvision."""

import runpy
import sys
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest
import torch

import doap
from oracles.photos import write_photo

MATCHER = Path(__file__).parents[2] / "examples" / "integrations" / "vismatch" / "doap_matcher.py"


class BaseMatcher(torch.nn.Module):
    """What vismatch 1.4 checks of a matcher: seven results, their types and their shapes."""

    def __init__(self, device="cpu", **kwargs):
        super().__init__()
        self.device = device

    @torch.inference_mode()
    def forward(self, img0, img1):
        *matched, all0, all1, described0, described1, confidences = self._forward(img0, img1)
        results = [np.asarray(one.cpu() if isinstance(one, torch.Tensor) else one) for one in (*matched, all0, all1)]
        assert all(one.ndim == 2 and one.shape[1] == 2 for one in results)
        assert len(results[0]) == len(results[1])
        assert (len(all0), len(all1)) == (len(described0), len(described1))
        assert confidences is None or len(confidences) == len(results[0])
        return *results, described0, described1


@pytest.fixture
def matcher_class(monkeypatch):
    """The class of the example, with the base class in place of vismatch's."""
    vismatch = ModuleType("vismatch")
    vismatch.BaseMatcher = BaseMatcher
    monkeypatch.setitem(sys.modules, "vismatch", vismatch)
    return runpy.run_path(str(MATCHER), run_name="vismatch.im_models.doap")["DoapMatcher"]


@pytest.fixture
def photos(tmp_path):
    """A photo with colours and the same one turned by 90 degrees, (H, W, 3) as from `cv2.imread`."""
    greys = [cv2.imread(str(write_photo(tmp_path / f"{seed}.png", seed)), cv2.IMREAD_GRAYSCALE) for seed in range(3)]
    photo = np.stack([greys[0] // 2 + part // 2 for part in greys], 2)
    return photo, np.ascontiguousarray(np.rot90(photo))


def as_image(photo):
    """A photo as vismatch loads it: (3, H, W), red, green, blue in 0…1."""
    return torch.tensor(photo[..., ::-1] / 255).permute(2, 0, 1).float()


@pytest.mark.parametrize("name", ["doap-256bit", "rootsift"])
def test_the_matches_are_those_of_doap(name, photos, matcher_class):
    matcher = matcher_class(descriptor=name, max_num_keypoints=300)
    found = matcher(*map(as_image, photos))
    expected = doap.match_images(*photos, name, max_keypoints=300)
    features = expected.features0, expected.features1
    assert len(expected.matches) > 50
    points = *expected.matches.points(*features), *(one.keypoints for one in features)
    for got, wanted in zip(found, (*points, *(one.descriptors for one in features)), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_values_just_outside_of_0_to_1_are_accepted(photos, matcher_class):
    """vismatch accepts −0.2 to 1.2, because bicubic interpolation exceeds the range of the pixels."""
    matcher, image = matcher_class(descriptor="rootsift"), as_image(photos[0])
    beyond = 1.2 * image - 0.1
    for got, wanted in zip(matcher(beyond, image), matcher(beyond.clamp(0, 1), image), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_an_image_without_keypoints_has_no_matches(photos, matcher_class):
    matched0, matched1, all0, *_ = matcher_class()(torch.full((3, 90, 90), 0.5), as_image(photos[0]))
    assert len(matched0) == len(matched1) == len(all0) == 0

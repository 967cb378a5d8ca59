"""Selection of keypoints: the largest, the strongest, or those with the highest score of the descriptor."""

import numpy as np
import pytest
import torch

import doap
from doap._support.errors import ArgumentError, DataError
from doap.collection.extractor import open_extractor
from doap.descriptor import Descriptor
from doap.extractor import POOL
from doap.images import scales
from doap.networks.selection import SelectionHead, selection_inputs
from oracles.photos import write_photo

MANY = 100_000


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_photo(tmp_path_factory.mktemp("photos") / "a.png", 0, 480, 640)


@pytest.fixture
def scored():
    """A descriptor whose score prefers small keypoints."""
    torch.manual_seed(0)
    descriptor = Descriptor.build("fast", dim=16)
    head = SelectionHead(16)
    first, second, last = head.layers[0], head.layers[2], head.layers[4]
    for layer in (first, second, last):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    # The score is the rank of the size, which is the second input after the descriptor.
    first.weight[0, 17] = second.weight[0, 0] = last.weight[0, 0] = 1
    descriptor.selection = head
    return descriptor


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def test_scale_keeps_the_largest_keypoints_of_a_detector_that_ranks_by_response(photo):
    every = doap.extract(photo, "rootsift", max_keypoints=MANY)
    kept = doap.extract(photo, "rootsift", max_keypoints=40, select="scale")
    assert np.array_equal(scales(kept.frames), np.sort(scales(every.frames))[::-1][:40])
    assert np.array_equal(kept.responses, scales(kept.frames))


def test_response_is_the_order_of_detectors_that_report_one(photo):
    kept, default = (doap.extract(photo, "rootsift", max_keypoints=40, select=one) for one in ("response", None))
    assert np.array_equal(kept.frames, default.frames)
    with pytest.raises(ArgumentError, match="scale"):
        doap.extract(photo, "rootsift", detector="colmap", select="response")


@pytest.mark.parametrize("tile", [None, 512])
def test_learned_keeps_the_keypoints_with_the_highest_scores_and_their_descriptors(photo, scored, tile):
    every = doap.extract(photo, scored, max_keypoints=POOL, tile=tile)
    kept = doap.extract(photo, scored, max_keypoints=40, select="learned", tile=tile)
    assert np.array_equal(np.sort(scales(kept.frames)), np.sort(scales(every.frames))[:40])
    assert (np.diff(kept.responses) <= 0).all()
    rows = [np.flatnonzero((every.frames == frame).all(axis=(1, 2)))[0] for frame in kept.frames]
    torch.testing.assert_close(kept.descriptors, every.descriptors[rows])


def test_a_descriptor_without_a_score_cannot_select(photo):
    for descriptor in ("rootsift", Descriptor.build("fast", dim=16)):
        with pytest.raises(ArgumentError, match="score"):
            doap.extract(photo, descriptor, select="learned")
    with pytest.raises(ArgumentError, match="select"):
        doap.extract(photo, "rootsift", select="best")


def test_the_score_is_stored_with_the_weights_and_changes_no_fingerprint(scored, tmp_path):
    fingerprint, path = scored.fingerprint(), scored.save(tmp_path / "scored.safetensors")
    loaded = Descriptor.load(path)
    for name, tensor in scored.selection.state_dict().items():
        torch.testing.assert_close(loaded.selection.state_dict()[name], tensor)
    scored.selection = None
    assert scored.fingerprint() == fingerprint == loaded.fingerprint()
    assert Descriptor.load(scored.save(tmp_path / "plain.safetensors")).selection is None


def test_a_score_of_another_width_is_refused(scored, tmp_path):
    scored.selection = SelectionHead(32)
    with pytest.raises(DataError, match="deviation"):
        Descriptor.load(scored.save(tmp_path / "wrong.safetensors"))


def test_feature_sets_with_another_selection_differ(scored):
    plain, learned = (open_extractor(scored, select=select).info for select in (None, "learned"))
    assert plain.difference(learned) == "select is 'learned' instead of None"


def test_similar_descriptors_at_other_places_are_inputs_of_the_score():
    """Two equal descriptors at different places are similar; at one place, they are the same point."""
    torch.manual_seed(0)
    unit = torch.nn.functional.normalize(torch.rand(3, 8) - 0.5)
    descriptors, sizes = torch.cat([unit, unit[:1]]), torch.full((4,), 6.0)
    far, near = (torch.tensor([[0.0, 0], [50, 0], [0, 50], [x, 0]]) for x in (90.0, 1.0))
    nearest = [selection_inputs(descriptors, xy, sizes)[:, 10] for xy in (far, near)]
    assert nearest[0][0] == pytest.approx(0, abs=1e-3)
    assert nearest[1][0] == pytest.approx(float((unit[0] - unit[1:]).norm(dim=1).min()), abs=1e-3)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_keypoints_have_scores(count):
    head = SelectionHead(256)
    bits = torch.zeros(count, 32, dtype=torch.uint8)
    assert head(bits, torch.rand(count, 2), torch.ones(count)).shape == (count,)

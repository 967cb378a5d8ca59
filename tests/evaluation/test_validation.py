"""Validation scores, compared with slow loops over all pairs."""

import numpy as np
import pytest
import torch

from doap import pipeline
from doap._support.errors import DataError
from doap.data.store import open_set
from doap.evaluation import validation
from doap.evaluation.validation import PatchSample, validate
from doap.metrics import average_precision, pack_bits
from doap.pipeline import describe_patches
from oracles.coded_patches import write_units
from oracles.listwise import relation_tables
from oracles.memory_source import memory_source

SIDE = 8


class Fake:
    """A describer that applies a function to the groups (N,) and the patches (N, 1, S, S)."""

    extent = 1.0

    def __init__(self, function, kind="real", patch_size=SIDE):
        self.function, self.kind, self.patch_size = function, kind, patch_size
        self.dim, self.extent = 64, 1.0

    def describe_patches(self, patches):
        groups = (patches[:, 0, 0, 1] * 255).round().long()
        described = self.function(groups, patches).float()
        return pack_bits(described) if self.kind == "binary" else described


def hardest(describer, drawn, **arguments):
    result = validation.retrieve(describe_patches(describer, drawn.patches), drawn.relation)
    return validation.hardest(result, drawn, **arguments)


def one_hot(groups, patches):
    return torch.nn.functional.one_hot(groups, 64)


def collapsed(groups, patches):
    """Return equal descriptors, except for the last bit of float32, which depends on the group."""
    described = torch.full((len(groups), 64), 0.125)
    described[:, 0] += 2**-26 * (groups % 7)
    return described


def all_ones(groups, patches):
    return torch.ones(len(groups), 64)


def noise(groups, patches):
    return torch.nn.functional.normalize(patches.flatten(1)[:, 8:] - 0.5)


def coarse(groups, patches):
    """Return few different descriptors, with many ties; slightly better than chance."""
    return (one_hot(groups // 3, patches) + (patches.flatten(1) > 0.8)).clamp(max=1)


@pytest.fixture
def several(tmp_path):
    """Return three scenes, one with two photos and one with groups that ignore each other."""
    units = [
        ("wall", "tracks", [2, 3, 4, 6]),
        ("graf", "a.png", [3, 2, 1]),
        ("graf", "b.png", [2, 2]),
        ("boat", "t", [3]),
    ]
    return open_set(write_units(tmp_path / "several", SIDE, units, ignore=[(0, 1), (2, 3)]))


@pytest.fixture
def many(tmp_path):
    return open_set(write_units(tmp_path / "many", SIDE, [("wall", "tracks", [4] * 30), ("graf", "tracks", [3] * 30)]))


def slow(describer, drawn):
    """Compute mAP query by query, with the table of all pairs and the metric that sorts."""
    described = describer.describe_patches(torch.from_numpy(drawn.patches)[:, None] / 255).double()
    if describer.kind == "binary":
        described = torch.from_numpy(np.unpackbits(described.byte().numpy(), axis=1)).double()
    positive, distractor = relation_tables(drawn.relation)
    values = []
    for query in range(len(drawn)):
        distances = (described - described[query]).abs()
        distances = distances.sum(1) if describer.kind == "binary" else distances.square().sum(1).sqrt()
        counted = positive[query] | distractor[query]
        row = distances[counted].round(decimals=6)[None]
        values.append(float(average_precision(row, positive[query][counted][None])))
    return sum(values) / len(values)


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_perfect_describer_scores_one_and_has_no_errors(many, kind):
    drawn = PatchSample.draw(many)
    scores = validate(Fake(one_hot, kind), drawn)
    assert scores.map == pytest.approx(1)
    assert (scores.fpr95, scores.fpr95_expected) == (0, 0)
    assert len(hardest(Fake(one_hot, kind), drawn)[0]) == 0


@pytest.mark.parametrize(("function", "kind"), [(collapsed, "real"), (all_ones, "real"), (all_ones, "binary")])
def test_constant_describer_scores_chance(many, function, kind):
    drawn = PatchSample.draw(many)
    scores = validate(Fake(function, kind), drawn)
    ties = [average_precision(torch.zeros(1, len(drawn) - 1), torch.arange(len(drawn) - 1)[None] < n) for n in (3, 2)]
    assert scores.map == pytest.approx(float((4 * ties[0] + 3 * ties[1]) / 7))
    assert scores.map < 0.1
    assert scores.fpr95 == 1
    assert scores.fpr95_expected == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("function", [noise, coarse, one_hot])
def test_map_equals_a_slow_loop(several, function, kind):
    describer, drawn = Fake(function, kind), PatchSample.draw(several)
    assert validate(describer, drawn).map == pytest.approx(slow(describer, drawn), abs=1e-12)


def test_block_size_does_not_change_the_scores(several, monkeypatch):
    describer, drawn = Fake(coarse), PatchSample.draw(several)
    whole, worst = validate(describer, drawn).map, hardest(describer, drawn)
    monkeypatch.setattr(validation, "rows_at_a_time", lambda gallery: 3)
    monkeypatch.setattr(pipeline, "PATCHES_AT_ONCE", 5)
    assert validate(describer, drawn).map == pytest.approx(whole, abs=1e-12)
    assert all(np.array_equal(one, other) for one, other in zip(hardest(describer, drawn), worst, strict=True))


def confused(groups, patches):
    """Return one-hot descriptors that confuse groups 0 and 1."""
    return one_hot(groups.clamp(min=1), patches)


@pytest.mark.parametrize(
    ("sources", "ignore"), [(("tracks", "tracks"), [(0, 1)]), (("a.png", "b.png"), [])], ids=["named", "two photos"]
)
def test_ignored_pairs_do_not_count(tmp_path, sources, ignore):
    units = [("wall", sources[0], [3, 3]), ("boat", "tracks", [3, 3])]
    if not ignore:
        units[:1] = [("wall", source, [3]) for source in sources]
    drawn = PatchSample.draw(open_set(write_units(tmp_path / "ignoring", SIDE, units, ignore)))
    scores = validate(Fake(confused), drawn)
    assert scores.map == pytest.approx(1)
    assert scores.fpr95 == 0
    assert len(hardest(Fake(confused), drawn)[0]) == 0


def test_scenes_contribute_evenly():
    source = memory_source([3] * 60, [0] * 40 + [1] * 15 + [2] * 5)
    drawn = PatchSample.draw(source, groups=35)
    group_of = {patch.tobytes(): index // 3 for index, patch in enumerate(source.patches)}
    groups = np.unique([group_of[patch.tobytes()] for patch in drawn.patches])
    assert np.bincount(source.scene_ids[groups]).tolist() == [15, 15, 5]


def test_groups_are_cut_to_per_group_and_single_patches_are_left_out(several):
    drawn = PatchSample.draw(several, per_group=3)
    sizes = drawn.relation.groups.bincount().tolist()
    assert sizes == [2, 3, 3, 3, 3, 2, 2, 2, 3]
    assert len(drawn) == sum(sizes)


def test_only_allowed_groups_are_drawn(several):
    among = several.scene_ids == several.scene_names.index("graf")
    # Groups of different photos of a scene ignore each other; groups of one photo do not.
    assert set(PatchSample.draw(several, among=among).patches[:, 0, 1].tolist()) == {4, 5, 7, 8}


def test_positive_pairs_match_and_negative_pairs_are_distractors(several):
    drawn = PatchSample.draw(several, pairs=1000)
    positive, distractor = relation_tables(drawn.relation)
    assert positive[tuple(drawn.positives.T)].all()
    assert distractor[tuple(drawn.negatives.T)].all()
    assert len(drawn.positives) == positive.sum() // 2 == len(drawn.positives.unique(dim=0))
    assert len(drawn.negatives) == 1000
    assert len(PatchSample.draw(several, pairs=7).positives) == 7


def test_hardest_equals_a_slow_loop(several):
    describer, drawn = Fake(noise), PatchSample.draw(several)
    described = describer.describe_patches(torch.from_numpy(drawn.patches)[:, None] / 255).double()
    positive, distractor = relation_tables(drawn.relation)
    worst = {}
    for query, row in enumerate(torch.cdist(described, described)):
        match, wrong = (int(row.masked_fill(~table[query], 9).argmin()) for table in (positive, distractor))
        mistake, group = float(row[match] - row[wrong]), int(drawn.relation.groups[query])
        if mistake > max(0, worst.get(group, (0,))[0]):
            worst[group] = (mistake, query, match, wrong)
    expected = sorted(worst.values(), reverse=True)[:5]
    triples, distances = hardest(describer, drawn, number=5)
    assert triples.tolist() == [list(row[1:]) for row in expected]
    assert np.allclose(distances[:, 0] - distances[:, 1], [row[0] for row in expected], atol=1e-5)
    assert drawn.patches[triples].shape == (5, 3, SIDE, SIDE)


def test_a_set_without_distractors_is_refused(tmp_path):
    photos = open_set(write_units(tmp_path / "photos", SIDE, [("wall", f"{name}.png", [3]) for name in "abc"]))
    with pytest.raises(DataError):
        PatchSample.draw(photos)

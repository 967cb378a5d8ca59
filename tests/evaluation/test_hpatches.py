"""The benchmark `hpatches` on a small release in its format, whose patches encode their group."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from data.readers import formats
from doap._support.errors import ArgumentError, DataError
from doap.data.readers import read_hpatches
from doap.evaluation import hpatches_scores
from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.hpatches import HPatchesBenchmark
from doap.evaluation.hpatches_scores import AP_PROTOCOLS, match_sequence, pair_precision, precision_among
from doap.evaluation.result import Scores
from doap.metrics import average_precision, pack_bits
from oracles.areas import settled_ap
from oracles.coded_patches import coded_patches, noisy, noisy_bits, perfect
from oracles.ranking import enumerated_ap

SIDE = 65
SEQUENCES = ("i_dome", "v_wall", "v_boat")
GROUPS = 12
HEADER = "s1,t1,idx1,s2,t2,idx2"


def write_release(root):
    """Write three sequences of twelve groups, with all task files in `tasks`."""
    number = np.arange(len(SEQUENCES) * GROUPS).reshape(len(SEQUENCES), GROUPS)
    patches = coded_patches(number.ravel().repeat(16), SIDE).reshape(len(SEQUENCES), GROUPS, 16, SIDE, SIDE)
    formats.write_hpatches(root, dict(zip(SEQUENCES, patches, strict=True)))
    tasks = root / "tasks"
    tasks.mkdir()
    (tasks / "splits.json").write_text(json.dumps({"a": {"train": [], "test": list(SEQUENCES)}}))
    generator = np.random.default_rng(0)
    everyone = [(name, index) for name in SEQUENCES for index in range(GROUPS)]
    order = [everyone[index] for index in generator.permutation(len(everyone))]
    formats.write_csv(tasks / "retr_queries_split-a.csv", "s,idx", order[:15])
    formats.write_csv(tasks / "retr_distractors_split-a.csv", "s,idx", order[15:])
    positive, intra, inter = [], [], []
    for _ in range(300):
        one, other = generator.choice(SEQUENCES, 2, replace=False)
        first, second = generator.choice(GROUPS, 2, replace=False)
        start, end = generator.choice(6, 2, replace=False)
        positive.append((one, start, first, one, end, first))
        intra.append((one, start, first, one, end, second))
        inter.append((one, start, first, other, end, second))
    for kind, rows in (("pos", positive), ("neg_intra", intra), ("neg_inter", inter)):
        formats.write_csv(tasks / f"verif_{kind}_split-a.csv", HEADER, rows)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_release(tmp_path_factory.mktemp("hpatches-release"))


@pytest.fixture(scope="module")
def benchmark_(root):
    return HPatchesBenchmark(root)


@pytest.fixture(scope="module")
def evaluate(benchmark_):
    """Evaluate each describer once."""
    known: dict[str, Scores] = {}

    def once(describer):
        name = describer.name  # type: ignore[attr-defined]
        if name not in known:
            known[name] = benchmark_.evaluate(open_candidate(describer), seed=0)
        return known[name]

    return once


def figure(scores, name):
    return next(one for one in scores.figures if one.name == name)


def value(scores, name):
    return figure(scores, name).total.value


def described_by(root, describer):
    """Return (12, 16, D) floats of each sequence, bits as 0 and 1."""
    release = read_hpatches(root)
    described = {}
    for name in SEQUENCES:
        flat = open_candidate(describer).describe_patches(release.load(name).reshape(-1, SIDE, SIDE))
        if flat.dtype == torch.uint8:
            flat = torch.from_numpy(np.unpackbits(flat.numpy(), axis=1))
        described[name] = flat.double().view(GROUPS, 16, -1)
    return described


def read_rows(root, kind):
    return [line.split(",") for line in (root / "tasks" / f"{kind}_split-a.csv").read_text().splitlines()[1:]]


def strip(level, image):
    return 0 if image == 0 else 1 + 5 * level + image - 1


def distance(one, other):
    # The Euclidean distance of bits is the root of the Hamming distance and sorts equally.
    return round(float((one - other).norm()), 6)


def test_perfect_descriptor_scores_one_in_all_tasks_and_protocols(evaluate):
    scores = evaluate(perfect(SIDE))
    assert len(scores.figures) == 9
    assert [one.total.value for one in scores.figures] == pytest.approx([1] * 9)


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_score_chance_when_ties_are_counted(evaluate, name):
    scores = evaluate(CONTROLS[name]())
    chance = float(average_precision(torch.zeros(1, 19), torch.arange(19)[None] < 5))
    assert value(scores, "retrieval mAP (tie-aware)") == pytest.approx(chance, abs=0.08)
    assert value(scores, "verification mAP (tie-aware)") == pytest.approx(1 / 6, abs=0.06)
    assert value(scores, "matching mAP (tie-aware)") < 0.05


def test_constant_descriptor_scores_one_where_the_programs_rank_matches_first(evaluate):
    scores = evaluate(CONTROLS["constant"]())
    first = ("retrieval mAP (python)", "retrieval mAP (matlab)", "verification mAP (matlab)")
    assert [value(scores, name) for name in first] == pytest.approx([1, 1, 1])
    assert value(scores, "verification mAP (python)") < value(scores, "verification mAP (tie-aware)")


@pytest.mark.parametrize("make", [noisy, noisy_bits])
@pytest.mark.parametrize("form", ["python", "matlab"])
def test_verification_equals_a_stable_sort_and_a_loop(root, evaluate, make, form):
    described = described_by(root, make(SIDE))
    rows = {kind: read_rows(root, f"verif_{kind}") for kind in ("pos", "neg_intra", "neg_inter")}
    for level, noise in enumerate(("easy", "hard", "tough")):
        for kind in ("intra", "inter"):
            apart = {
                name: [
                    distance(
                        described[s1][int(i1), strip(level, int(t1))], described[s2][int(i2), strip(level, int(t2))]
                    )
                    for s1, t1, i1, s2, t2, i2 in pairs
                ]
                for name, pairs in (("pos", rows["pos"][:60]), ("neg", rows[f"neg_{kind}"]))
            }
            near, far = ([(d, label) for d in apart[name]] for name, label in (("pos", True), ("neg", False)))
            # The programs sort lists that begin with the negatives and with the positives.
            ranked = sorted(far + near if form == "python" else near + far, key=lambda pair: pair[0])
            slow = settled_ap([label for _, label in ranked], 60, form)
            part = figure(evaluate(make(SIDE)), f"verification mAP ({form})").parts[f"{noise}, {kind}"]
            assert part.value == pytest.approx(slow)
            assert (part.low <= part.value <= part.high, part.units) == (True, 3)


@pytest.mark.parametrize("make", [noisy, noisy_bits])
@pytest.mark.parametrize("form", ["python", "matlab"])
def test_matching_equals_a_loop(root, evaluate, make, form):
    scored, means = figure(evaluate(make(SIDE)), f"matching mAP ({form})"), []
    for name, groups in described_by(root, make(SIDE)).items():
        values = []
        for other in range(1, 16):
            answers = []
            for index in range(GROUPS):
                apart = [distance(groups[index, 0], groups[item, other]) for item in range(GROUPS)]
                answers.append((min(apart), apart.index(min(apart)) == index))
            answers.sort(key=lambda answer: answer[0])
            values.append(settled_ap([right for _, right in answers], GROUPS, form))
        means.append(np.mean(values))
        assert scored.parts[name].value == pytest.approx(means[-1])
    assert (scored.total.value, scored.total.units) == (pytest.approx(np.mean(means)), 3)


def test_tie_aware_matching_of_bits_is_the_mean_over_random_orders_of_ties():
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(0, 4, (8, 16, 1), generator=generator, dtype=torch.uint8)
    ours = match_sequence(bits)["tie-aware"][0, 0]
    codes = np.unpackbits(bits.numpy(), axis=2)
    apart = (codes[:, None, 0] != codes[None, :, 1]).sum(axis=2)
    random, values = np.random.default_rng(0), []
    for _ in range(4000):
        broken = apart + 0.5 * random.random(apart.shape)
        right = broken.argmin(axis=1) == np.arange(8)
        order = np.lexsort((random.random(8), apart.min(axis=1)))
        values.append(settled_ap(right[order].tolist(), 8, "matlab"))
    assert ours == pytest.approx(np.mean(values), abs=0.01)


@pytest.mark.parametrize("make", [noisy, noisy_bits])
@pytest.mark.parametrize("form", ["python", "matlab"])
def test_retrieval_leaves_out_distractors_of_the_querys_own_sequence(root, monkeypatch, make, form):
    monkeypatch.setattr(hpatches_scores, "MATLAB_DISTRACTORS", 9)
    monkeypatch.setattr(hpatches_scores, "PYTHON_POOL", 11)
    scores = HPatchesBenchmark(root).evaluate(open_candidate(make(SIDE)), seed=0)
    described = described_by(root, make(SIDE))
    queries, distractors = (
        [(name, int(index)) for name, index in read_rows(root, kind)] for kind in ("retr_queries", "retr_distractors")
    )
    slow = []
    for name, index in queries:
        # `python` masks the sequence and then cuts the pool; `matlab` cuts first.
        others = [item for item in distractors if item[0] != name][: 11 - 5]
        others = [item for item in distractors[:9] if item[0] != name] if form == "matlab" else others
        for level in range(3):
            query = described[name][index, 0]
            matches = [(distance(query, described[name][index, strip(level, k)]), True) for k in range(1, 6)]
            far = [(distance(query, described[other][item, 0]), False) for other, item in others]
            ranked = sorted(matches + far, key=lambda item: item[0])
            slow.append(settled_ap([label for _, label in ranked], 5, form))
    assert value(scores, f"retrieval mAP ({form})") == pytest.approx(np.mean(slow))


@pytest.mark.parametrize("form", ["tie-aware", "python", "matlab"])
def test_protocols_agree_without_ties_and_differ_with_ties(form):
    generator = torch.Generator().manual_seed(0)
    positive = torch.arange(60_000) < 10_000
    distances = torch.rand(60_000, generator=generator) - 0.3 * positive
    exact = pair_precision(distances, positive, "tie-aware")
    coarse = (distances * 20).round()
    assert pair_precision(distances, positive, form) == pytest.approx(exact, abs=1e-3)
    order = [pair_precision(coarse, positive, each) for each in ("python", "tie-aware", "matlab")]
    assert order == sorted(order)
    assert order[2] - order[0] > 0.05


def test_tasks_without_files_are_left_out_and_listed(root, tmp_path):
    (tmp_path / "splits.json").write_bytes((root / "tasks" / "splits.json").read_bytes())
    matching = HPatchesBenchmark(root, tasks=tmp_path)
    assert list(matching.protocol["left out"]) == ["retrieval", "verification"]
    scores = matching.evaluate(open_candidate(perfect(SIDE)), seed=0)
    assert [one.name for one in scores.figures] == [
        f"matching mAP ({form})" for form in ("tie-aware", "python", "matlab")
    ]
    assert (scores.curves, scores.histogram) == ((), None)


@pytest.mark.parametrize(
    ("file", "header", "rows"),
    [
        ("retr_distractors", "s,idx", [("v_wall", 1), ("v_graf", 0)]),
        ("retr_distractors", "s,idx", [("v_wall", 1), ("v_wall", 12)]),
        ("verif_neg_inter", HEADER, [("v_wall", 1, 0, "i_dome", 1, 0)] * 4),
    ],
    ids=["sequence", "patch", "too few negatives"],
)
def test_tasks_that_do_not_fit_the_release_are_refused(root, tmp_path, file, header, rows):
    shutil.copytree(root / "tasks", tmp_path, dirs_exist_ok=True)
    formats.write_csv(tmp_path / f"{file}_split-a.csv", header, rows)
    with pytest.raises(DataError):
        HPatchesBenchmark(root, tasks=tmp_path)


def test_a_split_that_the_release_does_not_have_is_refused(root, tmp_path):
    with pytest.raises(ArgumentError):
        HPatchesBenchmark(root, split="z")
    (tmp_path / "splits.json").write_text(json.dumps({"a": {"test": [*SEQUENCES, "v_graf"]}}))
    with pytest.raises(DataError):
        HPatchesBenchmark(root, tasks=tmp_path)


def make_task(bits=False, queries=20, distractors=50):
    """Queries, their five noisy matches in two variants, and distractors."""
    generator = torch.Generator().manual_seed(0)
    asked, strangers = (normalize(torch.randn(n, 16, generator=generator)) for n in (queries, distractors))
    noise = torch.randn(queries, 2, 5, 16, generator=generator) * torch.tensor([0.3, 0.6]).view(1, 2, 1, 1)
    matches = normalize(asked[:, None, None] + noise, dim=3)
    if bits:
        return pack_bits(asked), pack_bits(matches.flatten(0, 2)).view(queries, 2, 5, 2), pack_bits(strangers)
    return asked, matches, strangers


def slow_distance(one, other):
    if one.dtype == torch.uint8:
        return float(sum(bin(a ^ b).count("1") for a, b in zip(one.tolist(), other.tolist(), strict=True)))
    return round(float((one.double() - other.double()).norm()), 6)


def slow_lists(task, variant, number):
    """The list of each query, as the programs write it: five matches, then distractors."""
    queries, matches, distractors = task
    return [
        [slow_distance(query, item) for item in (*own[variant], *distractors[:number])]
        for query, own in zip(queries, matches, strict=True)
    ]


def test_tie_aware_of_bits_equals_the_mean_over_all_orders():
    task = make_task(bits=True)
    ours = precision_among(*task, [("tie-aware", 50), ("tie-aware", 3)])
    for variant in range(2):
        for way, number in enumerate((50, 3)):
            apart = torch.tensor(slow_lists(task, variant, number))
            positive = (torch.arange(apart.shape[1]) < 5).expand_as(apart)
            torch.testing.assert_close(ours[:, variant, way], average_precision(apart, positive))
    few = slow_lists(task, 0, 3)[0]
    assert float(ours[0, 0, 1]) == pytest.approx(enumerated_ap(few, [True] * 5 + [False] * 3)["expected"])


@pytest.mark.parametrize("bits", [False, True])
def test_blocks_of_rows_change_nothing(bits, monkeypatch):
    task, protocols = make_task(bits), [(form, 50) for form in AP_PROTOCOLS]
    whole = precision_among(*task, protocols)
    monkeypatch.setattr(hpatches_scores, "rows_at_a_time", lambda gallery: 3)
    torch.testing.assert_close(precision_among(*task, protocols), whole)

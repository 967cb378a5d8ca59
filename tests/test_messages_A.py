"""The messages that users of the evaluation meet most say what is wrong and what to do."""

from __future__ import annotations

import pytest

from doap._support.errors import DoapError
from doap.baselines import colmap_rootsift
from doap.detectors import sift
from doap.evaluation.candidates import open_candidate
from doap.evaluation.run import open_benchmark
from doap.evaluation.scenes import split_scenes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: open_benchmark("nonsense", "."), ["benchmark: expected one of oxford, phototour", "got 'nonsense'"]),
        (
            lambda: open_benchmark("patches", ".", {"group": 2}),
            ["unknown setting group. Known settings: groups, pairs"],
        ),
        (lambda: open_benchmark("pose", "."), ["no scenes with camera poses found", "SCENE/sparse", "MegaDepth-1500"]),
        (
            lambda: open_candidate(colmap_rootsift()).check("frames", sift()),
            ["expected a descriptor of given keypoints", "Use the detector colmap."],
        ),
        (lambda: split_scenes(["a", "b"], "x"), ["validation: unknown scene x", "The scenes are a, b."]),
    ],
)
def test_the_message_names_the_subject_and_the_remedy(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DoapError) as error:
        call()
    assert [word for word in words if word not in str(error.value)] == []

"""The report: one self-contained file with the values of the log, at any time of a run."""

import base64
import re
from contextlib import closing

import cv2
import numpy as np
import pytest

from doap._support.errors import DataError, DoapError
from doap.training.log import Log
from doap.training.page import outlook, write_training_page
from oracles.html_pages import assert_well_nested

BASELINES = {"sift": {"map": 0.61, "fpr95": 0.12}, "rootsift": {"map": 0.655, "fpr95": 0.1}}
NAME = "<script>alert('&')</script>"


def start(**more):
    config = {"name": NAME, "optimiser": {"momentum": 0.875}, "data": {"nested": {"flip": True}}}
    known = {"config": config, "versions": {"torch": "2.5.1"}, "baselines": BASELINES}
    return {"kind": "start", "step": 0, **known, **more}


def train(step, **more):
    values = {"loss": 20 / (step + 10), "learning_rate": 0.1, "patches_per_second": 1234.0, "seconds": 1.2 * step}
    return {"kind": "train", "step": step, **values, **more}


def validation(step, score, fpr95=0.05):
    return {"kind": "validation", "step": step, "map": score, "fpr95": fpr95, "seconds": 1.2 * step, "best": True}


def whole_run():
    """Twenty minutes, validated at 4, 8, 12, 16 and 20; above RootSIFT since minute 12."""
    scores = {200: 0.5, 400: 0.65, 600: 0.7, 800: 0.7413, 1000: 0.7339}
    lines = [start()]
    for step in range(50, 1001, 50):
        lines.append(train(step))
        if step in scores:
            lines.append(validation(step, scores[step], fpr95=10 / step))
    return [*lines, {"kind": "end", "step": 1000, "seconds": 1200.0}]


@pytest.fixture
def page(tmp_path):
    """Log the lines; return the text of the report."""

    def written(lines):
        with closing(Log(tmp_path / "log.jsonl")) as log:
            for line in lines:
                log.write(**line)
        return write_training_page(tmp_path).read_text(encoding="utf-8")

    return written


def save_gallery(run):
    patches = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    np.savez(run / "gallery.npz", patches=patches, distances=np.array([[0.75, 0.5], [0.625, 0.375]]))
    return patches


def test_the_report_is_self_contained_escaped_and_well_nested(page, tmp_path):
    save_gallery(tmp_path)
    text = page(whole_run())
    assert not re.search(r"https?:|<script|<link|<iframe|@import|url\(", text)
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in text
    assert set(re.findall(r"src='([^,]*),", text)) == {"data:image/png;base64"}
    assert_well_nested(text)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "Not trained yet"),
        ([start()], "Not trained yet"),
        ([start(), train(50)], "No validation yet after 60 s of training"),
        ([start(), train(50, loss=float("nan"))], "No validation yet after 60 s of training"),
        ([start(baselines={}), validation(50, 0.5)], "scenes after 50 steps (60 s, 1.2 s per step)"),
        ([start(), validation(50, float("nan"))], "No validation yet after 60 s of training"),
        ([start(), validation(50, 0.7, fpr95=0.0)], "above RootSIFT (0.655) since second 60"),
        (
            [start(), validation(0, 0.7), validation(50, 0.8)],
            "mAP 0.700 → 0.800 on held-out scenes after 50 steps (60 s, 1.2 s per step): "
            "above RootSIFT (0.655) from the start",
        ),
        (
            whole_run(),
            "mAP 0.500 (step 200) → 0.734 on held-out scenes after 1,000 steps (20 min, 1.2 s per step): "
            "above RootSIFT (0.655) since minute 12",
        ),
        (
            [*whole_run()[:-1], validation(1100, 0.6)],
            "→ 0.600 on held-out scenes after 1,100 steps (22 min, 1.2 s per step): below RootSIFT (0.655)",
        ),
        ([*whole_run(), validation(1100, 0.6), validation(1200, 0.7)], "above RootSIFT (0.655) since minute 24"),
    ],
)
def test_a_report_can_be_written_at_any_time(page, lines, expected):
    text = page(lines)
    assert f"{expected}</h1>" in text
    assert not re.search(r"\bnan\b|\binf\b", text)


@pytest.mark.parametrize(
    ("rises", "verdict"),
    [
        ([0.0, 0.01, 0.02, 0.03, 0.04], "Still rising"),
        ([0.0, 0.0001, 0.0, -0.0001, 0.0], "Flat: more training with these settings will not pay off"),
        ([0.04, 0.03, 0.02, 0.01, 0.0], "Falling: more training with these settings harms"),
        ([0.0, 0.05, -0.05, 0.05, 0.0], "Too noisy to predict whether more training pays off"),
        ([0.0], "Too early to predict whether more training pays off"),
    ],
)
def test_outlook_depends_on_the_last_third(rises, verdict):
    before = [validation(step, 0.9 - step / 1000) for step in range(100, 500, 100)]
    last = [validation(800 + 100 * index, 0.5 + rise) for index, rise in enumerate(rises)]
    assert outlook([*before, *last])[0] == verdict


def test_the_gallery_shows_the_pixels_and_the_distances(page, tmp_path):
    patches = save_gallery(tmp_path)
    text = page(whole_run())
    shown = re.findall(r"base64,([^']*)'", text)
    pictures = [cv2.imdecode(np.frombuffer(base64.b64decode(code), np.uint8), cv2.IMREAD_UNCHANGED) for code in shown]
    assert np.array_equal(np.array(pictures).reshape(patches.shape), patches)
    assert re.findall(r"(?:match|wrong) ([\d.]+)", text) == ["0.75", "0.5", "0.625", "0.375"]


def test_a_damaged_gallery_is_refused(page, tmp_path):
    (tmp_path / "gallery.npz").write_bytes(b"PK half a file")
    with pytest.raises(DataError):
        page(whole_run())
    np.savez(tmp_path / "gallery.npz", patches=np.zeros((2, 3, 4, 4), np.uint8), distances=np.zeros((1, 2)))
    with pytest.raises(DoapError):
        write_training_page(tmp_path)

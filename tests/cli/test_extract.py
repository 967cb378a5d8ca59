"""The `doap extract` command."""

import json
import socket

import pytest

from doap.collection import FeatureSet
from oracles.photos import write_photo


@pytest.fixture
def images(tmp_path):
    for seed in range(3):
        write_photo(tmp_path / "images" / f"{seed}.png", seed, 120, 160)
    return tmp_path / "images"


def test_a_folder_becomes_a_feature_set(doap, images, tmp_path):
    (images / "cut.png").write_bytes((images / "0.png").read_bytes()[:2000])
    out = tmp_path / "features"
    command = ["extract", images, "--out", out, "--descriptor", "teblid", "--max-keypoints", 50, "--workers", 1]
    ran = doap(*command, "--json")
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stderr.splitlines() if "cut.png" in line and "truncated" in line]
    values = json.loads(ran.stdout)
    assert (values["out"], values["extracted"], values["reused"], list(values["skipped"])) == (
        str(out),
        3,
        0,
        ["cut.png"],
    )
    assert set(values) == {"out", "extracted", "reused", "skipped", "removed", "seconds", "images_per_second", "masks"}
    features = FeatureSet(out)
    assert features.names == ["0.png", "1.png", "2.png"]
    assert (features.extractor.descriptor, features.extractor.detector) == ("teblid", "sift")
    (images / "2.png").unlink()
    again = doap(*command)
    assert "0 images extracted, 2 unchanged, 1 skipped" in again.stdout
    assert f"1 image removed because {images} no longer contains them" in again.stdout


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("address", "variable"),
    [
        ("127.0.0.1:{port}", ""),
        ("ray://127.0.0.1:{port}", ""),
        ("auto", "127.0.0.1:{port}"),
        ("nonsense", ""),
        ("a:b", ""),
    ],
)
def test_a_ray_cluster_that_does_not_answer_is_one_line_at_once(doap, images, tmp_path, monkeypatch, address, variable):
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", variable.format(port=port))
    words = ("--descriptor", "rootsift", "--engine", "ray", "--address", address.format(port=port))
    ran = doap("extract", images, "--out", tmp_path / "features", *words)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1)


@pytest.mark.filterwarnings("ignore")
def test_ray_that_cannot_start_is_one_line(doap, images, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    # The paths of its sockets may have about 100 characters.
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("long" * 30)))
    words = ("--descriptor", "rootsift", "--engine", "ray")
    ran = doap("extract", images, "--out", tmp_path / "features", *words)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1)


def test_wrong_usage_exits_with_two(doap, images, tmp_path):
    folder = ["extract", images, "--out", tmp_path / "features"]
    for arguments in (
        ["extract", images, "--out", tmp_path / "f.h5"],
        [*folder, "--address", "auto"],
        [*folder, "--engine", "spark"],
        [*folder, "--workers", "0"],
    ):
        assert doap(*arguments).returncode == 2
    assert not (tmp_path / "features").exists()

"""The ONNX file for COLMAP's ALIKED slot: its contract, and the keypoints and descriptors in it."""

import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError
from doap.data.store import open_set
from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.export import export_descriptor
from doap.export.colmap_model import write_colmap_model
from doap.images import centres, read_grey, scales
from oracles.photo_patches import write_set
from oracles.photos import write_photo

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def network(kind):
    torch.manual_seed(0)
    return Descriptor.build("fast", dim=16 if kind == "real" else 64, kind=kind).eval()


@pytest.fixture(scope="module", params=["real", "binary"])
def exported(request, tmp_path_factory):
    """A descriptor and an open session of its file."""
    descriptor, out = network(request.param), tmp_path_factory.mktemp("model") / "doap.onnx"
    assert write_colmap_model(descriptor, out).agreement > 0.99
    return descriptor, onnxruntime.InferenceSession(out)


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    """A grey photo whose sides are multiples of 32, as COLMAP pads them."""
    return read_grey(write_photo(tmp_path_factory.mktemp("photo") / "a.png", 1, 384, 512))


def run(session, grey, max_keypoints=8192, min_score=0.2):
    image = np.repeat(grey[None, None], 3, axis=1).astype(np.float32) / 255
    scalars = {"max_keypoints": np.array(max_keypoints), "min_score": np.array(min_score, np.float32)}
    return session.run(None, {"image": image, **scalars})


def test_names_ranks_and_types_are_those_that_colmap_checks(exported):
    descriptor, session = exported
    inputs = [(one.name, len(one.shape), one.type) for one in session.get_inputs()]
    assert inputs == [
        ("image", 4, "tensor(float)"),
        ("max_keypoints", 0, "tensor(int64)"),
        ("min_score", 0, "tensor(float)"),
    ]
    assert session.get_inputs()[0].shape[1] == 3
    outputs = [(one.name, one.shape, one.type) for one in session.get_outputs()]
    assert [name for name, _, _ in outputs] == ["keypoints", "descriptors", "scores"]
    assert [shape for _, shape, _ in outputs] == [[1, "K", 2], [1, "K", descriptor.dim], [1, "K"]]
    assert {kind for _, _, kind in outputs} == {"tensor(float)"}


def test_keypoints_are_those_of_sift_and_every_score_passes_colmaps_default(exported, photo):
    keypoints, _, scores = run(exported[1], photo)
    # What COLMAP computes, except that its first pixel centre is at (0.5, 0.5).
    height, width = photo.shape
    found = (keypoints[0] + 1) * 0.5 * [width - 1, height - 1]
    frames, _ = sift().detect(photo)
    distances = np.linalg.norm(centres(frames)[:, None] - found, axis=2)
    assert (distances.min(axis=1) < 1).mean() > 0.9
    assert (distances.min(axis=0) < 1).mean() > 0.9
    # The score grows with σ, which is not an output.
    sigma = 1.6 * scores[0] / (1 - scores[0])
    nearest = distances.argmin(axis=1)
    same = (distances.min(axis=1) < 1) & (np.abs(np.log(sigma[nearest] / (scales(frames) / 6))) < np.log(1.1))
    assert same.mean() > 0.8
    assert (np.diff(scores[0]) <= 0).all()
    assert scores.min() > 0.2


def test_the_largest_keypoints_are_kept(exported, photo):
    every, kept = run(exported[1], photo), run(exported[1], photo, max_keypoints=50)
    assert kept[0].shape == (1, 50, 2)
    np.testing.assert_allclose(kept[2], every[2][:, :50], rtol=1e-5)


@pytest.mark.parametrize("size", [(32, 32), (32, 96), (64, 32)])
@pytest.mark.parametrize("flat", [True, False])
def test_small_and_flat_images_give_few_keypoints_or_none(exported, size, flat):
    grey = np.full(size, 90, np.uint8) if flat else np.random.default_rng(0).integers(0, 256, size, np.uint8)
    keypoints, descriptors, scores = run(exported[1], grey)
    assert keypoints.shape[1] == descriptors.shape[1] == scores.shape[1]
    assert not (flat and keypoints.size)
    assert np.isfinite(descriptors).all()
    assert (np.abs(keypoints) <= 1).all()
    np.testing.assert_allclose(np.linalg.norm(descriptors, axis=2), 1, atol=1e-4)


def test_the_format_is_offered_by_name_and_has_no_int8(tmp_path):
    path = network("real").save(tmp_path / "mine.safetensors")
    assert export_descriptor(path, tmp_path / "mine.onnx", to="colmap").out.is_file()
    patches = open_set(write_set(tmp_path / "set", write_photo(tmp_path / "photo.png", 0), max_keypoints=20))
    with pytest.raises(ArgumentError, match="calibration"):
        export_descriptor(path, tmp_path / "mine.onnx", to="colmap", calibration=patches)

"""NaN and infinity are refused at every boundary: losses, weights, bits, stored features, index queries."""

import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import doap
from doap._support.errors import ArgumentError, DataError
from doap.collection.features import FeatureSet
from doap.collection.index import Index, build_index
from doap.describer import from_function
from doap.descriptor import Descriptor
from doap.loss import LOSSES
from doap.metrics import pack_bits
from doap.pipeline import describe_patches
from oracles.file_samples import DESCRIPTOR
from oracles.photos import write_photo


def with_fault(values, fault):
    values = values.clone()
    values.view(-1)[5] = fault
    return values


@pytest.mark.parametrize("fault", [math.nan, math.inf])
@pytest.mark.parametrize("distance", ["euclidean", "squared"])
@pytest.mark.parametrize("name", ["listwise-ap", "hardest-triplet"])
def test_losses_refuse_descriptors_that_are_not_finite(name, distance, fault):
    descriptors = with_fault(torch.randn(8, 16, generator=torch.Generator().manual_seed(0)), fault)
    with pytest.raises(ArgumentError):
        LOSSES[name](distance=distance)(descriptors, torch.arange(8) // 2)


@pytest.mark.parametrize("name", ["listwise-ap", "hardest-triplet"])
def test_losses_of_bits_refuse_nan(name):
    with pytest.raises(ArgumentError):
        LOSSES[name](distance="hamming")(with_fault(torch.randn(8, 16), math.nan), torch.arange(8) // 2)


def test_bits_of_nan_are_refused():
    with pytest.raises(ArgumentError):
        pack_bits(with_fault(torch.randn(2, 8), math.nan))


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_weights_that_are_not_finite_are_neither_saved_nor_loaded(tmp_path, kind):
    descriptor = Descriptor.build(kind=kind, dim=16)
    path = descriptor.save(tmp_path / "d.safetensors")
    with torch.no_grad():
        next(descriptor.parameters()).view(-1)[0] = math.nan
    with pytest.raises(ArgumentError):
        descriptor.save(path)
    with pytest.raises(ArgumentError):
        descriptor.describe_patches(torch.rand(3, 1, 32, 32))
    damage(path)
    with pytest.raises(DataError):
        doap.load(path)


def damage(path):
    """Put a NaN into the first weights of a file."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    weights = load_file(path)
    name = next(name for name in weights if weights[name].is_floating_point())
    weights[name] = with_fault(weights[name], math.nan)
    save_file(weights, path, metadata)


def test_a_function_that_returns_nan_is_refused():
    function = from_function(
        lambda patches: patches.mean((2, 3)) / patches.std((2, 3)).floor().add(patches[0, 0, 0, 0])
    )
    with pytest.raises(ArgumentError):
        describe_patches(function, np.zeros((2, 32, 32), np.uint8))


@pytest.fixture
def features(tmp_path):
    write_photo(tmp_path / "photos" / "a.png", 0, 100, 120)
    doap.extract_folder(tmp_path / "photos", tmp_path / "features", DESCRIPTOR, workers=1)
    return tmp_path / "features"


@pytest.mark.parametrize("column", ["frames", "descriptors"])
def test_stored_features_that_are_not_finite_are_damaged(features, column):
    (part,) = features.glob("*.parquet")
    table = pq.read_table(part)
    rows = table.to_pylist()
    values = np.frombuffer(rows[0][column], "f2").copy() if column == "descriptors" else np.array(rows[0][column], "f4")
    values[3] = np.nan
    rows[0][column] = values.tobytes() if column == "descriptors" else values.tolist()
    pq.write_table(table.from_pylist(rows, table.schema), part)
    with pytest.raises(DataError):
        FeatureSet(features).read("a.png")


def test_an_index_refuses_queries_that_are_not_finite(features, tmp_path):
    pytest.importorskip("faiss")
    index = Index(build_index(features, tmp_path / "index"))
    with pytest.raises(ArgumentError):
        index.search(np.full((1, 16), np.nan, np.float32), 1)

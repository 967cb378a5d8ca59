"""The bill of materials names every dependency with its version and licence."""

from __future__ import annotations

from importlib.metadata import distribution

import pytest

pytest.importorskip("packaging")


@pytest.fixture
def sbom(import_tool):
    return import_tool("sbom")


def test_direct_and_indirect_dependencies_have_a_version_and_a_licence(sbom) -> None:
    document = sbom.bill_of_materials(sbom.installed_packages(distribution("doap"), ""))
    components = {one["name"]: one for one in document["components"]}
    # Pydantic needs annotated-types, and nothing else of doap does.
    assert {"torch", "numpy", "pydantic", "annotated-types"} <= set(components)
    assert "doap" not in components
    assert list(components) == sorted(components)
    for name, one in components.items():
        assert one["purl"] == f"pkg:pypi/{name}@{one['version']}"
        assert one["licenses"][0] != {"license": {"name": "unknown"}}


def test_an_extra_adds_its_dependencies(sbom) -> None:
    names = {package.name for package in sbom.installed_packages(distribution("doap"), "hloc")}
    assert "h5py" in names

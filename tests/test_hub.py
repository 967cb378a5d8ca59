"""Descriptors in the folders of the Hugging Face Hub, and from `torch.hub`."""

import json
import pickle
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch

import doap
from doap._support.errors import DataError, MissingExtra
from doap.descriptor import SHIPPED, Descriptor
from doap.networks import L2Net
from oracles.interpreter import run_python

ROOT = Path(__file__).parents[1]
FROM_CLONE = """
import sys
from importlib.machinery import PathFinder

class NotInstalled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in ("doap", *sys.argv[2:]):
            return None
        found = PathFinder.find_spec(name, [one for one in sys.path if one.startswith(sys.argv[1])])
        if found is None:
            raise ModuleNotFoundError(name)
        return found

sys.meta_path.insert(0, NotInstalled)
import torch
descriptor = torch.hub.load(sys.argv[1], "doap_fast", source="local")
print(sys.modules["doap"].__file__, descriptor.describe_patches(torch.rand(3, 1, 32, 32)).shape)
"""
"""Program that loads from a clone as if doap and some libraries were not installed."""


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def saved(tmp_path):
    """A descriptor, and the folder that it was saved to."""
    torch.manual_seed(0)
    descriptor = Descriptor.build("l2net", "binary", dim=64, extent=1.5)
    descriptor.metadata["ratio"] = 0.7
    return descriptor, descriptor.save_pretrained(tmp_path / "new" / "saved")


def write_cache(folder, home):
    """Put a folder into the cache of huggingface_hub, as if it had been downloaded as the repository owner/name."""
    repository = home / "hub" / "models--owner--name"
    shutil.copytree(folder, repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)


def test_a_saved_folder_loads_unchanged(saved):
    descriptor, folder = saved
    back = Descriptor.from_pretrained(folder)
    assert (back.fingerprint(), back.spec, back.ratio) == (descriptor.fingerprint(), descriptor.spec, 0.7)
    assert not back.training


def test_a_folder_has_the_weights_that_save_writes_and_a_description(saved, tmp_path):
    descriptor, folder = saved
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "config.json"}
    assert (folder / "model.safetensors").read_bytes() == descriptor.save(tmp_path / "d.safetensors").read_bytes()
    assert json.loads((folder / "config.json").read_text()) == descriptor.spec.model_dump()


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"\xff not JSON",
        b"[" * 100_000,
        json.dumps({"network": "os:system", "arguments": {"dim": 8}, "kind": "real", "dim": 8}).encode(),
        json.dumps({"auto_map": {"AutoModel": "evil.Model"}, "weights": "../other.safetensors"}).encode(),
    ],
)
def test_config_json_does_not_change_what_is_loaded(saved, content):
    descriptor, folder = saved
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_bytes(content)
    (folder / "evil.py").write_text("raise SystemExit")
    assert Descriptor.from_pretrained(folder).fingerprint() == descriptor.fingerprint()


def test_pickled_weights_are_not_opened(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(DataError, match=r"model\.safetensors: no such file"):
        Descriptor.from_pretrained(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_folder_comes_before_a_repository_of_the_same_name(saved, tmp_path, monkeypatch):
    descriptor, folder = saved
    shutil.copytree(folder, tmp_path / "owner" / "name")
    monkeypatch.chdir(tmp_path)
    assert Descriptor.from_pretrained("owner/name").fingerprint() == descriptor.fingerprint()


def test_a_repository_needs_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"doap\[hub\]"):
        Descriptor.from_pretrained("owner/name")


def test_a_repository_loads_as_its_folder(saved, tmp_path):
    pytest.importorskip("huggingface_hub")
    descriptor, folder = saved
    write_cache(folder, tmp_path)
    program = "import doap; print(doap.Descriptor.from_pretrained('owner/name', revision='main').fingerprint())"
    ran = run_python("-c", program, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert ran.stdout.strip() == descriptor.fingerprint()


def test_what_is_neither_a_folder_nor_a_repository_ends_with_one_line(tmp_path):
    pytest.importorskip("huggingface_hub")
    program = """
import doap
for name in ("owner/other", "no/such/folder", "../up"):
    try:
        doap.Descriptor.from_pretrained(name)
    except doap.DoapError as error:
        print(type(error).__name__, error)
"""
    ran = run_python("-c", program, folder=tmp_path, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    for name, line in zip(("owner/other", "no/such/folder", "../up"), ran.stdout.splitlines(), strict=True):
        assert line.startswith(f"DataError {name}: no such folder, and no descriptor on the Hugging Face Hub: ")


def test_the_folder_follows_the_conventions_of_huggingface_hub(saved):
    hub = pytest.importorskip("huggingface_hub")
    descriptor, folder = saved

    class HubNetwork(L2Net, hub.PyTorchModelHubMixin):
        """The network alone; its settings are passed by their names in config.json."""

        def __init__(self, kind, arguments):
            super().__init__(kind, **arguments)

    network = HubNetwork.from_pretrained(folder, strict=True)
    for name, tensor in descriptor.network.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name


def test_torch_hub_loads_every_shipped_descriptor():
    names = [name for name, value in runpy.run_path(ROOT / "hubconf.py").items() if callable(value)]
    assert [name.replace("_", "-") for name in names] == list(SHIPPED)
    for name, shipped in zip(names, SHIPPED, strict=True):
        found = torch.hub.load(ROOT, name, source="local", precision="float32")
        assert (found.fingerprint(), found.precision) == (doap.load(shipped).fingerprint(), "float32")


def test_torch_hub_loads_from_a_clone_without_doap_and_other_than_the_named_libraries(tmp_path):
    (tmp_path / "src").mkdir()
    shutil.copy(ROOT / "hubconf.py", tmp_path)
    shutil.copytree(ROOT / "src" / "doap", tmp_path / "src" / "doap", ignore=shutil.ignore_patterns("__pycache__"))
    ran = run_python("-c", FROM_CLONE, tmp_path, "pyarrow", "rich", "typer", folder=tmp_path)
    assert ran.stdout.split(maxsplit=1) == [str(tmp_path / "src" / "doap" / "__init__.py"), "torch.Size([3, 128])\n"]

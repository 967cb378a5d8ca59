"""Files of every format that earlier versions wrote are read, with the content that they had then."""

import json
import shutil

import pytest
import torch

pytest.importorskip("faiss")
pytest.importorskip("h5py")
pytest.importorskip("onnxruntime")
pytest.importorskip("pycolmap")

from oracles.golden_content import GOLDEN, ROOT, describe, plain

FOLDERS = sorted(path.name for path in ROOT.iterdir())


@pytest.mark.parametrize("name", FOLDERS)
def test_a_golden_file_has_its_content(name, tmp_path):
    golden = GOLDEN[next(known for known in GOLDEN if name.startswith(f"{known}-"))]
    expected = json.loads((ROOT / name / "content.json").read_text(encoding="utf-8"))
    # COLMAP writes to the databases that it opens.
    copied = shutil.copytree(ROOT / name, tmp_path / name)
    # JSON has no tuples, and its keys are strings.
    found = json.loads(json.dumps(plain(golden.content(copied))))
    assert found == expected["content"]


@pytest.mark.parametrize("name", [name for name in FOLDERS if list((ROOT / name).glob("weights.*"))])
def test_golden_weights_describe_patches_as_before(name):
    expected = json.loads((ROOT / name / "content.json").read_text(encoding="utf-8"))["described"]
    (path,) = (ROOT / name).glob("weights.*")
    torch.testing.assert_close(torch.tensor(describe(path)), torch.tensor(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_current_version_of_a_format_has_golden_files(name):
    assert f"{name}-{GOLDEN[name].version}" in FOLDERS, "run scripts/golden_files.py"


def test_golden_files_are_small():
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < 500_000

"""The `doap features` command."""

import json
from typing import get_args, get_type_hints

from oracles.photos import write_photo


def test_a_folder_becomes_feature_files(doap, tmp_path):
    for seed in range(2):
        write_photo(tmp_path / "images" / f"{seed}.png", seed, 120, 160)
    (tmp_path / "images" / "cut.png").write_bytes((tmp_path / "images" / "0.png").read_bytes()[:2000])
    out = tmp_path / "features"
    command = ["features", tmp_path / "images", "--out", out, "--descriptor", "rootsift", "--to"]
    ran = doap(*command, "opensfm", "--json")
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert (values["out"], values["extracted"], list(values["skipped"])) == (str(out), 2, ["cut.png"])
    assert sorted(path.name for path in out.glob("*.npz")) == ["0.png.features.npz", "1.png.features.npz"]
    again = doap(*command, "opensfm")
    assert "0 images extracted, 2 unchanged, 1 skipped" in again.stdout
    assert doap(*command, "bundler").returncode == 2


def test_formats_are_those_of_the_library():
    from doap.cli.features import features
    from doap.export.features import FEATURE_FORMATS

    assert get_args(get_type_hints(features)["to"]) == tuple(FEATURE_FORMATS)

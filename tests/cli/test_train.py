"""`doap train` reports what happened: steps, time, and the change of mAP."""

import json
import re

import doap as library
from doap.data.builders import build_from_images
from doap.images.synthetic_views import SyntheticViews
from oracles.photos import write_photo


def test_the_command_reports_what_happened(doap, tmp_path):
    for seed in range(4):
        write_photo(tmp_path / "photos" / f"scene{seed}" / "1.png", seed, height=120, width=160)
    views = SyntheticViews(count=2, keypoints=20)
    build_from_images(tmp_path / "photos", tmp_path / "set.patches", views=views)
    library.Descriptor.build("l2net", dim=8).save(tmp_path / "init.safetensors")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[data]\nbatch_size = 8\n[network]\ndim = 8\n[schedule]\nsteps = 7\n")
    command = ("train", recipe, "--data", tmp_path / "set.patches", "--init", tmp_path / "init.safetensors")
    command += ("--out", tmp_path / "run", "--device", "cpu")
    ran = doap(*command)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    shown = re.match(r"mAP (0\.\d+) → 0\.\d+ on held-out scenes after 7 steps \(\S+ s, \S+ s per step\): ", lines[1])
    assert re.match(r"best: mAP 0\.\d+, FPR95 \d\.\d+ at step \d", lines[2])
    values = json.loads(doap(*command, "--json").stdout)
    assert values["steps"] == 7
    assert f"{values['initial_map']:.3f}" == shown[1]
    assert values["map"] >= values["initial_map"]

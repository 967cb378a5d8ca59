"""The loop from end to end, on patches of synthetic photos: it learns, resumes exactly, and spans ranks."""

import json
import random
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import doap
from doap._support.errors import DataError
from doap.data.builders import build_from_images
from doap.images.synthetic_views import SyntheticViews
from doap.loss import second_order_difference
from doap.training import Config, read_log, train
from doap.training.distributed import joined
from doap.training.loop import _Run
from doap.training.step import similarity_difference
from doap.types import Relation
from oracles.forked import Forked
from oracles.photos import write_photo
from oracles.ranks import run_with_torchrun

RECIPES = Path(__file__).parents[2] / "recipes"
SAVE_WEIGHTS_OF_EACH_RANK = """
import sys
import time
from pathlib import Path
import torch
from doap.training import loop
from doap.training.config import Config

recipe, out = map(Path, sys.argv[1:])
finish = loop._Run._end

def save_and_finish(run):
    torch.save(run.descriptor.state_dict(), out / f"rank{run.ranks.rank}.pt")
    finish(run)

loop._Run._end = save_and_finish
loop.train(Config.model_validate_json(recipe.read_text()), out, device="cpu")
def group_threads():
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]

# The thread ends soon after the group.
deadline = time.monotonic() + 30
while group_threads() and time.monotonic() < deadline:
    time.sleep(0.1)
assert not group_threads(), "threads of the process group are still running"
"""


def config(patches, **sections):
    base = {
        "data": {"train": patches, "batch_size": 64, **sections.pop("data", {})},
        "network": {"name": "fast", "dim": 16, **sections.pop("network", {})},
        "schedule": {"steps": 6},
        "run": {"log_every": 2, "validate_every": 3, "checkpoint_every": 2, **sections.pop("run", {})},
    }
    return Config.model_validate({**base, **sections})


@pytest.fixture(scope="module")
def trained(patches, tmp_path_factory):
    """The best weights of a finished run of the default recipe of these tests; its folder is not to be changed."""
    return train(config(patches), tmp_path_factory.mktemp("trained"))


COMMAND_LINE = "import torch; torch.set_num_threads(1); from doap.cli import main; main()"


def start_command(recipe, patches, out, *more):
    """Start `doap train`."""
    return Forked(COMMAND_LINE, "train", recipe, "--data", patches, "--out", out, *more)


def test_toy_runs_end_to_end(patches, tmp_path):
    ran = start_command(RECIPES / "toy.toml", patches, tmp_path / "run", "--json").wait()
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert 0 < result["map"] <= 1
    events = read_log(tmp_path / "run" / "log.jsonl")
    assert [event["kind"] for event in events if event["kind"] != "train"] == [
        "start",
        "validation",
        "validation",
        "end",
    ]
    assert set(events[0]["baselines"]) == {"sift", "rootsift"}
    losses = [event["loss"] for event in events if event["kind"] == "train"]
    assert losses[-1] < losses[0]
    assert (tmp_path / "run" / "report.html").stat().st_size > 5000
    best = doap.load(result["best"])
    assert best.metadata["recipe"]["schedule"]["steps"] == 12


SMALL = """
[data]
batch_size = 64
[network]
name = "fast"
dim = 16
[schedule]
steps = 12
[run]
log_every = 4
validate_every = 6
checkpoint_every = 3
"""


def test_a_run_killed_at_random_moments_and_resumed_has_the_same_weights(patches, tmp_path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(SMALL)

    def weights(run):
        return {name: load_file(tmp_path / run / f"{name}.safetensors") for name in ("last", "best")}

    start_command(recipe, patches, tmp_path / "whole").wait().check_returncode()
    # Events have these steps.
    for step in sorted(random.Random(0).sample((0, 4, 6, 8), 2)):
        running = start_command(recipe, patches, tmp_path / "killed")
        log = tmp_path / "killed" / "log.jsonl"
        while running.process.is_alive():
            if log.exists() and any(event["step"] >= step for event in read_log(log)):
                running.process.kill()
            time.sleep(0.02)
        assert running.wait().returncode == -signal.SIGKILL
    start_command(recipe, patches, tmp_path / "killed").wait().check_returncode()
    for whole, killed in zip(weights("whole").values(), weights("killed").values(), strict=True):
        assert whole.keys() == killed.keys()
        assert all(torch.equal(whole[name], killed[name]) for name in whole)


@pytest.mark.parametrize("kind", ["start", "end"])
def test_a_run_interrupted_before_its_first_or_after_its_last_step_logs_no_event_twice(patches, tmp_path, kind):
    def interrupt(event):
        if event["kind"] == kind:
            raise KeyboardInterrupt

    recipe = config(patches, run={"log_every": 1, "checkpoint_every": 1}, schedule={"steps": 2})
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "run", on_event=interrupt)
    # The second call completes the run, and the third one changes nothing.
    for _ in range(2):
        train(recipe, tmp_path / "run")
        kinds = [event["kind"] for event in read_log(tmp_path / "run" / "log.jsonl")]
        assert kinds == ["start", "train", "train", "validation", "end"]


@pytest.mark.parametrize(("kind", "name"), [("real", "listwise-ap"), ("binary", "hardest-triplet")])
def test_a_recipe_adds_the_terms_of_second_order_and_of_the_teacher_to_any_loss(patches, tmp_path, kind, name):
    generator = torch.Generator().manual_seed(0)
    descriptors, taught = (torch.randn(12, width, generator=generator) for width in (16, 3))
    relation, values = Relation(torch.arange(12) // 3), []
    for number, weight in enumerate((0.0, 0.3)):
        recipe = config(patches, network={"kind": kind}, loss={"name": name, "second_order": weight})
        (tmp_path / f"{number}").mkdir()
        with joined() as ranks, closing(_Run(recipe, tmp_path / f"{number}", ranks, None)) as run:
            values.append(run._loss(descriptors, relation, taught if weight else None))
    terms = 0.3 * second_order_difference(descriptors, relation.groups, kind)
    terms += 10 * similarity_difference(descriptors, taught, kind)
    torch.testing.assert_close(values[1] - values[0], terms)


def test_frozen_initial_layers_stay_as_they_are_and_the_others_are_trained(patches, tmp_path):
    first = train(config(patches, network={"name": "l2net"}, schedule={"steps": 1}), tmp_path / "first")
    bits = {"name": "l2net", "dim": 32, "kind": "binary", "inner": 16, "init": first, "freeze_init": True}
    rates = (1e-9, 0.5)
    for rate in rates:
        train(config(patches, network=bits, optimiser={"learning_rate": rate}), tmp_path / f"{rate}")
    untrained, end = (load_file(tmp_path / f"{rate}" / "last.safetensors") for rate in rates)
    # Weights, statistics of batch normalisation and numbers of batches.
    start = load_file(first)
    assert all(torch.equal(end[name], start[name]) for name in start)
    assert {name.split(".")[0] for name in end.keys() - start.keys()} == {"widen"}
    assert not torch.allclose(end["widen.0.weight"], untrained["widen.0.weight"])
    assert not torch.allclose(end["widen.1.running_mean"], untrained["widen.1.running_mean"])


@pytest.mark.parametrize("bits", [16, 32])
def test_a_real_descriptor_initialises_a_binary_one_of_another_size_except_for_its_output_layer(
    patches, trained, tmp_path, bits
):
    slow = {"optimiser": {"learning_rate": 1e-9}, "schedule": {"steps": 2}}
    network = {"kind": "binary", "dim": bits, "init": trained}
    second = train(config(patches, network=network, **slow), tmp_path)
    start, end = load_file(trained), load_file(second)
    learned = [name for name in start if name.endswith("weight")]
    new = [
        name for name in learned if start[name].shape != end[name].shape or not torch.allclose(start[name], end[name])
    ]
    assert new == ([] if bits == 16 else ["features.12.weight"])
    assert doap.load(second).describe_patches(torch.rand(3, 1, 32, 32)).shape == (3, bits // 8)


def test_a_network_with_a_teacher_trains_and_its_ledger_names_the_photos_of_the_teacher(patches, tmp_path):
    recipe = config(patches, teacher={"file": "doap-fast"}, schedule={"steps": 2}, run={"micro_batch": 20})
    best = train(recipe, tmp_path)
    ledger = json.loads((patches / "meta.json").read_text())["ledger"]
    assert doap.load(best).metadata["ledger"] == [*ledger, *doap.load("doap-fast").metadata["ledger"]]
    assert not any("ap" in event for event in read_log(tmp_path / "log.jsonl"))


def test_two_processes_have_identical_weights_and_log_once(patches, tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(SAVE_WEIGHTS_OF_EACH_RANK)
    (tmp_path / "recipe.json").write_text(config(patches).model_dump_json())
    run_with_torchrun(script, tmp_path / "recipe.json", tmp_path)
    one, other = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    learned = [name for name in one if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))]
    assert all(torch.equal(one[name], other[name]) for name in learned)
    events = read_log(tmp_path / "log.jsonl")
    assert events[0]["ranks"] == 2
    assert [event["kind"] for event in events].count("end") == 1


def test_initial_weights_stay_the_best_if_no_step_improves_on_them(patches, tmp_path):
    first = doap.load("doap-fast")
    harmful = config(patches, network={"dim": first.dim, "init": "doap-fast"}, optimiser={"learning_rate": 1e3})
    second = train(harmful, tmp_path / "second")
    start, end = first.network.state_dict(), load_file(second)
    assert all(torch.equal(start[name], end[name]) for name in start)
    events = read_log(tmp_path / "second" / "log.jsonl")
    assert [(event["step"], event["best"]) for event in events if event["kind"] == "validation"] == [
        (0, True),
        (3, False),
        (6, False),
    ]
    assert sum("no step improved" in event.get("text", "") for event in events) == 1
    assert "no step improved" in (tmp_path / "second" / "report.html").read_text()


def test_saved_weights_are_averaged_with_the_initial_weights(patches, trained, tmp_path):
    saved = {}
    for share in (0.0, 0.5):
        adapted = config(patches, network={"init": trained, "init_weight": share}, optimiser={"learning_rate": 0.5})
        train(adapted, tmp_path / f"{share}")
        saved[share] = load_file(tmp_path / f"{share}" / "last.safetensors")
    for name, before in load_file(trained).items():
        if before.is_floating_point():
            torch.testing.assert_close(saved[0.5][name], (before + saved[0.0][name]) / 2)
    assert not torch.equal(saved[0.0]["features.0.weight"], saved[0.5]["features.0.weight"])


def test_fine_tuned_weights_keep_the_ledger_and_the_ratio_of_the_initial_ones(patches, trained, tmp_path):
    ledger = [{"file": "a.jpg", "licence": "CC0-1.0"}]
    first = doap.load(trained).save(tmp_path / "first.safetensors", ledger=ledger, ratio=0.7)
    adapted = config(patches, network={"init": first}, optimiser={"learning_rate": 0.5}, schedule={"steps": 3})
    second = train(adapted, tmp_path / "second")
    metadata = doap.load(second).metadata
    assert metadata["ratio"] == 0.7
    assert metadata["ledger"][0]["file"] == "a.jpg"
    assert metadata["ledger"][1:] == json.loads((patches / "meta.json").read_text())["ledger"]
    assert [recipe["schedule"]["steps"] for recipe in (*metadata["earlier_recipes"], metadata["recipe"])] == [6, 3]


def test_a_loss_on_the_regression_set_is_logged_and_warned_of(patches, trained, tmp_path):
    recipe = config(patches, data={"regression_set": patches}, network={"init": trained})
    train(recipe, tmp_path)
    assert "Regression set: mAP" in (tmp_path / "report.html").read_text()
    torch.manual_seed(0)
    for descriptor, warned in ((doap.load(trained), False), (doap.Descriptor.build("fast", dim=16), True)):
        events = []
        (tmp_path / f"{warned}").mkdir()
        with joined() as ranks, closing(_Run(recipe, tmp_path / f"{warned}", ranks, events.append)) as run:
            run._check_regression(descriptor)
        assert (events[0]["before"] - events[0]["after"] > 0.01) == warned
        assert [event["kind"] for event in events] == ["regression_set", "warning"][: 1 + warned]


@pytest.fixture(scope="module")
def wide_patches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    write_photo(folder / "photos" / "scene" / "1.png", 9)
    views = SyntheticViews(count=2, keypoints=20)
    return build_from_images(folder / "photos", folder / "wide.patches", views=views, extent=1.5)


def test_a_descriptor_trained_on_wide_patches_is_saved_for_the_width_of_validation(patches, wide_patches, tmp_path):
    recipe = config(wide_patches, data={"validation": patches}, network={"extent": 1.0}, schedule={"steps": 1})
    assert doap.load(train(recipe, tmp_path / "run")).extent == 1.0


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["real", "binary"])
def test_training_on_a_gpu_runs_and_resumes(patches, tmp_path, cuda, kind):
    recipe = config(patches, network={"kind": kind}, run={"micro_batch": 20})
    best = train(recipe, tmp_path, device=cuda)
    assert read_log(tmp_path / "log.jsonl")[0]["device"].startswith("cuda")
    (tmp_path / "report.html").unlink()
    assert train(recipe, tmp_path, device=cuda) == best
    assert doap.load(best, device="cpu").dim == 16


@pytest.mark.parametrize(
    "sections",
    [
        {"data": {"train": None}},
        {"schedule": {"steps": 8}},
        {"network": {"freeze_init": True}},
        {"network": {"init_weight": 0.5}},
        {"network": {"init": "trained", "freeze_init": True}},
        {"network": {"init": "trained", "dim": 32}},
        {"network": {"init": "doap-256bit", "dim": 256}},
        {"data": {"regression_set": "set"}},
        {"teacher": {"file": "doap-256bit"}},
        {"data": {"validation": "wide"}},
        {"data": {"train": "wide"}, "network": {"extent": 1.0}},
    ],
)
def test_a_recipe_that_contradicts_its_files_is_refused(patches, wide_patches, trained, tmp_path, sections):
    """One changes the recipe of a run that exists, the others have no run yet."""
    files = {"trained": trained, "set": patches, "wide": wide_patches}
    named = {
        name: {key: files.get(value, value) for key, value in section.items()} for name, section in sections.items()
    }
    with pytest.raises(DataError):
        train(config(patches, **named), trained.parent if "schedule" in sections else tmp_path / "run")


def test_a_time_budget_ends_the_run_with_a_warning_if_it_allows_few_steps(patches, tmp_path):
    train(config(patches, schedule={"minutes": 0.02}), tmp_path)
    *_, warning, end = read_log(tmp_path / "log.jsonl")
    assert (warning["kind"], end["kind"]) == ("warning", "end")
    assert f"allowed {end['step']} step" in warning["text"]
    assert end["step"] >= 1

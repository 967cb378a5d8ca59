"""The training loop, from top to bottom: data, model, optimiser, schedule, steps, validation, checkpoints.

RUN/
├── log.jsonl            one line per event
├── state.pt             checkpoint to resume from
├── last.safetensors     the descriptor after the last step
├── best.safetensors     the descriptor with the highest validation mAP
├── gallery.npz          its worst errors
└── report.html          curves, gallery and recipe
"""

from __future__ import annotations

import copy
import itertools
import json
import platform
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from doap import __version__
from doap._support.device import resolve_precision
from doap._support.errors import DataError
from doap._support.files import OutputLock, atomic_write, make_folder
from doap._support.text import counted
from doap.baselines import rootsift, sift
from doap.data.store import join_ledgers
from doap.descriptor import Descriptor
from doap.evaluation.validation import hardest, retrieve, validate
from doap.loss import second_order_difference
from doap.networks import parameter_groups
from doap.pipeline import describe_patches
from doap.training.checkpoint import load_state, save_state
from doap.training.config import Config, read_recipe
from doap.training.distributed import Ranks, joined
from doap.training.log import Log
from doap.training.page import write_training_page
from doap.training.setup import (
    StepSchedule,
    build_data,
    build_descriptor,
    build_loss,
    build_regression_sample,
    load_teacher,
    saved_extent,
)
from doap.training.step import full_step, micro_batch_step, seed_step, similarity_difference
from doap.types import Relation

OnEvent = Callable[[dict[str, Any]], None]
"""Callback for the events of a run: the lines of the log, as dictionaries."""

BASELINES = {"sift": sift, "rootsift": rootsift}
FEW_STEPS = 100
"""Number of steps below which the run warns that its time budget is too short."""
MAX_REGRESSION = 0.01
"""Loss of mAP on the regression set above which the run warns."""


def train(
    recipe: Config | str | Path,
    out: str | Path,
    *,
    device: str | torch.device = "auto",
    on_event: OnEvent | None = None,
) -> Path:
    """Train a descriptor. The same call resumes an interrupted run.

    Under `torchrun` each process computes its part of every batch. On one CPU with the same number of threads, a
    resumed run has exactly the weights of an uninterrupted one, unless the schedule is in minutes.

    >>> import doap
    >>> best = doap.train("recipes/finetune.toml", "runs/mine")  # doctest: +SKIP

    Args:
        recipe: The recipe, or its TOML file.
        out: Folder of the run; see the top of this file for its contents. A second run in it at the same time is
            refused.
        device: Device to train on: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        on_event: Called with each event that is logged.

    Returns:
        The file of the best descriptor.
    """
    config = recipe if isinstance(recipe, Config) else read_recipe(recipe)
    out = Path(out)
    with (
        joined(device) as ranks,
        # Only the first rank writes.
        OutputLock(make_folder(out), inside=True) if ranks.first else nullcontext(),
        closing(_Run(config, out, ranks, on_event)) as run,
    ):
        run.go()
    return out / "best.safetensors"


class _Run:
    """A run on one rank. The constructor builds the parts in the order above; `go` is the loop."""

    def __init__(self, config: Config, out: Path, ranks: Ranks, on_event: OnEvent | None) -> None:
        self.config, self.out, self.ranks, self.on_event = config, out, ranks, on_event
        self.recipe: dict[str, Any] = json.loads(config.model_dump_json())

        # Data: batches of whole groups, and a validation sample of other scenes.
        self.source, self.batches, self.validation = build_data(config, ranks)
        self.extent = saved_extent(config, self.source)
        self.regression_sample = build_regression_sample(config)

        # Model.
        torch.manual_seed(config.run.seed)
        self.descriptor = build_descriptor(config).to(ranks.device)
        if self.descriptor.patch_size != self.source.patch_size:
            raise DataError(
                f"{config.data.train}: expected patches of {self.descriptor.patch_size} pixels for this network, got "
                f"{self.source.patch_size}; build the set with --patch-size {self.descriptor.patch_size}"
            )
        self.initial = {name: value.clone() for name, value in self.descriptor.state_dict().items()}
        self.teacher, taught_by = load_teacher(config, self.descriptor.patch_size, ranks)
        # The ledger names everything that the weights depend on, including the data of initial weights and teacher.
        self.ledger = join_ledgers(self.descriptor.metadata.get("ledger", []), self.source.meta["ledger"], taught_by)
        self.network = ranks.share(self.descriptor)
        self.precision = resolve_precision(config.run.precision, ranks.device, "bfloat16")
        self.loss = build_loss(config, ranks)

        # Optimiser: the layer that predicts the spatial transformation has a hundredth of the learning rate.
        self.optimiser = torch.optim.SGD(
            parameter_groups(self.descriptor, config.optimiser.learning_rate * config.data.batch_size / 1024),
            momentum=config.optimiser.momentum,
            weight_decay=config.optimiser.weight_decay,
        )
        self.full_rates = [group["lr"] for group in self.optimiser.param_groups]

        # Schedule, and the checkpoint of an interrupted run.
        self.schedule = StepSchedule.of(config.schedule, len(self.batches))
        self.parts = {"network": self.descriptor, "optimiser": self.optimiser, "loss": self.loss}
        self.progress = load_state(out / "state.pt", self.recipe, self.parts)
        self.complete = self._finished() and (out / "report.html").exists()
        writes = ranks.first and not self.complete
        self.log = Log(out / "log.jsonl", self.progress.log_size) if writes else None

    def go(self) -> None:
        """Run the remaining steps, with logging, validation and checkpoints at their intervals."""
        progress, run = self.progress, self.config.run
        if self.complete:
            return
        begin = time.perf_counter() - progress.seconds
        if progress.step == 0:
            self._start()
        losses: list[Tensor] = []
        since, patches_done = time.perf_counter(), 0
        for patches, relation in self._loader():
            losses.append(self._step(patches, relation))
            rate = self.optimiser.param_groups[0]["lr"]
            progress.step += 1
            progress.seconds = self.ranks.agree(time.perf_counter() - begin)
            last = self._finished()
            patches_done += len(patches) * self.ranks.world
            if progress.step % run.log_every == 0 or last:
                loss = float(torch.stack(losses).mean())
                speed = patches_done / (time.perf_counter() - since)
                # The metrics are those of a loss without further terms.
                metrics = {} if self.teacher or self.config.loss.second_order else self.loss.metrics(loss)
                self._emit("train", loss=loss, **metrics, learning_rate=rate, patches_per_second=speed)
                losses, since, patches_done = [], time.perf_counter(), 0
            if progress.step % run.validate_every == 0 or last:
                self._validate()
                since = time.perf_counter()
            if self.log is not None and (progress.step % run.checkpoint_every == 0 or last):
                progress.log_size = self.log.size
                save_state(self.out / "state.pt", self.recipe, self.parts, progress)
            if last:
                break
        self._end()

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def _step(self, patches: Tensor, relation: Relation) -> Tensor:
        """Run one step of the optimiser on a batch of uint8 patches; return the loss."""
        run, step = self.config.run, self.progress.step
        rate = self.schedule.rate(step, self.progress.seconds)
        for group, full_rate in zip(self.optimiser.param_groups, self.full_rates, strict=True):
            group["lr"] = full_rate * rate
        seed = seed_step(run.seed, step * self.ranks.world + self.ranks.rank)
        grey = patches.to(self.ranks.device).float().div_(255).contiguous(memory_format=torch.channels_last)
        self.optimiser.zero_grad(set_to_none=True)
        loss = partial(self._loss, taught=self.teacher.describe_patches(grey) if self.teacher else None)
        if run.micro_batch is None:
            value = full_step(self.network, loss, grey, relation, self.precision)
        else:
            value = micro_batch_step(self.network, loss, grey, relation, self.precision, run.micro_batch, seed)
        self.optimiser.step()
        return value

    def _loss(self, descriptors: Tensor, relation: Relation, taught: Tensor | None) -> Tensor:
        """Return the loss of a batch with its second-order term and that of the teacher; each rank has its own."""
        value, weight, kind = self.loss(descriptors, relation), self.config.loss.second_order, self.descriptor.kind
        if weight:
            value = value + weight * second_order_difference(descriptors, relation.groups, kind)
        if taught is not None:
            value = value + self.config.teacher.weight * similarity_difference(descriptors, taught, kind)
        return value

    def _finished(self) -> bool:
        return self.schedule.progress(self.progress.step, self.progress.seconds) >= 1

    def _loader(self) -> DataLoader[Any]:
        first, last = self.progress.step, self.schedule.steps
        steps = itertools.count(first) if last is None else range(first, last)
        return DataLoader(self.batches, batch_size=None, sampler=steps, num_workers=self.config.data.workers)

    def _start(self) -> None:
        """Log the recipe, the environment and the scores of the baselines; validate initial weights."""
        scores = {name: validate(create(), self.validation) for name, create in BASELINES.items()} if self.log else {}
        self._emit(
            "start",
            config=self.recipe,
            versions={"doap": __version__, "torch": torch.__version__, "python": platform.python_version()},
            device=str(self.ranks.device),
            ranks=self.ranks.world,
            threads=torch.get_num_threads(),
            precision=str(self.precision).removeprefix("torch."),
            steps=self.schedule.steps,
            baselines={name: {"map": one.map, "fpr95": one.fpr95} for name, one in scores.items()},
        )
        if self.config.network.init is not None:
            self._compare_extents()
            # Initial weights that no step improves on stay the best.
            self._validate()

    def _validate(self) -> None:
        """Validate the descriptor; save it if it is the best so far."""
        if self.log is not None:
            descriptor = self._averaged()
            scores = validate(descriptor, self.validation)
            best = scores.map > self.progress.best_map
            if best:
                self.progress.best_map, self.progress.best_step = scores.map, self.progress.step
                self._save(descriptor, "best.safetensors")
            self._emit("validation", map=scores.map, fpr95=scores.fpr95, best=best)
        self.ranks.wait()

    def _averaged(self) -> Descriptor:
        """Return the descriptor to validate and save: averaged with the initial weights by `init_weight`."""
        init_weight = self.config.network.init_weight
        if not init_weight:
            return self.descriptor
        average = copy.deepcopy(self.descriptor)
        for name, value in average.state_dict().items():
            if value.is_floating_point():
                value.lerp_(self.initial[name], init_weight)
        return average

    def _end(self) -> None:
        """Save the last descriptor, check the best one on the regression set, and write gallery and report."""
        if self.log is None:
            return
        if self.schedule.seconds is not None and self.progress.step < FEW_STEPS:
            self._emit(
                "warning",
                text=f"the time budget allowed {counted(self.progress.step, 'step')}; fewer than {FEW_STEPS} hardly "
                "change a descriptor. Use a larger --budget, a smaller data.batch_size, or a faster machine",
            )
        self._save(self._averaged(), "last.safetensors")
        best = Descriptor.load(self.out / "best.safetensors", device=self.ranks.device)
        if self.progress.best_step == 0:
            self._emit(
                "warning",
                text=f"{self.config.network.init}: no step improved on these weights on the held-out patches, so "
                "best.safetensors holds them; use them unchanged, or train on more photographs",
            )
        self._check_regression(best)
        self._emit("end")
        answers = retrieve(describe_patches(best, self.validation.patches), self.validation.relation)
        triples, distances = hardest(answers, self.validation)
        with atomic_write(self.out / "gallery.npz") as unfinished, unfinished.open("wb") as file:
            np.savez(file, patches=self.validation.patches[triples], distances=distances)
        write_training_page(self.out)

    def _compare_extents(self) -> None:
        """Warn if the initial weights are used at another extent than the trained ones will be."""
        before = self.descriptor.extent
        if before != self.extent:
            self._emit(
                "warning",
                text=f"{self.config.network.init}: used with patches of extent {before:g}, but the trained descriptor "
                f"will be used with {self.extent:g}; build the set with --extent {before:g}, or set network.extent",
            )

    def _check_regression(self, best: Descriptor) -> None:
        """Compare the best descriptor with the initial weights on the regression set; warn of a loss."""
        init = self.config.network.init
        if self.regression_sample is None or init is None:
            return
        initial = Descriptor.load(init, device=self.ranks.device, precision="float32")
        before = validate(initial, self.regression_sample).map
        after = validate(best, self.regression_sample).map
        self._emit("regression_set", before=before, after=after)
        if before - after > MAX_REGRESSION:
            self._emit(
                "warning",
                text=f"{self.config.data.regression_set}: mAP fell from {before:.4f} to {after:.4f}, "
                f"{100 * (before - after):.1f} points lost by fine-tuning; keep both files, or train for a shorter "
                "time, at a lower learning rate, or on more varied photographs",
            )

    def _save(self, descriptor: Descriptor, name: str) -> None:
        descriptor.save(self.out / name, recipe=self.recipe, ledger=self.ledger, extent=self.extent)

    def _emit(self, kind: str, **values: Any) -> None:
        """Log an event and pass it to the callback."""
        if self.log is not None:
            event = {"step": self.progress.step, "seconds": round(self.progress.seconds, 3), **values}
            self.log.write(kind, **event)
            if self.on_event is not None:
                self.on_event({"kind": kind, **event})

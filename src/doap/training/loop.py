"""The training loop, top to bottom: data → model → optimiser → schedule → step → validation → checkpoint.

RUN/
├── recipe.json          the resolved recipe
├── log.jsonl            one line per event
├── state.pt             what resumes
├── last.safetensors     the descriptor after the last step
├── best.safetensors     the one with the highest validation mAP
├── gallery.npz          its hardest errors
└── report.html          curves, gallery, recipe
"""

from __future__ import annotations

import copy
import itertools
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from doap import __version__
from doap.baselines import BASELINES
from doap.data.batches import Batches
from doap.data.mining import mine
from doap.data.scenes import hold_out
from doap.data.store import PatchSet, join_ledgers, open_set
from doap.descriptor import Descriptor
from doap.device import resolve_precision
from doap.errors import DataError
from doap.losses import HardestTriplet, ListwiseAP
from doap.networks import parameter_groups
from doap.pipeline import describe_patches
from doap.training.checkpoint import load_state, save_state
from doap.training.config import SAMPLERS, Config
from doap.training.distributed import Ranks, joined
from doap.training.log import Log
from doap.training.page import write_page
from doap.training.schedule import StepSchedule
from doap.training.step import full_step, micro_batch_step, seed_step
from doap.validation.retrieval import hardest, retrieve
from doap.validation.sample import PatchSample
from doap.validation.scores import validate

Report = Callable[[dict[str, Any]], None]

MAY_LOSE = 0.01
"""Of mAP on the general set, by adapting to another one, before it is warned of."""


def train(config: Config, out: Path, *, report: Report | None = None, allocator: str = "default") -> Path:
    """Train a descriptor; the same call resumes a killed run, and gives the weights of an undisturbed one.

    Under `torchrun` each process takes its part of every list. Resuming is exact to the bit on one CPU with the same
    number of threads, unless the schedule is a budget of time.

    Args:
        config: the recipe.
        out: RUN, the folder to work in.
        report: told each event that is logged.
        allocator: what the memory allocator was set to, for the log.

    Returns:
        The best descriptor's file.
    """
    with joined() as ranks, closing(_Run(config, out, ranks, report or (lambda _: None), allocator)) as run:
        run.go()
    return out / "best.safetensors"


class _Run:
    """One run on one rank. The constructor sets up, in the order of this file's first line; `go` is the loop."""

    def __init__(self, config: Config, out: Path, ranks: Ranks, report: Report, allocator: str) -> None:
        self.config, self.out, self.ranks, self.report, self.allocator = config, out, ranks, report, allocator
        self.recipe: dict[str, Any] = json.loads(config.model_dump_json())
        out.mkdir(parents=True, exist_ok=True)

        # Data: lists of whole groups, and places that training never sees.
        self.source, self.lists, self.validation = _data(config, ranks)
        self.general = _general(config)

        # Model.
        torch.manual_seed(config.run.seed)
        self.descriptor = _descriptor(config).to(ranks.device).train()
        if self.descriptor.patch_size != self.source.patch_size:
            raise DataError(
                f"{config.data.train}: expected patches of {self.descriptor.patch_size} pixels, the network's, got "
                f"{self.source.patch_size}; build the set with --size {self.descriptor.patch_size}"
            )
        self.first = {name: value.clone() for name, value in self.descriptor.state_dict().items()}
        # Who asks what the weights have learned from is told of all of it, the start's photos too.
        self.ledger = join_ledgers(self.descriptor.metadata.get("ledger", []), self.source.meta["ledger"])
        self.network = ranks.share(self.descriptor)
        if config.run.compile:
            self.network = torch.compile(self.network)  # type: ignore[assignment]
        self.precision = resolve_precision(config.run.precision, ranks.device, "bfloat16")
        self.loss = _loss(config, ranks)

        # Optimiser: the layer that predicts the spatial transformation learns a hundredth as fast.
        self.optimiser = torch.optim.SGD(
            parameter_groups(self.descriptor, config.optimiser.learning_rate * config.data.batch_size / 1024),
            momentum=config.optimiser.momentum,
            weight_decay=config.optimiser.weight_decay,
        )
        self.full_rates = [group["lr"] for group in self.optimiser.param_groups]

        # Schedule, and where an earlier run was killed.
        self.plan = StepSchedule.of(config.schedule, len(self.lists))
        self.progress = load_state(out / "state.pt", self.recipe, self.descriptor, self.optimiser)
        self.log = (
            Log(out / "log.jsonl", self.progress.step, tensorboard=config.run.tensorboard) if ranks.first else None
        )

    def go(self) -> None:
        """All steps that are left, each: learning rate, gradient, update; now and then validation and checkpoint."""
        progress, every = self.progress, self.config.run
        if self._finished() and (self.out / "report.html").exists():
            return
        begun = time.perf_counter() - progress.seconds
        if progress.step == 0:
            self._start()
            if self.config.network.start is not None:
                self._compare_extents()
                self._validate()  # what no step improves on stays the best
        values, since, seen = [], time.perf_counter(), 0
        for patches, relation in self._loader():
            rate = self.plan.rate(progress.step, progress.seconds)
            for group, full in zip(self.optimiser.param_groups, self.full_rates, strict=True):
                group["lr"] = full * rate
            self._set_relaxation()
            seed = seed_step(every.seed, progress.step * self.ranks.world + self.ranks.rank)
            bright = patches.to(self.ranks.device).float().div_(255).contiguous(memory_format=torch.channels_last)

            self.optimiser.zero_grad(set_to_none=True)
            if every.piece is None:
                value = full_step(self.network, self.loss, bright, relation, self.precision)
            else:
                value = micro_batch_step(self.network, self.loss, bright, relation, self.precision, every.piece, seed)
            self.optimiser.step()

            progress.step += 1
            progress.seconds = self.ranks.agree(time.perf_counter() - begun)
            last = self._finished()
            values.append(value)
            seen += len(patches) * self.ranks.world
            if progress.step % every.log_every == 0 or last:
                mean = float(torch.stack(values).mean())
                speed = seen / (time.perf_counter() - since)
                ap = {"ap": 1 - mean} if isinstance(self.loss, ListwiseAP) else {}
                self._tell("train", loss=mean, **ap, learning_rate=self.full_rates[0] * rate, patches_per_second=speed)
                values, since, seen = [], time.perf_counter(), 0
            if progress.step % every.validate_every == 0 or last:
                self._validate()
                since = time.perf_counter()
            if progress.step % every.checkpoint_every == 0 or last:
                self._checkpoint()
            if last:
                break
        self._end()

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def _finished(self) -> bool:
        return self.plan.progress(self.progress.step, self.progress.seconds) >= 1

    def _set_relaxation(self) -> None:
        """Bins, and the slope of bits, from the recipe's first to its last in proportion to the way that is done."""
        if not isinstance(self.loss, ListwiseAP):
            return
        done = self.plan.progress(self.progress.step, self.progress.seconds)
        first, last = self.config.loss.initial_bins, self.config.bins
        if first is not None and last is not None:
            self.loss.bins = round(first + done * (last - first))
        self.loss.slope = 1 + done * (self.config.loss.final_slope - 1)

    def _loader(self) -> DataLoader[Any]:
        steps = _Steps(self.progress.step, self.plan.steps)
        return DataLoader(self.lists, batch_size=None, sampler=steps, num_workers=self.config.data.workers)

    def _start(self) -> None:
        """What the run is, and what classical descriptors make of the same held-out patches."""
        judged = (
            {name: validate(BASELINES[name](), self.validation) for name in ("sift", "rootsift")} if self.log else {}
        )
        self._tell(
            "start",
            config=self.recipe,
            versions={"doap": __version__, "torch": torch.__version__, "python": platform.python_version()},
            device=str(self.ranks.device),
            ranks=self.ranks.world,
            threads=torch.get_num_threads(),
            precision=str(self.precision).removeprefix("torch."),
            allocator=self.allocator,
            steps=self.plan.steps,
            peers={name: {"map": one.map, "fpr95": one.fpr95} for name, one in judged.items()},
        )

    def _validate(self) -> None:
        """Judge the descriptor on the held-out places; keep it if it is the best so far."""
        if self.log is not None:
            descriptor = self._result()
            judged = validate(descriptor, self.validation)
            best = judged.map > self.progress.best_map
            if best:
                self.progress.best_map, self.progress.best_step = judged.map, self.progress.step
                self._save(descriptor, "best.safetensors")
            self._tell("validation", map=judged.map, fpr95=judged.fpr95, best=best)
        self.ranks.wait()

    def _result(self) -> Descriptor:
        """What is judged and saved: the descriptor as it is, or a mean of it and of what it started from."""
        kept = self.config.network.kept
        if not kept:
            return self.descriptor
        mean = copy.deepcopy(self.descriptor)
        for name, value in mean.state_dict().items():
            if value.is_floating_point():
                value.lerp_(self.first[name], kept)
        return mean

    def _checkpoint(self) -> None:
        if self.log is not None:
            save_state(self.out / "state.pt", self.recipe, self.descriptor, self.optimiser, self.progress)

    def _end(self) -> None:
        if self.log is None:
            return
        self._save(self._result(), "last.safetensors")
        best = Descriptor.load(self.out / "best.safetensors")
        if self.progress.best_step == 0:
            self._tell(
                "warning",
                text=f"{self.config.network.start}: no step was better on the held-out patches than these weights, so "
                "best.safetensors holds them; use them as they are, or train on more photographs",
            )
        self._judge_elsewhere(best)
        self._tell("end")
        answers = retrieve(describe_patches(best, self.validation.patches), self.validation.relation)
        triples, distances = hardest(answers, self.validation)
        np.savez(self.out / "gallery.npz", patches=self.validation.patches[triples], distances=distances)
        write_page(self.out)

    def _compare_extents(self) -> None:
        """Weights know patches of one width; others they have to learn anew."""
        if (before := self.descriptor.extent) != self.source.extent:
            self._tell(
                "warning",
                text=f"{self.config.network.start}: knows patches of extent {before:g}, and "
                f"{self.config.data.train} has {self.source.extent:g}; to adapt it, build the set with "
                f"--extent {before:g}",
            )

    def _judge_elsewhere(self, best: Descriptor) -> None:
        """What adapting has cost on the general set, if there is one."""
        if self.general is None or self.config.network.start is None:
            return
        start = Descriptor.load(self.config.network.start, precision="float32")
        before, after = (validate(one, self.general).map for one in (start, best))
        self._tell("general", before=before, after=after)
        if before - after > MAY_LOSE:
            self._tell(
                "warning",
                text=f"{self.config.data.general}: mAP {before:.4f} before and {after:.4f} now, "
                f"{100 * (before - after):.1f} points lost by adapting; keep both files, or train shorter, at a lower "
                "rate, or on more kinds of photographs",
            )

    def _save(self, descriptor: Descriptor, name: str) -> None:
        descriptor.save(self.out / name, recipe=self.recipe, ledger=self.ledger, extent=self.source.extent)

    def _tell(self, kind: str, **values: Any) -> None:
        if self.log is not None:
            event = {"step": self.progress.step, "seconds": round(self.progress.seconds, 3), **values}
            self.log.write(kind, **event)
            self.report({"kind": kind, **event})


class _Steps:
    """The steps that are left, for a loader; without end where a budget of time decides."""

    def __init__(self, first: int, last: int | None) -> None:
        self.first, self.last = first, last

    def __iter__(self) -> Iterator[int]:
        return itertools.count(self.first) if self.last is None else iter(range(self.first, self.last))


def _data(config: Config, ranks: Ranks) -> tuple[PatchSet, Batches, PatchSample]:
    recipe = config.data
    if recipe.train is None:
        raise DataError("data.train: expected a patch-group set, got none; name it in the recipe or with --data")
    source = open_set(recipe.train)
    if recipe.validation is None:
        apart = hold_out(source, recipe.held_out, config.run.seed)
        validation = PatchSample.draw(source, among=apart)
    else:
        apart = np.zeros(len(source), dtype=bool)
        validation = PatchSample.draw(open_set(recipe.validation))
    settings = {"mixed": "tracks_share", "sequences": "scenes_per_batch", "sources": "sources_per_batch"}
    setting = settings.get(recipe.sampler)
    more = {setting: getattr(recipe, setting)} if setting else {}
    sampler = SAMPLERS[recipe.sampler](
        source, recipe.batch_size, config.run.seed, per_group=recipe.per_group, among=~apart, **more
    )
    lists = Batches(
        source,
        sampler,
        seed=config.run.seed,
        augment=recipe.augment,
        gain=recipe.gain,
        offset=recipe.offset,
        noise=recipe.noise,
        blur=recipe.blur,
        grain=recipe.grain,
        jpeg=recipe.jpeg,
        rank=ranks.rank,
        world=ranks.world,
        mined=mine(source, seed=config.run.seed) if recipe.mining else None,
    )
    return source, lists, validation


def _general(config: Config) -> PatchSample | None:
    recipe = config.data
    if recipe.general is None:
        return None
    if config.network.start is None:
        raise DataError(f"data.general: expected weights to start from beside it, got {recipe.general} and none")
    return PatchSample.draw(open_set(recipe.general))


def _descriptor(config: Config) -> Descriptor:
    recipe = config.network
    fresh = Descriptor.build(recipe.name, recipe.kind, dim=recipe.dim, dropout=recipe.dropout, inner=recipe.inner)
    if recipe.start is None:
        if recipe.kept:
            raise DataError(f"network.kept: expected weights to start from beside it, got {recipe.kept} and none")
        return fresh
    start = Descriptor.load(recipe.start)
    assert start.spec.network is not None
    if (start.spec.network, start.kind, start.dim) == (recipe.name, "real", recipe.inner):
        # What the new last layer looks at is what this descriptor was; the layer itself starts anew.
        fresh.network.load_state_dict({**fresh.network.state_dict(), **start.network.state_dict()})
    elif (start.kind, start.dim) == (recipe.kind, recipe.dim):
        fresh = Descriptor.build(start.spec.network, start.kind, **{**start.spec.arguments, "dropout": recipe.dropout})
        fresh.network.load_state_dict(start.network.state_dict())
    else:
        raise DataError(
            f"{recipe.start}: expected {recipe.dim} dimensions, {recipe.kind}, as the recipe says, "
            f"got {start.dim}, {start.kind}; change network.dim and network.kind"
        )
    fresh.spec = fresh.spec.model_copy(update={"extent": start.extent})
    fresh.metadata["ledger"] = start.metadata.get("ledger", [])
    if "recipe" in start.metadata:
        fresh.metadata["earlier_recipes"] = [*start.metadata.get("earlier_recipes", []), start.metadata["recipe"]]
    return fresh


def _loss(config: Config, ranks: Ranks) -> nn.Module:
    if config.loss.name == "hardest-triplet":
        return HardestTriplet(config.loss.margin, config.distance, across_ranks=ranks.several)
    return ListwiseAP(
        config.distance, config.bins, config.loss.form, across_ranks=ranks.several, signs=config.loss.signs
    )

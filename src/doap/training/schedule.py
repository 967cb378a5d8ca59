"""The progress of a run and its learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from doap._support.errors import ArgumentError
from doap.training.config import ScheduleSection


@dataclass(frozen=True)
class StepSchedule:
    """The schedule of a run, in steps or in seconds.

    With a number of steps, the learning rate depends on the step only, and a resumed run equals an uninterrupted one.
    With a time budget it depends on the training time, which differs between runs.

    Attributes:
        steps: Number of steps, or None.
        seconds: Time budget, or None.
        steps_per_epoch: Number of steps per epoch.
        schedule: Section `[schedule]` of the recipe.
    """

    steps: int | None
    seconds: float | None
    steps_per_epoch: int
    schedule: ScheduleSection

    @classmethod
    def of(cls, schedule: ScheduleSection, steps_per_epoch: int) -> StepSchedule:
        """Return the schedule of a recipe, which has exactly one of epochs, steps and minutes."""
        given = [value for value in (schedule.epochs, schedule.steps, schedule.minutes) if value is not None]
        if len(given) != 1:
            raise ArgumentError(f"schedule: expected exactly one of epochs, steps and minutes, got {len(given)}")
        steps = round(schedule.epochs * steps_per_epoch) if schedule.epochs else schedule.steps
        seconds = None if schedule.minutes is None else 60 * schedule.minutes
        return cls(None if steps is None else max(1, steps), seconds, steps_per_epoch, schedule)

    def progress(self, step: int, seconds: float) -> float:
        """Return the share of the run that is done before a step, 0 to 1."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        assert self.seconds is not None
        return min(1.0, seconds / self.seconds)

    def estimate(self, step: int, seconds: float, seconds_per_step: float) -> tuple[int, float]:
        """Return the expected number of steps and seconds of the whole run, from its state and its pace.

        >>> StepSchedule.of(ScheduleSection(minutes=1), 10).estimate(5, 10.0, 2.0)
        (30, 60.0)
        """
        if self.steps is not None:
            return self.steps, seconds + (self.steps - step) * seconds_per_step
        assert self.seconds is not None
        return step + math.ceil(max(0.0, self.seconds - seconds) / seconds_per_step), max(seconds, self.seconds)

    def rate(self, step: int, seconds: float) -> float:
        """Return the factor of the recipe's learning rate at a step.

        >>> StepSchedule.of(ScheduleSection(steps=4), 10).rate(1, 0.0)
        0.75
        """
        if self.schedule.kind == "linear":
            return 1 - self.progress(step, seconds)
        return float(self.schedule.factor ** int(step / self.steps_per_epoch / self.schedule.every))

"""How far a run is, and the learning rate there."""

from __future__ import annotations

from dataclasses import dataclass

from doap.errors import ArgumentError
from doap.training.config import Schedule


@dataclass(frozen=True)
class StepSchedule:
    """A schedule fitted to a run.

    With a number of steps, the rate is a function of the step, and a resumed run equals an undisturbed one. With a
    budget of time it is a function of the time spent training, which no two runs share.

    Attributes:
        steps: how many, or None.
        seconds: the budget, or None.
        steps_per_epoch: for the stepped schedule.
        schedule: the recipe's.
    """

    steps: int | None
    seconds: float | None
    steps_per_epoch: int
    schedule: Schedule

    @classmethod
    def of(cls, schedule: Schedule, steps_per_epoch: int) -> StepSchedule:
        """From a recipe that says epochs, steps or minutes, one of them."""
        given = [value for value in (schedule.epochs, schedule.steps, schedule.minutes) if value is not None]
        if len(given) != 1:
            raise ArgumentError(f"schedule: expected one of epochs, steps and minutes, got {len(given)} of them")
        steps = round(schedule.epochs * steps_per_epoch) if schedule.epochs else schedule.steps
        seconds = None if schedule.minutes is None else 60 * schedule.minutes
        return cls(None if steps is None else max(1, steps), seconds, steps_per_epoch, schedule)

    def progress(self, step: int, seconds: float) -> float:
        """The share of the run that is done before a step, 0 to 1."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        assert self.seconds is not None
        return min(1.0, seconds / self.seconds)

    def rate(self, step: int, seconds: float) -> float:
        """What part of the recipe's learning rate to use at a step.

        >>> StepSchedule.of(Schedule(steps=4), 10).rate(1, 0.0)
        0.75
        """
        if self.schedule.kind == "linear":
            return 1 - self.progress(step, seconds)
        return float(self.schedule.factor ** int(step / self.steps_per_epoch / self.schedule.every))

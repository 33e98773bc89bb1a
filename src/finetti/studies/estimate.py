"""How long a study will take, from a timed pilot of a few of its trials. Stores nothing."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from finetti.core.errors import FinettiError
from finetti.show import Card, Shown, format_duration
from finetti.studies.executors.base import Cohort, Executor, Report
from finetti.studies.limits import Limits
from finetti.studies.outcome import DONE, Outcome
from finetti.studies.plan import WorkPlan

PILOT_TRIALS = 6
MAX_PILOT_SECONDS = 30.0


@dataclass(frozen=True)
class RunEstimate(Shown):
    """What a run would do.

    Args:
        name: the study.
        trials, stored, pending: all trials, those that have a result, and those to run.
        cohorts: in which the pending trials would run.
        seconds: the estimated time; None if no trial of the pilot ended.
        at_least: whether the pilot was cut short, so that it will take longer.
        workers: that the estimate is for.
        pilot: trials that were timed.
        pilot_failures: of them, how many failed.
    """

    name: str
    trials: int
    stored: int
    pending: int
    cohorts: int
    seconds: float | None
    at_least: bool
    workers: int
    pilot: int
    pilot_failures: int

    @property
    def duration(self) -> str:
        """The estimated time in words."""
        if self.seconds is None:
            return "unknown: no trial of the pilot ended"
        text = format_duration(self.seconds) if self.pending else "nothing to do"
        return f"at least {text}" if self.at_least else f"about {text}" if self.pending else text

    def __card__(self) -> Card:
        pilot = f"{self.pilot} trials timed, {self.pilot_failures} of them failed"
        fields = (
            ("trials", self.trials),
            ("already stored", self.stored),
            ("to run", self.pending),
            ("cohorts", self.cohorts),
            ("workers", self.workers),
            ("estimated time", self.duration),
            ("pilot", pilot),
        )
        return Card(f"{self.name}: a dry run, nothing is stored", fields)


def estimate_run(
    plan: WorkPlan, todo: Sequence[str], executor: Executor, workers: int, limits: Limits
) -> RunEstimate:
    """Time a few trials spread over the grid, and extrapolate to all of ``todo``."""
    cohorts = list(plan.cohorts(todo, workers))
    pilot = _Pilot(plan, executor, limits)
    if cohorts:
        try:
            executor.start(plan.source, Limits(_shorter(limits.time), limits.memory))
            alone = (cohort for each in _spread(todo) for cohort in plan.cohorts([each]))
            pilot.run(cohorts if plan.together else list(alone))
        finally:
            executor.close()
    seconds = pilot.seconds(cohorts, min(workers, max(1, len(cohorts))))
    return RunEstimate(
        plan.name,
        len(plan.places),
        len(plan.places) - len(todo),
        len(todo),
        len(cohorts),
        seconds,
        pilot.cut,
        workers,
        len(pilot.timed),
        sum(outcome.state != DONE for outcome in pilot.timed),
    )


def _shorter(limit: float | None) -> float:
    return MAX_PILOT_SECONDS if limit is None else min(limit, MAX_PILOT_SECONDS)


class _Pilot:
    def __init__(self, plan: WorkPlan, executor: Executor, limits: Limits) -> None:
        self.plan = plan
        self.executor = executor
        self.limits = limits
        self.timed: list[Outcome] = []
        self.compiling: list[float] = []  # seconds that the first cohort of a shape takes longer
        self.startup = 0.0
        self.cut = False

    def run(self, cohorts: Sequence[Cohort]) -> None:
        """Run some cohorts twice (compiled programs), or some trials once."""
        begin = time.monotonic()
        for number, cohort in enumerate(_spread(cohorts)):
            if number and time.monotonic() - begin > MAX_PILOT_SECONDS / 2:
                return
            start = time.monotonic()
            first = self._once(cohort)
            if not number:
                self.startup = max(0.0, time.monotonic() - start - _total(first))
            if self.plan.together and first:
                second = self._once(cohort)
                self.compiling.append(_total(first) - _total(second))
                first = second
            self.timed += first

    def _once(self, cohort: Cohort) -> list[Outcome]:
        self.executor.submit(Cohort(cohort.shape, cohort.trials))
        outcomes: list[Outcome] = []
        while True:
            for report in self.executor.reports(0.5):
                outcomes += report.outcomes
                if report.ended:
                    self._judge(report)
                    return outcomes

    def _judge(self, report: Report) -> None:
        failure = report.failure
        if failure is not None and failure.reason == "broken":
            raise FinettiError(
                f"The kind {self.plan.source.reference} cannot be loaded: {failure.message}."
            )
        self.cut = self.cut or (failure is not None and failure.reason == "time")

    def seconds(self, cohorts: Sequence[Cohort], workers: int) -> float | None:
        """Start-up, plus all trials and all compilations, shared by the workers."""
        if not cohorts:
            return 0.0
        total = sum(len(cohort.trials) for cohort in cohorts)
        if not self.timed:
            return None if not self.cut else _shorter(self.limits.time)
        mean = _total(self.timed) / len(self.timed)
        shapes = len({cohort.shape for cohort in cohorts})
        compiling = max(0.0, math.fsum(self.compiling) / max(1, len(self.compiling))) * shapes
        return self.startup + (total * mean + compiling) / workers


def _total(outcomes: Sequence[Outcome]) -> float:
    return math.fsum(outcome.seconds for outcome in outcomes)


def _spread(items: Sequence[Any]) -> list[Any]:
    """A few items, from the first to the last at equal distances."""
    if len(items) <= PILOT_TRIALS:
        return list(items)
    last = len(items) - 1
    return [items[round(i * last / (PILOT_TRIALS - 1))] for i in range(PILOT_TRIALS)]

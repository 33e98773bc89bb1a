"""How long a study will take, from a timed pilot of a few of its trials. Stores nothing."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from finetti.core.errors import FinettiError
from finetti.show import Card, Shown, format_duration
from finetti.studies.executors.base import Cohort, Executor
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
        if not self.pending:
            return "nothing to do"
        return f"{'at least' if self.at_least else 'about'} {format_duration(self.seconds)}"

    def __card__(self) -> Card:
        fields = {
            "trials": self.trials,
            "already stored": self.stored,
            "to run": self.pending,
            "cohorts": self.cohorts,
            "workers": self.workers,
            "estimated time": self.duration,
            "pilot": f"{self.pilot} trials timed, {self.pilot_failures} of them failed",
        }
        return Card(f"{self.name}: a dry run, nothing is stored", tuple(fields.items()))


def estimate_run(
    plan: WorkPlan, todo: Sequence[str], executor: Executor, workers: int, limits: Limits
) -> RunEstimate:
    """Time a few trials spread over the grid, and extrapolate to all of ``todo``."""
    cohorts = list(plan.cohorts(todo, workers))
    pilot = time_pilot(plan, todo, cohorts, executor, limits)
    seconds = 0.0 if not cohorts else pilot.longest if pilot.cut else None
    if pilot.timed:
        shapes = len({cohort.shape for cohort in cohorts})
        spent = len(todo) * pilot.seconds_per_trial + pilot.seconds_to_compile * shapes
        seconds = pilot.startup + spent / min(workers, len(cohorts))
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


def time_pilot(
    plan: WorkPlan,
    todo: Sequence[str],
    cohorts: Sequence[Cohort],
    executor: Executor,
    limits: Limits,
) -> "Pilot":
    """Run a few of the trials ``todo``, or of ``cohorts`` where trials run together."""
    pilot = Pilot(plan, executor, min(limits.time or math.inf, MAX_PILOT_SECONDS))
    if cohorts:
        try:
            executor.start(plan.source, Limits(pilot.longest, limits.memory))
            alone = (cohort for each in _spread(todo) for cohort in plan.cohorts([each]))
            # By cells: cohorts come replicate by replicate, and every n-th may be of one cell.
            by_cell = sorted(cohorts, key=lambda cohort: plan.places[cohort.trials[0].id])
            pilot.run(_spread(by_cell) if plan.together else alone)
        finally:
            executor.close()
    return pilot


class Pilot:
    """Trials that are timed and not stored.

    Args:
        plan: what they are trials of.
        executor: where they run.
        longest: seconds after which a trial is ended; ``cut`` says that one was.
    """

    def __init__(self, plan: WorkPlan, executor: Executor, longest: float) -> None:
        self.plan = plan
        self.executor = executor
        self.longest = longest
        self.timed: list[Outcome] = []
        self.compiling: list[float] = []  # seconds that the first cohort of a shape takes longer
        self.startup = 0.0
        self.cut = False

    @property
    def seconds_per_trial(self) -> float:
        """Of the trials that ended, compilation not counted."""
        return _total(self.timed) / len(self.timed)

    @property
    def seconds_to_compile(self) -> float:
        """How much longer the first cohort of a shape takes."""
        return max(0.0, math.fsum(self.compiling) / max(1, len(self.compiling)))

    def run(self, cohorts: Iterable[Cohort]) -> None:
        """Run cohorts, those of compiled programs twice, as long as there is time."""
        begin = time.monotonic()
        for number, cohort in enumerate(cohorts):
            if number and time.monotonic() - begin > MAX_PILOT_SECONDS / 2:
                return
            outcomes = self._once(cohort)
            if not number:
                self.startup = max(0.0, time.monotonic() - begin - _total(outcomes))
            if self.plan.together and outcomes:
                again = self._once(cohort)
                self.compiling.append(_total(outcomes) - _total(again))
                outcomes = again
            self.timed += outcomes

    def _once(self, cohort: Cohort) -> list[Outcome]:
        self.executor.submit(cohort)
        outcomes: list[Outcome] = []
        failure, ended = None, False
        while not ended:
            for report in self.executor.reports(0.5):
                outcomes += report.outcomes
                failure, ended = report.failure, report.ended
        if failure is not None and failure.reason == "broken":
            kind = self.plan.source.reference
            raise FinettiError(f"The kind {kind} cannot be loaded: {failure.message}.")
        self.cut = self.cut or (failure is not None and failure.reason == "time")
        return outcomes


def _total(outcomes: Sequence[Outcome]) -> float:
    return math.fsum(outcome.seconds for outcome in outcomes)


def _spread(items: Sequence[Any]) -> list[Any]:
    """A few items, from the first to the last at equal distances."""
    if len(items) <= PILOT_TRIALS:
        return list(items)
    last = len(items) - 1
    return [items[round(i * last / (PILOT_TRIALS - 1))] for i in range(PILOT_TRIALS)]

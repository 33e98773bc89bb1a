"""The coordinator: cohorts to the executor, outcomes to the store, failures to their cause."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from finetti.core.errors import FinettiError
from finetti.show.progress import Progress
from finetti.studies.executors.base import Cohort, Executor, Failure, Report
from finetti.studies.outcome import DONE, Outcome, failed
from finetti.studies.plan import WorkPlan
from finetti.studies.records import Row
from finetti.studies.store import Store
from finetti.studies.trial import Trial

POLL_SECONDS = 0.5
MAX_LOSSES = 3
MAX_IN_FLIGHT_SECONDS = 10.0  # of work that a lost worker, or coordinator, may take along


class Engine:
    """Runs the trials of a plan and stores what comes out. The only writer of the store."""

    def __init__(
        self,
        plan: WorkPlan,
        store: Store,
        executor: Executor,
        extra: dict[str, Any],
        on_change: Callable[[Progress], None],
        describe: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        self.plan = plan
        self.store = store
        self.executor = executor
        self.extra = extra
        self.on_change = on_change
        self.describe = describe
        self.stored = self.failures = 0
        self.urgent: deque[Cohort] = deque()
        self.under_way: dict[Cohort, set[str]] = {}
        self.known_shapes: set[str] = set()
        self.pace: float | None = None  # seconds per trial, of late

    def run(self, todo: Iterable[str]) -> None:
        """Run the trials ``todo``. What is stored when this is interrupted stays stored."""
        most = None if self.executor.streams else self._most
        fresh = self.plan.cohorts(todo, self.executor.workers, most)
        while True:
            while len(self.under_way) < self.executor.slots:
                cohort = self._next(fresh)
                if cohort is None:
                    break
                self.under_way[cohort] = set()
                self.executor.submit(cohort)
            if not self.under_way:
                return
            self._tell()
            for report in self.executor.reports(POLL_SECONDS):
                self._settle(report)
            self._tell()

    def _next(self, fresh: Iterator[Cohort]) -> Cohort | None:
        """The next cohort; None if there is none, or if it has to wait.

        A worker takes along what waits at it, too. So the last chance of a cohort is one alone.
        """
        if any(map(_is_suspect, self.under_way)):
            return None
        if not self.urgent:
            return next(fresh, None)
        return None if self.under_way and _is_suspect(self.urgent[0]) else self.urgent.popleft()

    def _most(self) -> int:
        """Trials of a cohort whose outcomes come all at once, so that little can be lost."""
        if self.pace is None:
            return 1
        per_worker = self.executor.slots / self.executor.workers
        return max(1, int(MAX_IN_FLIGHT_SECONDS / per_worker / max(self.pace, 1e-6)))

    def _tell(self) -> None:
        shapes = {cohort.shape for cohort in self.under_way}
        activity = "running"
        if shapes and not shapes & self.known_shapes:
            activity = "compiling…" if self.plan.together else "starting…"
        if self.describe is not None:
            # Those that wait at a worker were sent last.
            running = list(self.under_way.items())[: self.executor.workers]
            left = ([t for t in cohort.trials if t.id not in done] for cohort, done in running)
            activity = ", ".join(self.describe(trials[0].params) for trials in left if trials)
        activity = self.executor.activity or activity
        self.on_change(Progress(self.stored, self.failures, activity))

    def _settle(self, report: Report) -> None:
        """Store the outcomes of a report; put what has none to the front of the queue."""
        cohort = report.cohort
        self._store(report.outcomes)
        if report.outcomes:
            mean = sum(each.seconds for each in report.outcomes) / len(report.outcomes)
            self.pace = mean if self.pace is None else (self.pace + mean) / 2
        finished = self.under_way[cohort]
        finished.update(outcome.trial_id for outcome in report.outcomes)
        if finished:
            self.known_shapes.add(cohort.shape)
        if not report.ended:
            return
        del self.under_way[cohort]
        rest = tuple(trial for trial in cohort.trials if trial.id not in finished)
        if rest:
            failure = report.failure or Failure("lost", "The worker left trials out.")
            self.urgent.extend(self._again(cohort, rest, failure))

    def _again(
        self, cohort: Cohort, rest: tuple[Trial, ...], failure: Failure
    ) -> tuple[Cohort, ...]:
        """What is left of a cohort that failed, so that only the culprit fails."""
        if failure.reason == "broken":
            raise FinettiError(
                f"A worker cannot run the kind {self.plan.source.reference}: {failure.message}."
            )
        if failure.reason == "lost" and cohort.losses + 1 < MAX_LOSSES:
            return (Cohort(cohort.shape, rest, cohort.losses + 1),)
        if len(cohort.trials) == 1:
            self._fail(rest[0], failure)
            return ()
        culprits = tuple(trial for trial in rest if trial.id == failure.culprit)
        others = tuple(trial for trial in rest if trial.id != failure.culprit)
        if culprits and failure.reason == "time":
            self._fail(culprits[0], failure)
            parts = (others,)
        elif culprits:
            # The memory may be that of the trials before it: alone, in a new process, it is sure.
            parts = (culprits, others)
        else:
            middle = (len(rest) + 1) // 2
            parts = (rest[:middle], rest[middle:])
        return tuple(Cohort(cohort.shape, part) for part in parts if part)

    def _fail(self, trial: Trial, failure: Failure) -> None:
        outcome = failed(trial.id, failure.message, failure.details, failure.seconds)
        self._store((replace(outcome, finished=failure.when, provenance=failure.provenance),))

    def _store(self, outcomes: tuple[Outcome, ...]) -> None:
        if not outcomes:
            return
        rows = []
        for outcome in outcomes:
            number, replicate = self.plan.places[outcome.trial_id]
            made_by = {**outcome.provenance, **self.extra}
            rows.append(
                Row(self.plan.cells[number], replicate, replace(outcome, provenance=made_by))
            )
        self.store.add(rows)
        self.stored += len(rows)
        self.failures += sum(outcome.state != DONE for outcome in outcomes)


def _is_suspect(cohort: Cohort) -> bool:
    return cohort.losses + 1 >= MAX_LOSSES

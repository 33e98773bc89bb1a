"""The plan of a study, and the coordinator: tasks to the executor, outcomes to the store."""

import heapq
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from finetti.core.errors import FinettiError, InputError
from finetti.display.progress import Progress
from finetti.studies.executors.executor import Executor, Failure, FailureReason, Report, Task
from finetti.studies.source_code import SourceSnapshot, find_source
from finetti.studies.spec import StudySpec, combinations
from finetti.studies.store.store_reader import Row
from finetti.studies.store.trial_store import Store
from finetti.studies.trial_kinds import CohortKind, ParameterError, StudyKind
from finetti.studies.trials import DONE, Cell, Outcome, canonical_json, failed, plain

POLL_SECONDS = 0.5
COMMIT_SECONDS = 0.25  # that outcomes wait for others before they are stored together
# How often a trial is tried: a process may have ended through no fault of the trial that it ran,
# and so may a worker, which takes along all that waits at it.
MAX_ATTEMPTS = {FailureReason.DIED: 2, FailureReason.MEMORY: 2, FailureReason.LOST: 3}


@dataclass(frozen=True)
class StudyPlan:
    """What a study consists of: its cells, their shapes, and the trials of each.

    Args:
        name: the study's title.
        trials: trials per cell.
        runs_in_cohorts: whether the trials of a cohort run in one go.
        cohort_size: the largest cohort.
        cells: the points of the grid, in its order.
        shapes: of each cell; trials of one shape may share a cohort.
        source: of the kind, with the sources that its parameters name.
        include: of parameters and replicate, whether the trial belongs to the study; all do unless
            given.
    """

    name: str
    trials: int
    runs_in_cohorts: bool
    cohort_size: int
    cells: tuple[Cell, ...]
    shapes: tuple[str, ...]
    source: SourceSnapshot
    include: Callable[[Mapping[str, Any], int], bool] | None = None

    @cached_property
    def trial_positions(self) -> dict[str, tuple[int, int]]:
        """Trial id → (number of its cell, replicate), in the order of the grid."""
        return {
            cell.trial_id(replicate): (number, replicate)
            for number, cell in enumerate(self.cells)
            for replicate in range(self.trials)
            if self.include is None or self.include(cell.params, replicate)
        }


def make_plan(
    spec: StudySpec,
    source: SourceSnapshot,
    kind: StudyKind,
    name: str,
    include: Callable[[Mapping[str, Any], int], bool] | None = None,
) -> StudyPlan:
    """Resolve every cell; what the kind refuses is named with the path of its key."""
    _check_scales(spec, kind, name)
    cells: dict[str, tuple[Cell, str]] = {}
    named: dict[str, SourceSnapshot] = {}
    for chosen in combinations(spec.values):
        params = plain({**spec.fixed, **chosen}, "study")
        try:
            # As other processes will know it: an enumeration that is an int is that int.
            resolved = json.loads(json.dumps(plain(kind.resolve(params), "study")))
            shape = canonical_json(plain(kind.cohort_key(resolved), "cohort_key"))
            for text in kind.named_sources(resolved):
                if text not in named and text.rpartition(":")[0].endswith(".py"):
                    named[text] = find_source(text, ".")
        except ParameterError as error:
            where = "grid" if error.parameter in spec.grid else "fixed"
            raise InputError(f"{name}: `{where}.{error.parameter}` {error}.") from error
        except FinettiError:
            raise
        except (Exception, SystemExit) as error:
            text = f"the kind refuses {canonical_json(params)}. {type(error).__name__}: {error}"
            raise InputError(f"{name}: {text}") from error
        code = source.reference, str(kind.version), source.fingerprint
        cell = Cell(*code, resolved, spec.seed, spec.seed_by)
        # Two points of the grid that the kind resolves to one are one.
        cells.setdefault(cell.content, (cell, shape))
    resolved, shapes = zip(*cells.values(), strict=True)
    return StudyPlan(
        name,
        spec.trials,
        isinstance(kind, CohortKind),
        spec.cohort or kind.cohort_size,
        resolved,
        shapes,
        replace(source, named=named),
        include,
    )


def _check_scales(spec: StudySpec, kind: StudyKind, name: str) -> None:
    """Refuse names that the kind does not know in any scale, chosen or not."""
    for scale, preset in spec.scales.items():
        for part, names in (("grid", preset.grid), ("fixed", preset.fixed)):
            for parameter in names:
                try:
                    kind.check_name(parameter)
                except ParameterError as error:
                    path = f"scales.{scale}.{part}.{parameter}"
                    raise InputError(f"{name}: `{path}` {error}.") from error


class WaitingTrials:
    """The trials of a plan that were not sent yet, and the tasks to make of them.

    The first replicates of all cells come first: a run that is interrupted knows a little of
    every cell, not all of a few.
    """

    def __init__(self, plan: StudyPlan, todo: Iterable[str]) -> None:
        self.plan = plan
        self.by_shape: dict[str, list[tuple[int, int, str]]] = {}
        for trial_id in todo:
            number, replicate = plan.trial_positions[trial_id]
            waiting = self.by_shape.setdefault(plan.shapes[number], [])
            waiting.append((replicate, number, trial_id))
        for trials in self.by_shape.values():
            trials.sort()
        self.queue = [(trials[0], shape, 0) for shape, trials in self.by_shape.items()]
        heapq.heapify(self.queue)

    def take(self, workers: int) -> Task | None:
        """The next task, small enough that all of the ``workers`` there are get some of a shape."""
        if not self.queue:
            return None
        _, shape, start = self.queue[0]
        trials, size = self.by_shape[shape], 1
        if self.plan.runs_in_cohorts:
            size = min(self.plan.cohort_size, math.ceil(len(trials) / max(1, workers)))
        stop = start + size
        if stop < len(trials):
            heapq.heapreplace(self.queue, (trials[stop], shape, stop))
        else:
            heapq.heappop(self.queue)
        taken = (self.plan.cells[n].trial(each, r) for r, n, each in trials[start:stop])
        return Task(shape, tuple(taken))


class Coordinator:
    """Runs the trials of a plan and stores what comes out. The only writer of the store.

    Args:
        plan: what the trials are those of.
        store: where their outcomes go.
        executor: where they run.
        extra: provenance to add to that of each outcome.
        on_change: told how far the run is.
        describe: names a trial by its parameters.
    """

    def __init__(
        self,
        plan: StudyPlan,
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
        self.retries: deque[Task] = deque()
        self.running: dict[Task, None] = {}  # in the order in which they were sent
        self.known_shapes: set[str] = set()
        self.rows: list[Row] = []  # that are not stored yet
        self.committed = time.monotonic()

    def run(self, todo: Iterable[str]) -> None:
        """Run the trials ``todo``. What came back is stored whatever ends this."""
        waiting = WaitingTrials(self.plan, todo)
        try:
            while waiting.queue or self.retries or self.running:
                while len(self.running) < self.executor.slots:
                    task = self._next(waiting)
                    if task is None:
                        break
                    self.running[task] = None
                    self.executor.submit(task)
                self._tell()
                for report in self.executor.reports(COMMIT_SECONDS if self.rows else POLL_SECONDS):
                    self.handle_report(report)
                if time.monotonic() - self.committed >= COMMIT_SECONDS:
                    self._commit()
            self._tell()
        finally:
            self._commit()
            if self.running:
                self.executor.cancel()

    def _next(self, waiting: WaitingTrials) -> Task | None:
        """The next task; None if there is none, or if it has to wait for others to end."""
        if len(self.running) == 1 and next(iter(self.running)).alone:
            return None
        if self.retries:
            return None if self.retries[0].alone and self.running else self.retries.popleft()
        return waiting.take(self.executor.workers)

    def handle_report(self, report: Report) -> None:
        """Keep the outcomes of a task for the store; try again what has none, or let it fail."""
        task, provenance = report.task, report.provenance
        del self.running[task]
        if report.failure is None or report.failure.reason is FailureReason.RAISED:
            # It ran to its end: had JAX been loaded, the device would be known.
            provenance = {"device": "cpu", **provenance}
        for outcome in report.outcomes:
            self._keep(outcome, provenance)
        if report.outcomes:
            self.known_shapes.add(task.shape)
        if len(report.outcomes) < len(task.trials):
            came = {outcome.trial_id for outcome in report.outcomes}
            rest = tuple(trial for trial in task.trials if trial.id not in came)
            failure = report.failure or Failure(FailureReason.LOST, "The worker left trials out.")
            self.retry_or_fail(replace(task, trials=rest), failure, provenance)

    def retry_or_fail(self, task: Task, failure: Failure, provenance: dict[str, Any]) -> None:
        """Find the culprit: halve a cohort, try a single trial again, or let it fail."""
        middle, attempts = (len(task.trials) + 1) // 2, task.attempts + 1
        most = MAX_ATTEMPTS.get(failure.reason, 1)
        if failure.reason is FailureReason.BROKEN:
            raise FinettiError(
                f"A worker cannot run the kind {self.plan.source.reference}: {failure.message}."
            )
        if len(task.trials) > 1:
            self.retries += (
                Task(task.shape, task.trials[:middle]),
                Task(task.shape, task.trials[middle:]),
            )
        elif attempts < most:
            # The last chance that a lost worker leaves: nothing else must be able to take it along.
            alone = failure.reason is FailureReason.LOST and attempts + 1 == most
            self.retries.append(Task(task.shape, task.trials, attempts, alone))
        else:
            trial = next(iter(task.trials))
            outcome = failed(trial.id, failure.message, failure.details, failure.seconds)
            self._keep(replace(outcome, finished=failure.when), provenance)

    def _keep(self, outcome: Outcome, provenance: dict[str, Any]) -> None:
        number, replicate = self.plan.trial_positions[outcome.trial_id]
        outcome.provenance.update({**provenance, **self.extra})
        self.rows.append(Row(self.plan.cells[number], replicate, outcome))
        self.stored += 1
        self.failures += outcome.state != DONE

    def _commit(self) -> None:
        """Store what came back, in one transaction."""
        rows, self.rows = self.rows, []
        if rows:
            self.store.add(rows)
        self.committed = time.monotonic()

    def _tell(self) -> None:
        shapes = {task.shape for task in self.running}
        activity = "running"
        if shapes and not shapes & self.known_shapes:
            activity = "compiling…" if self.plan.runs_in_cohorts else "starting…"
        if self.describe is not None:
            # Those that wait at a worker were sent last.
            running = list(self.running)[: self.executor.workers]
            activity = ", ".join(self.describe(task.trials[0].params) for task in running)
        activity = self.executor.activity or activity
        self.on_change(Progress(self.stored, self.failures, activity))

"""Executors on this machine: a child process, which is the default, or this process itself."""

import traceback
from typing import final

from finetti.core.errors import InputError, bad_argument
from finetti.studies.executors.base import Executor, Failure, Report
from finetti.studies.executors.process import ChildProcess
from finetti.studies.importing import Strays
from finetti.studies.kinds import load_kind
from finetti.studies.limits import Limits, usable_cores
from finetti.studies.outcome import Outcome
from finetti.studies.sources import KindSource
from finetti.studies.work import work, worker_provenance


@final
class LocalExecutor(Executor):
    """One cohort at a time in one child process. A trial that hangs or blows up is ended."""

    def start(self, source: KindSource, limits: Limits) -> None:
        """Get ready; the process itself is started by the first cohort."""
        super().start(source, limits)
        self.child = ChildProcess(source, limits, usable_cores())

    def reports(self, timeout: float) -> list[Report]:
        """Outcomes as they come, while the child works."""
        if self.child.cohort is None:
            if not self.queue:
                return []
            self.child.begin(self.queue.popleft())
        report = self.child.poll(timeout)
        return [] if report is None else [report]

    def close(self) -> None:
        """End the child."""
        self.child.end()


@final
class InlineExecutor(Executor):
    """One cohort at a time, here and now: for debugging. Nothing ends a trial that hangs."""

    def start(self, source: KindSource, limits: Limits) -> None:
        """Load the kind."""
        super().start(source, limits)
        self.kind = load_kind(source)
        self.strays = Strays(source)

    def reports(self, timeout: float) -> list[Report]:
        """Run the next cohort to its end."""
        if not self.queue:
            return []
        cohort = self.queue.popleft()
        outcomes: list[Outcome] = []
        failure = None
        try:
            outcomes.extend(work(self.kind, cohort.trials, self.strays))
        except (Exception, SystemExit) as error:
            message, details = f"{type(error).__name__}: {error}", traceback.format_exc()
            failure = Failure("raised", message, details, provenance=worker_provenance())
        made_by = worker_provenance()
        return [Report(cohort, tuple(each.made_by(made_by) for each in outcomes), failure=failure)]

    def close(self) -> None:
        """Nothing is under way."""


def choose_executor(
    executor: str | Executor = "local", workers: int | None = None, cluster: str | None = None
) -> Executor:
    """The executor that the arguments of ``Study.run`` ask for."""
    if workers is not None and cluster is not None:
        raise InputError("`workers` starts Dask here, `cluster` uses one elsewhere. Give one.")
    if workers is not None or cluster is not None:
        if executor not in ("local", "dask"):
            raise InputError("`workers` and `cluster` mean Dask. Leave `executor` out.")
        from finetti.studies.executors.dask import DaskExecutor

        return DaskExecutor(workers, cluster)
    if isinstance(executor, Executor):
        return executor
    known = {"local": LocalExecutor, "inline": InlineExecutor}
    if executor not in known:
        raise bad_argument("executor", "Study.run", "local, inline or an Executor", executor)
    return known[executor]()

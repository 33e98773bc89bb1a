"""Executors on this machine: child processes, one by default, or this process itself."""

from typing import final

from finetti.core.errors import InputError, bad_argument
from finetti.studies.executors.base import Executor, Failure, Report
from finetti.studies.executors.process import ChildProcess, poll_children
from finetti.studies.executors.work import Worker
from finetti.studies.limits import Limits, usable_cores
from finetti.studies.outcome import Outcome
from finetti.studies.sources import KindSource


@final
class LocalExecutor(Executor):
    """Cohorts in child processes. A trial that hangs or blows up is ended.

    Args:
        workers: how many processes; each has its share of the threads and of the memory.
    """

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise bad_argument("workers", "Study.run", "at least 1", workers)
        self.workers = workers
        self.children: list[ChildProcess] = []

    def start(self, source: KindSource, limits: Limits) -> None:
        """Get ready; the processes themselves are started by their first cohorts."""
        super().start(source, limits)
        threads = max(1, usable_cores() // self.workers)
        places = range(self.workers)
        self.children = [ChildProcess(source, limits, threads, self.workers) for _ in places]

    def reports(self, timeout: float) -> list[Report]:
        """Outcomes as they come, while the children work."""
        for child in self.children:
            if child.cohort is None and self.queue:
                child.begin(self.queue.popleft())
        return poll_children(self.children, timeout)

    def close(self) -> None:
        """End the children."""
        for child in self.children:
            child.end()


@final
class InlineExecutor(Executor):
    """One cohort at a time, here and now: for debugging. Nothing ends a trial that hangs."""

    def start(self, source: KindSource, limits: Limits) -> None:
        """Load the kind."""
        super().start(source, limits)
        self.worker = Worker(source)

    def reports(self, timeout: float) -> list[Report]:
        """Run the next cohort to its end."""
        if not self.queue:
            return []
        cohort = self.queue.popleft()
        news = list(self.worker.run(cohort.trials))
        outcomes = tuple(each for each in news if isinstance(each, Outcome))
        failures = (each for each in news if isinstance(each, Failure))
        return [Report(cohort, outcomes, failure=next(failures, None))]

    def close(self) -> None:
        """Nothing is under way."""


def choose_executor(
    executor: str | Executor = "local", workers: int | None = None, cluster: str | None = None
) -> Executor:
    """The executor that the arguments of ``Study.run`` ask for."""
    if workers is not None and cluster is not None:
        raise InputError(
            "`workers` runs processes on this machine, `cluster` runs on Dask. Give one of them."
        )
    if (workers, cluster) != (None, None) and executor != "local":
        raise InputError(
            "`workers` and `cluster` already choose an executor. Leave `executor` out."
        )
    if cluster is not None:
        from finetti.studies.executors.dask import DaskExecutor

        return DaskExecutor(cluster)
    if isinstance(executor, Executor):
        return executor
    if executor == "inline":
        return InlineExecutor()
    if executor == "local":
        return LocalExecutor(1 if workers is None else workers)
    raise bad_argument("executor", "Study.run", "local, inline or an Executor", executor)

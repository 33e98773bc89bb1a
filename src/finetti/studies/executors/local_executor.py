"""Executors on this machine, child processes or this process itself; and opening any of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from finetti.core.errors import InputError, bad_argument
from finetti.studies.executors.child_process import ChildProcess, poll_children
from finetti.studies.executors.executor import Executor, Report
from finetti.studies.executors.resource_limits import Limits, usable_cores
from finetti.studies.executors.worker import Worker
from finetti.studies.source_code import SourceSnapshot


@final
class LocalExecutor(Executor):
    """Tasks in child processes. A trial that hangs or blows up is ended.

    Args:
        workers: how many processes; each has its share of the threads and of the memory.
    """

    def __init__(self, workers: int = 1) -> None:
        super().__init__()
        if workers < 1:
            raise bad_argument("workers", "Study.run", "at least 1", workers)
        self.workers = workers
        self.children: list[ChildProcess] = []

    def use(self, source: SourceSnapshot, limits: Limits) -> None:
        """Get ready; processes stay, unless the source is another one. Tasks start new ones."""
        if not self.children:
            threads = max(1, usable_cores() // self.workers)
            self.children = [ChildProcess(threads) for _ in range(self.workers)]
        for child in self.children:
            child.use(source, limits.time, limits.bytes_for(self.workers))

    @property
    def slots(self) -> int:
        """Those of the children, and some that wait here for the first that is free."""
        return self.workers + sum(child.capacity for child in self.children)

    def reports(self, timeout: float) -> list[Report]:
        """Hand out what waits, and return what the children report."""
        while self.queue:
            child = min(self.children, key=lambda child: len(child.tasks))
            if len(child.tasks) >= child.capacity:
                break
            child.submit(self.queue.popleft())
        found = poll_children(self.children, timeout)
        # What else is there already comes along, so that all of it is handled at once.
        while found and (more := poll_children(self.children, 0.0)):
            found += more
        return found

    def cancel(self) -> None:
        """End the children that are at work."""
        super().cancel()
        for child in self.children:
            if child.tasks:
                child.end()

    def close(self) -> None:
        """End the children."""
        for child in self.children:
            child.end()


@final
class InlineExecutor(Executor):
    """One task at a time, here and now: for debugging. Nothing ends a trial that hangs."""

    def use(self, source: SourceSnapshot, limits: Limits) -> None:
        """Load the kind."""
        self.worker = Worker(source)

    def reports(self, timeout: float) -> list[Report]:
        """Run the next task to its end."""
        if not self.queue:
            return []
        task = self.queue.popleft()
        return [Report(task, *self.worker.run(task.trials))]


def make_executor(
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
        from finetti.studies.executors.dask_executor import DaskExecutor

        return DaskExecutor(cluster)
    if isinstance(executor, Executor):
        return executor
    if executor == "inline":
        return InlineExecutor()
    if executor == "local":
        return LocalExecutor(1 if workers is None else workers)
    raise bad_argument("executor", "Study.run", "local, inline or an Executor", executor)


@contextmanager
def open_executor(
    executor: str | Executor = "local", workers: int | None = None, cluster: str | None = None
) -> Iterator[Executor]:
    """Open an executor for one study or several, and close it whatever happens.

    One that is given already open stays open: whoever opened it closes it.
    """
    found = make_executor(executor, workers, cluster)
    try:
        yield found
    finally:
        if found is not executor:
            found.close()

"""An executor that stays open from one run to the next, with its processes and their programs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from finetti.studies.executors.base import Cohort, Executor, Report
from finetti.studies.limits import Limits
from finetti.studies.sources import KindSource


@final
class HeldExecutor(Executor):
    """Another executor, which is started once and closed by ``hold`` only."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.started: tuple[KindSource, Limits] | None = None

    @property
    def workers(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the other one, which may come and go."""
        return self.inner.workers

    @property
    def streams(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the other one does."""
        return self.inner.streams

    @property
    def activity(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the other one waits for."""
        return self.inner.activity

    @property
    def slots(self) -> int:
        """Those of the other one."""
        return self.inner.slots

    def start(self, source: KindSource, limits: Limits) -> None:
        """Start, or go on; a source that was changed needs new processes."""
        if self.started == (source, limits):
            return
        self.end()
        self.inner.start(source, limits)
        self.started = source, limits

    def submit(self, cohort: Cohort) -> None:
        """Pass on."""
        self.inner.submit(cohort)

    def reports(self, timeout: float) -> list[Report]:
        """Pass on."""
        return self.inner.reports(timeout)

    def close(self) -> None:
        """Stay open."""

    def end(self) -> None:
        """End all that is under way, at once."""
        if self.started is not None:
            self.started = None
            self.inner.close()


@contextmanager
def hold(executor: Executor) -> Iterator[HeldExecutor]:
    """Keep an executor open for several runs, and close it whatever happens."""
    held = HeldExecutor(executor)
    try:
        yield held
    finally:
        held.end()

"""One child process on this machine: the default. A trial that hangs or blows up is ended."""

from collections import deque
from typing import final

from finetti.studies.executors.base import Cohort, Executor, Report
from finetti.studies.executors.process import ChildProcess
from finetti.studies.limits import Limits, usable_cores
from finetti.studies.sources import KindSource


@final
class LocalExecutor(Executor):
    """One cohort at a time in one child process."""

    def start(self, source: KindSource, limits: Limits) -> None:
        """Get ready; the process itself is started by the first cohort."""
        super().start(source, limits)
        self.child = ChildProcess(source, limits, usable_cores())
        self.queue: deque[Cohort] = deque()

    def submit(self, cohort: Cohort) -> None:
        """Take a cohort."""
        self.queue.append(cohort)

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
        self.queue.clear()
        self.child.end()

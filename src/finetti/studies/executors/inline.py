"""Runs trials in this process: for debugging. Nothing ends a trial that hangs or eats memory."""

import traceback
from collections import deque
from typing import final

from finetti.studies.executors.base import Cohort, Executor, Failure, Report
from finetti.studies.importing import Strays
from finetti.studies.kinds import load_kind
from finetti.studies.limits import Limits
from finetti.studies.outcome import Outcome
from finetti.studies.provenance import worker_provenance
from finetti.studies.sources import KindSource
from finetti.studies.work import work


@final
class InlineExecutor(Executor):
    """One cohort at a time, here and now."""

    def start(self, source: KindSource, limits: Limits) -> None:
        """Load the kind."""
        super().start(source, limits)
        self.kind = load_kind(source)
        self.strays = Strays(source)
        self.queue: deque[Cohort] = deque()

    def submit(self, cohort: Cohort) -> None:
        """Take a cohort; it runs when reports are asked for."""
        self.queue.append(cohort)

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
        self.queue.clear()

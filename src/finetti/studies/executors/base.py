"""What an executor takes and gives: cohorts of trials, and reports about them."""

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from finetti.studies.limits import Limits
from finetti.studies.outcome import Outcome
from finetti.studies.sources import KindSource
from finetti.studies.trial import Trial


@dataclass(frozen=True, eq=False)
class Cohort:
    """Trials of one shape that run together; ``losses`` counts the workers lost with them.

    Two cohorts are never equal: each is sent once.
    """

    shape: str
    trials: tuple[Trial, ...]
    losses: int = 0


@dataclass(frozen=True)
class Failure:
    """Why a cohort did not end by itself.

    Args:
        reason: ``time``, ``memory``, ``died`` (the process ended), ``raised`` (the whole cohort
            did), ``lost`` (the worker is gone, through no fault of the trials), ``broken`` (the
            kind cannot be loaded).
        message: one sentence.
        details: a traceback, or the last words of the process.
        culprit: the id of the trial that was running, where that is known.
        seconds: that it had been running.
        provenance: where that was, as far as it is known.
        when: seconds since 1970 by the clock of who noticed.
    """

    reason: str
    message: str
    details: str | None = None
    culprit: str | None = None
    seconds: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)
    when: float = field(default_factory=time.time)


@dataclass(frozen=True)
class Report:
    """News of a cohort: outcomes since the last report, and whether it has ended."""

    cohort: Cohort
    outcomes: tuple[Outcome, ...] = ()
    ended: bool = True
    failure: Failure | None = None


class Executor(ABC):
    """Runs cohorts. Used as ``start``, then ``submit`` and ``reports`` in turn, then ``close``.

    ``workers`` is how many cohorts are worked on at a time; ``streams`` whether outcomes are
    reported while their cohort is under way; ``activity`` what the executor waits for, if it does.
    """

    workers: int = 1
    streams: bool = True
    activity: str | None = None

    def start(self, source: KindSource, limits: Limits) -> None:
        """Get ready to run trials of the kind that ``source`` names."""
        self.source = source
        self.limits = limits
        self.queue: deque[Cohort] = deque()

    @property
    def slots(self) -> int:
        """How many cohorts may be under way, those that wait at a worker included."""
        return 2 * self.workers

    def submit(self, cohort: Cohort) -> None:
        """Take a cohort; never blocks."""
        self.queue.append(cohort)

    @abstractmethod
    def reports(self, timeout: float) -> list[Report]:
        """News since the last call; waits for some, ``timeout`` seconds at the most."""

    @abstractmethod
    def close(self) -> None:
        """End all that is under way, at once."""

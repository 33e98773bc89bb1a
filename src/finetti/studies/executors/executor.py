"""What an executor takes and gives: one task, one message, one report."""

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from time import time
from typing import Any

from finetti.studies.executors.resource_limits import Limits
from finetti.studies.source_code import SourceSnapshot
from finetti.studies.trials import Outcome, Trial


@dataclass(frozen=True, eq=False)
class Task:
    """What a worker gets at a time: one trial, or those of a cohort, which run together.

    Two tasks are never equal: each is sent once. After ``attempts`` in vain it may have to run
    ``alone``, with no other task at any worker.
    """

    shape: str
    trials: tuple[Trial, ...]
    attempts: int = 0
    alone: bool = False


class FailureReason(StrEnum):
    """Why a task has no outcomes."""

    TIME = "time"  # it was ended at the time limit
    MEMORY = "memory"  # or at the memory limit
    DIED = "died"  # its process ended
    RAISED = "raised"  # the whole cohort did
    LOST = "lost"  # its worker is gone, perhaps through no fault of the trials
    BROKEN = "broken"  # the kind cannot be loaded


@dataclass(frozen=True)
class Failure:
    """Why a task did not end by itself.

    Args:
        reason: one of `FailureReason`.
        message: one sentence.
        details: a traceback, or the last words of the process.
        seconds: that it had been running.
        when: seconds since 1970 by the clock of who noticed.
    """

    reason: FailureReason
    message: str
    details: str | None = None
    seconds: float = 0.0
    when: float = field(default_factory=time)


@dataclass(frozen=True)
class Report:
    """What became of a task: the outcomes of all its trials, or a failure.

    ``provenance`` says where it ran and with what, as far as that is known.
    """

    task: Task
    outcomes: tuple[Outcome, ...] = ()
    failure: Failure | None = None
    provenance: dict[str, Any] = field(default_factory=dict)


class Executor(ABC):
    """Runs tasks. It is opened once, used for one study after another, and closed.

    For each: ``use``, then ``submit`` and ``reports`` in turn, then ``cancel`` if something is
    left. ``workers`` is how many tasks are worked on at a time, which may change; ``activity``
    what the executor waits for, if it does.
    """

    workers: int = 1
    activity: str | None = None

    def __init__(self) -> None:
        self.queue: deque[Task] = deque()

    @abstractmethod
    def use(self, source: SourceSnapshot, limits: Limits) -> None:
        """Get ready to run trials of the kind that ``source`` names, each within ``limits``."""

    @property
    def slots(self) -> int:
        """How many tasks may be under way, those that wait at a worker included."""
        return 2 * self.workers

    def submit(self, task: Task) -> None:
        """Take a task; never blocks."""
        self.queue.append(task)

    @abstractmethod
    def reports(self, timeout: float) -> list[Report]:
        """Return the news since the last call; wait for some, ``timeout`` seconds at the most."""

    def cancel(self) -> None:
        """Drop all that is under way, at once."""
        self.queue.clear()

    def close(self) -> None:
        """Drop all that is under way, and end the workers."""
        self.cancel()

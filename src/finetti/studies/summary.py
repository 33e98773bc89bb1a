"""What a run did, and how the study stands after it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetti.show import Card, Shown, format_duration


@dataclass(frozen=True)
class Summary(Shown):
    """What a run did, and how the study stands now.

    Args:
        name: the study.
        store: the file with the results.
        trials, done, failed: of the whole study.
        ran: trials that this run stored.
        seconds: that it took.
        interrupted: whether Ctrl-C ended it.
    """

    name: str
    store: Path
    trials: int
    done: int
    failed: int
    ran: int
    seconds: float
    interrupted: bool = False

    @property
    def pending(self) -> int:
        """Trials without a result."""
        return self.trials - self.done - self.failed

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "store": str(self.store), "pending": self.pending}

    def __card__(self) -> Card:
        fields = (
            ("trials", self.trials),
            ("done", self.done),
            ("failed", self.failed),
            ("pending", self.pending),
            ("this run", f"{self.ran} trials in {format_duration(self.seconds)}"),
            ("store", str(self.store)),
        )
        return Card(self.name, fields)


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a run: all is closed and stored, and ``summary`` says how the study stands."""

    def __init__(self, summary: Summary) -> None:
        super().__init__(f"{summary.pending} of {summary.trials} trials left: run again.")
        self.summary = summary

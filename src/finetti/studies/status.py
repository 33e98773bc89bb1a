"""How studies stand: read from their stores, without a lock."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetti.show import Card, Shown, Table, format_duration
from finetti.studies.canonical import digest
from finetti.studies.lock import read_holder
from finetti.studies.outcome import DONE
from finetti.studies.records import Row, StoredPlan, open_records

PARTS = ("name", "id", "seed", "trials", "done", "failed", "pending")


@dataclass(frozen=True)
class Progress:
    """One study of a store; ``id`` and ``seed`` tell apart those of one name."""

    name: str
    id: str
    seed: int
    trials: int
    done: int
    failed: int

    @property
    def pending(self) -> int:
        """Trials without a result."""
        return self.trials - self.done - self.failed


@dataclass(frozen=True)
class Status(Shown):
    """The studies of a store, who writes to it, and why trials failed."""

    store: Path
    studies: tuple[Progress, ...]
    writer: dict[str, Any] | None
    failures: tuple[tuple[str, int], ...]
    seconds: float
    trials: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "store": str(self.store),
            "trials": self.trials,
            "seconds": round(self.seconds, 3),
            "writer": self.writer,
            "studies": [{**vars(each), "pending": each.pending} for each in self.studies],
            "failures": [{"error": error, "trials": count} for error, count in self.failures],
        }

    def __card__(self) -> Card:
        writer = "nobody"
        if self.writer is not None:
            writer = f"process {self.writer.get('pid')} on {self.writer.get('host')}"
        fields = (
            ("trials stored", self.trials),
            ("time in trials", format_duration(self.seconds)),
            ("written by", writer),
        )
        columns = ("study", "id", "seed", "trials", "done", "failed", "pending")
        rows = tuple(tuple(getattr(each, name) for name in PARTS) for each in self.studies)
        tables = [Table("", columns, rows)]
        if self.failures:
            title = "Why trials failed"
            tables.append(Table(title, ("reason", "trials"), self.failures))
        return Card(f"Store {self.store.name}", fields, tuple(tables))


def store_status(path: str | Path) -> Status:
    """The status of all studies in a store."""
    path = Path(path)
    with open_records(path) as records:
        # A plan is made again when a package was upgraded; if the trials are the same, it is one.
        plans = {(p.name, p.trials, tuple(c.content for c in p.cells)): p for p in records.plans()}
        return summarize(path, plans.values(), records.rows())


def summarize(path: Path, plans: Iterable[StoredPlan], rows: Iterable[Row]) -> Status:
    """The status of the studies ``plans`` by the rows of a store."""
    states: dict[str, str] = {}
    reasons: dict[str, str] = {}
    seconds = 0.0
    for row in rows:
        outcome = row.outcome
        states[outcome.trial_id] = outcome.state
        seconds += outcome.seconds
        if outcome.state != DONE:
            reasons[outcome.trial_id] = (outcome.error or "unknown").splitlines()[0]
    studies = []
    for plan in plans:
        found = Counter(states.get(trial_id) for trial_id in plan.places)
        short = digest(" ".join(cell.content for cell in plan.cells)).hex()[:6]
        counts = (len(plan.places), found[DONE], found["failed"])
        studies.append(Progress(plan.name, short, plan.cells[0].seed, *counts))
    failures = tuple(Counter(reasons.values()).most_common(10))
    return Status(path, tuple(studies), read_holder(path), failures, seconds, len(states))

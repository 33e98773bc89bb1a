"""How studies stand, read from their stores without a lock, and what a run has done."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from finetti.display import Card, Displayable, Table, format_duration, format_number, format_value
from finetti.display.pages.run_result import RunResult
from finetti.studies.coordinator import StudyPlan
from finetti.studies.store.store_reader import Row, open_store
from finetti.studies.store.writer_lock import read_holder
from finetti.studies.trials import DONE, FAILED, Cell, canonical_json, digest

COUNT_COLUMNS = ("name", "id", "seed", "trials", "done", "failed", "pending")
MAX_REASONS = 10
MAX_CELLS = 6  # that are named beside a reason
RATE_SECONDS = 600.0  # cohorts come back in bursts, so the rate is that of minutes


@dataclass(frozen=True)
class StudyCounts:
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
class FailureGroup:
    """Trials that failed for one reason.

    Args:
        error: the reason.
        trials: how many.
        repeated: of them, how many failed so twice in a row, and will again.
        cells: the parameters that vary, and the trials that failed there.
        traceback: of one of them.
    """

    error: str
    trials: int
    repeated: int
    cells: dict[str, int]
    traceback: str | None


@dataclass(frozen=True)
class EarlierTrials:
    """Stored trials of other code, or of other seeding, than that of now.

    ``code_version`` and ``seed_by``, where they are given, keep them if written into the spec.
    """

    kind: str
    trials: int
    code_version: str | None = None
    seed_by: str | None = None

    def __str__(self) -> str:
        place = self.kind.rpartition(":")[0]
        if self.seed_by and not self.code_version:
            what = f"seeded by {self.seed_by}"
        else:
            what = f"of an earlier version of {place}"
        fields = {"code_version": self.code_version, "seed_by": self.seed_by}
        given = " and ".join(f'{name} = "{value}"' for name, value in fields.items() if value)
        keep = f"keep them with {given}, or " if given else ""
        return f"{self.trials} trials {what} are stored; {keep}run the study again."


@dataclass(frozen=True)
class StudyStatus(Displayable):
    """The studies of a store, who writes to it, how fast, and why trials failed.

    ``rate`` is in trials per second: of late, or of one worker while nobody writes.
    """

    store: Path
    studies: tuple[StudyCounts, ...]
    writer: dict[str, Any] | None
    failures: tuple[FailureGroup, ...]
    seconds: float
    trials: int
    rate: float | None
    earlier: EarlierTrials | None = None

    @property
    def seconds_left(self) -> float | None:
        """Until the study is complete; None if that is unknown, as for a store of several."""
        if self.rate is None or len(self.studies) != 1:
            return None
        return self.studies[0].pending / self.rate

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "store": str(self.store),
            "trials": self.trials,
            "seconds": round(self.seconds, 3),
            "rate": self.rate,
            "seconds_left": self.seconds_left,
            "writer": self.writer,
            "studies": [{**vars(each), "pending": each.pending} for each in self.studies],
            "failures": [vars(each) for each in self.failures],
            "earlier": self.earlier and asdict(self.earlier),
        }

    def __card__(self) -> Card:
        writer = "nobody"
        if self.writer is not None:
            writer = f"process {self.writer.get('pid')} on {self.writer.get('host')}"
        fields: list[tuple[str, Any]] = [
            ("trials stored", self.trials),
            ("time in trials", format_duration(self.seconds)),
            ("written by", writer),
        ]
        if self.rate is not None and any(each.pending for each in self.studies):
            of = "" if self.writer else " with one worker"
            fields.append(("rate", f"{format_number(60 * self.rate, 3)} trials per minute{of}"))
        if self.seconds_left:
            fields.append(("time left", f"about {format_duration(self.seconds_left)}"))
        rows = tuple(tuple(getattr(each, name) for name in COUNT_COLUMNS) for each in self.studies)
        tables = [Table("", ("study", *COUNT_COLUMNS[1:]), rows)]
        if self.failures:
            tables.append(describe_failures(self.failures))
        notes = (str(self.earlier),) if self.earlier else ()
        return Card(f"Store {self.store.name}", tuple(fields), tuple(tables), notes)


def describe_failures(failures: Iterable[FailureGroup]) -> Table:
    """Why trials failed, and in which cells."""
    rows = [(each.error, each.trials, each.repeated, name_cells(each.cells)) for each in failures]
    return Table("Why trials failed", ("reason", "trials", "repeated", "cells"), tuple(rows))


def name_cells(cells: Mapping[str, int]) -> str:
    """The first cells, each with its number of trials, in words.

    >>> name_cells({"n=1": 2, "n=5": 1})
    'n=1 (2), n=5 (1)'
    """
    named = [f"{cell} ({count})" for cell, count in cells.items()]
    more = len(named) - MAX_CELLS
    return ", ".join([*named[:MAX_CELLS], *([f"{more} more"] if more > 0 else [])])


def count_trials(plan: StudyPlan, states: Mapping[str, str]) -> StudyCounts:
    """How a study stands by the ``states`` of the trials of its store."""
    found = Counter(states.get(trial_id) for trial_id in plan.trial_positions)
    short = _short_id(cell.content for cell in plan.cells)
    counts = (len(plan.trial_positions), found[DONE], found[FAILED])
    return StudyCounts(plan.name, short, plan.cells[0].seed, *counts)


def _short_id(contents: Iterable[str]) -> str:
    """What tells apart studies of one name."""
    return digest(" ".join(contents)).hex()[:6]


def store_status(path: str | Path) -> StudyStatus:
    """The status of all that is in a store: what is pending, only the file of a study tells."""
    path = Path(path)
    with open_store(path) as reader:
        rows = reader.rows()
    groups: dict[tuple[str, str, int, str], list[Row]] = {}
    for row in rows:
        cell = row.cell
        groups.setdefault((cell.kind, cell.code, cell.seed, cell.seed_by), []).append(row)
    studies = []
    for (kind, _, seed, _), group in groups.items():
        cells = dict.fromkeys(row.cell.content for row in group)
        done = sum(row.outcome.state == DONE for row in group)
        counts = len(group), done, len(group) - done
        studies.append(StudyCounts(kind, _short_id(cells), seed, *counts))
    return summarize(
        path, studies, list({row.cell.content: row.cell for row in rows}.values()), rows
    )


def study_status(path: Path, plan: StudyPlan, rows: Iterable[Row]) -> StudyStatus:
    """The status of one study by all rows of its store."""
    own, others = [], []
    for row in rows:
        (own if row.outcome.trial_id in plan.trial_positions else others).append(row)
    states = {row.outcome.trial_id: row.outcome.state for row in own}
    status = summarize(path, [count_trials(plan, states)], plan.cells, own)
    if not status.studies[0].pending:
        return status
    return replace(status, earlier=_earlier(plan.cells, others))


def summarize(
    path: Path, studies: Sequence[StudyCounts], cells: Sequence[Cell], rows: Sequence[Row]
) -> StudyStatus:
    """The status of ``studies`` with these ``cells`` by the ``rows`` of a store."""
    failures = _failures([row for row in rows if row.outcome.state != DONE], cells)
    seconds = sum(row.outcome.seconds for row in rows)
    writer = read_holder(path)
    rate = _rate(writer, rows, seconds)
    return StudyStatus(path, tuple(studies), writer, failures, seconds, len(rows), rate)


def _rate(writer: dict[str, Any] | None, rows: Sequence[Row], seconds: float) -> float | None:
    if writer is None:
        return len(rows) / seconds if seconds else None
    now = time.time()
    since = datetime.fromisoformat(writer["since"]).timestamp() if writer else now
    start = max(since, now - RATE_SECONDS)
    recent = sum(row.outcome.finished >= start for row in rows)
    return recent / (now - start) if recent else None


def _failures(rows: Sequence[Row], cells: Sequence[Cell]) -> tuple[FailureGroup, ...]:
    values: dict[str, set[str]] = {}
    for cell in cells:
        for name, value in cell.params.items():
            values.setdefault(name, set()).add(canonical_json(value))

    def label(cell: Cell) -> str:
        varied = {k: v for k, v in cell.params.items() if len(values.get(k, ())) != 1}
        return ", ".join(f"{k}={format_value(v)}" for k, v in varied.items()) or "the only one"

    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault((row.outcome.error or "unknown").splitlines()[0], []).append(row)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))[:MAX_REASONS]
    return tuple(
        FailureGroup(
            error,
            len(group),
            sum(row.repeats > 1 for row in group),
            dict(Counter(label(row.cell) for row in group).most_common()),
            next((row.outcome.traceback for row in group if row.outcome.traceback), None),
        )
        for error, group in largest
    )


def _earlier(cells: Sequence[Cell], others: Sequence[Row]) -> EarlierTrials | None:
    """The trials of the code, or of the seeding, before that of ``cells``, among other rows."""
    now = cells[0]
    own = {cell.content for cell in cells}

    def is_kept(cell: Cell) -> bool:
        """Whether it would be one of ours under its own version and seeding."""
        ours = replace(cell, fingerprint=now.fingerprint, seed_by=now.seed_by)
        return ours.content in own

    old = [
        row
        for row in others
        if row.cell.kind == now.kind
        # Under the same code, other parameters are those of another study.
        and (row.cell.code != now.code or (row.cell.seed_by != now.seed_by and is_kept(row.cell)))
    ]
    if not old:
        return None
    then = max(old, key=lambda row: row.outcome.finished).cell
    alike = [row for row in old if (row.cell.code, row.cell.seed_by) == (then.code, then.seed_by)]
    if not any(is_kept(row.cell) for row in alike):
        return EarlierTrials(now.kind, len(alike))
    version = then.fingerprint if then.code != now.code else None
    seeding = then.seed_by if then.seed_by != now.seed_by else None
    return EarlierTrials(now.kind, len(alike), version, seeding)


@dataclass(frozen=True)
class RunEstimate(Displayable):
    """What a run would do.

    Args:
        name: the study.
        trials, stored, pending: all trials, those that have a result, and those to run.
        seconds: the estimated time; None as long as no trial is stored.
        workers: that the estimate is for.
    """

    name: str
    trials: int
    stored: int
    pending: int
    seconds: float | None
    workers: int

    @property
    def duration(self) -> str:
        """The estimated time in words."""
        if not self.pending:
            return "nothing to do"
        if self.seconds is None:
            return "unknown until a trial is stored"
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"about {format_duration(self.seconds)} with {workers}"

    @property
    def text(self) -> str:
        """The counts and the time as a sentence."""
        if not self.pending:
            return f"All {self.trials} trials are stored."
        return f"{self.pending} of {self.trials} trials to run; time: {self.duration}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "duration": self.duration}

    def __card__(self) -> Card:
        fields = {
            "trials": self.trials,
            "already stored": self.stored,
            "to run": self.pending,
            "estimated time": self.duration,
        }
        return Card(f"{self.name}: a dry run, nothing is stored", tuple(fields.items()))


def total_estimate(estimates: Sequence[RunEstimate], name: str) -> RunEstimate:
    """Several studies, one after another, as one; its time is unknown if one of theirs is."""
    first, *others = estimates
    first = replace(first, name=name)
    for each in others:
        unknown = any(e.seconds is None and e.pending for e in (first, each))
        first = replace(
            first,
            trials=first.trials + each.trials,
            stored=first.stored + each.stored,
            pending=first.pending + each.pending,
            seconds=None if unknown else (first.seconds or 0.0) + (each.seconds or 0.0),
        )
    return first


@dataclass(frozen=True)
class RunSummary(StudyCounts, RunResult):
    """What a run did, and how the study stands now.

    Args:
        store: the file with the results.
        ran: trials that this run stored.
        seconds: that it took.
        interrupted: whether Ctrl-C ended it.
        failures: why trials failed.
    """

    store: Path
    ran: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    failures: tuple[FailureGroup, ...] = ()

    @property
    def headline(self) -> str:
        """What the run has done."""
        text = f"{self.done} of {self.trials} trials done"
        text += f", {self.failed} failed" if self.failed else ""
        text += f" ({self.ran} in this run, {format_duration(self.seconds)})."
        if self.interrupted:
            text += f" Interrupted with {self.pending} left: rerun the same command to resume."
        return f"{text} Results: {self.store}"

    @property
    def as_expected(self) -> bool:
        """Whether no trial failed."""
        return not self.failed

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {**vars(self), "store": str(self.store), "pending": self.pending}
        return {**plain, "failures": [vars(each) for each in self.failures]}

    def failure_table(self) -> Table | None:
        """Why trials failed, and in which cells; None if none did."""
        return describe_failures(self.failures) if self.failures else None

    def __card__(self) -> Card:
        table = self.failure_table()
        notes = ()
        if self.failures:
            advice = f"Show their tracebacks with `finetti status {self.store} --details`."
            if any(each.repeated < each.trials for each in self.failures):
                advice += " Rerun them with --retry-failed."
            notes = (advice,)
        return Card(f"{self.name}: {self.headline}", (), (table,) if table else (), notes)


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a run: all is closed and stored.

    Args:
        summary: how the study stands.
        result: what is known by then, of a run of several studies; else the summary.
    """

    def __init__(self, summary: RunSummary, result: RunResult | None = None) -> None:
        super().__init__(
            f"{summary.pending} of {summary.trials} trials left: run the study again to resume."
        )
        self.summary = summary
        self.result = summary if result is None else result

"""Reading a store. Needs no lock, changes nothing (but undoes what a killed process left half
written), and understands older layouts."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetti.core.errors import InputError
from finetti.studies.disk import check_store_file, plain_errors, readable
from finetti.studies.outcome import DONE, Outcome
from finetti.studies.plan import WorkPlan
from finetti.studies.schema import CURRENT_LAYOUT, migrate, schema_version
from finetti.studies.trial import Cell

ROWS = """
    SELECT cells.content, trials.replicate, attempts, repeats, provenances.content,
           trials.id, state, metrics, trace, error, traceback, seconds, finished
    FROM trials JOIN cells USING (cell) JOIN provenances USING (provenance)
    ORDER BY cells.content, trials.replicate, trials.id
"""


@dataclass(frozen=True)
class Row:
    """A stored trial with its cell; the last ``repeats`` of its ``attempts`` failed alike."""

    cell: Cell
    replicate: int
    outcome: Outcome
    attempts: int = 1
    repeats: int = 1


class Records:
    """What stands in an open store."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        self.path = path

    def states(self) -> dict[str, str]:
        """Id → done or failed, for every trial in the store."""
        with readable(self.path):
            found = self.connection.execute("SELECT id, state FROM trials").fetchall()
            return {trial_id.hex(): state for trial_id, state in found}

    def rows(self) -> Iterator[Row]:
        """Every trial, in an order that does not depend on when it was run."""
        cells: dict[str, Cell] = {}
        with readable(self.path):
            for content, replicate, attempts, repeats, *outcome in self.connection.execute(ROWS):
                if content not in cells:
                    cells[content] = Cell(**json.loads(content))
                yield Row(cells[content], replicate, _outcome(*outcome), attempts, repeats)

    def plan(self, digest: bytes) -> WorkPlan | None:
        """The plan with this digest, if it was made before."""
        return next(self._plans("WHERE digest = ?", digest), None)

    def plans(self) -> list[WorkPlan]:
        """Every plan, oldest first."""
        return list(self._plans("ORDER BY created, plan"))

    def _plans(self, which: str, *values: Any) -> Iterator[WorkPlan]:
        with readable(self.path):
            found = self.connection.execute(
                f"SELECT plan, digest, name, trials, together, cohort_size FROM plans {which}",
                values,
            ).fetchall()
            for number, digest, name, trials, together, cohort_size in found:
                pairs = self.connection.execute(
                    "SELECT content, shape FROM plan_cells JOIN cells USING (cell) WHERE plan = ?"
                    " ORDER BY position",
                    (number,),
                ).fetchall()
                cells = tuple(Cell(**json.loads(content)) for content, _ in pairs)
                shapes = tuple(shape for _, shape in pairs)
                yield WorkPlan(digest, name, trials, bool(together), cohort_size, cells, shapes)


def _outcome(
    made_by: str, trial_id: bytes, state: str, metrics: Any, trace: Any, *rest: Any
) -> Outcome:
    found = dict(json.loads(metrics).items()) if metrics and state == DONE else {}
    told = json.loads(trace) if trace else None
    return Outcome(
        trial_id.hex(), state, found, told, *rest, provenance=dict(json.loads(made_by).items())
    )


@contextmanager
def open_records(path: str | Path, or_empty: bool = False) -> Iterator[Records]:
    """Open a store for reading, also while it is being written; ``or_empty`` if there is none."""
    path = Path(path)
    check_store_file(path)
    if not path.exists() and not or_empty:
        raise InputError(f"There is no store {path}. Running a study creates one.")
    place = f"{path.absolute().as_uri()}?mode=ro" if path.exists() else ":memory:"
    with plain_errors(path):
        connection = sqlite3.connect(place, uri=True, timeout=1)
    try:
        with plain_errors(path):
            try:
                version = schema_version(connection, str(path))
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
                    raise
                # A process was killed while it wrote: who may write undoes it.
                with closing(sqlite3.connect(path, timeout=1)) as writer:
                    version = schema_version(writer, str(path))
            if version < CURRENT_LAYOUT:
                # An older layout is brought up to date in memory; the file stays as it is.
                copy = sqlite3.connect(":memory:")
                connection.backup(copy)
                connection.close()
                connection = copy
                # Of the copy: a writer may just have made the file, or brought it up to date.
                migrate(connection, schema_version(connection, str(path)))
        yield Records(connection, path)
    finally:
        connection.close()

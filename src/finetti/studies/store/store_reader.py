"""Reading a store. Needs no lock, changes nothing but what a killed process left half written, and
believes no row whose checksum is not that of its content."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetti.core.errors import InputError
from finetti.studies.store.store_errors import (
    DamagedStoreError,
    check_store_file,
    damaged_rows,
    decode_errors_as_damage,
    sqlite_errors_as_sentences,
)
from finetti.studies.store.store_layout import Totals, create_layout, has_layout, row_checksum
from finetti.studies.trials import DONE, Cell, Outcome

# Readers and the writer wait for each other, also on a slow disk: each needs the file for moments.
BUSY_SECONDS = 300.0
COLUMNS = (
    "id, cell, replicate, state, metrics, trace, record, error, traceback, seconds, finished, "
    "provenance, attempts, repeats, checksum"
)


@dataclass(frozen=True)
class Row:
    """A stored trial with its cell; the last ``repeats`` of its ``attempts`` failed alike."""

    cell: Cell
    replicate: int
    outcome: Outcome
    attempts: int = 1
    repeats: int = 1


class StoreReader:
    """What stands in an open store.

    Args:
        connection: of the file.
        path: the file's, for sentences.
        salvage: read what can be read of a damaged file, and leave out the rest; ``damaged`` has
            the names of the rows that were left out.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, salvage: bool = False) -> None:
        self.connection = connection
        self.path = path
        self.salvage = salvage
        self.damaged: list[str] = []

    def states(self) -> dict[str, str]:
        """Id → done or failed, for every trial in the store."""
        return {values[0]: values[3] for values in self._whole_rows()}

    def rows(self) -> list[Row]:
        """Every trial, in an order that does not depend on when it was run."""
        cells: dict[str, Cell] = {}
        found = []
        with decode_errors_as_damage(self.path):
            # By cell, replicate and id.
            for values in sorted(self._whole_rows(), key=lambda row: (row[1], row[2], row[0])):
                content = values[1]
                if content not in cells:
                    cells[content] = Cell(**json.loads(content))
                found.append(_row(cells[content], values))
        return found

    def cells(self) -> dict[str, int]:
        """The content of each cell, and its number."""
        return {content: number for number, content in self._read("cells").items()}

    def totals(self) -> Totals:
        """What the store says of all its rows."""
        with decode_errors_as_damage(self.path):
            return Totals(
                *self.connection.execute("SELECT trials, checksum FROM totals").fetchone()
            )

    def _whole_rows(self) -> list[list[Any]]:
        """The values of each row whose checksum is right, with cell and provenance written out.

        Raises if there are others or too few, unless this is to ``salvage`` what is left.
        """
        with decode_errors_as_damage(self.path):
            self.connection.execute("BEGIN")  # one state of all tables
            try:
                return self._read_and_verify()
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def _read_and_verify(self) -> list[list[Any]]:
        cells, provenances = self._read("cells"), self._read("provenances")
        whole: dict[str, list[Any]] = {}
        checksums, self.damaged = [], []
        for (
            number,
            trial_id,
            cell,
            replicate,
            *middle,
            made_by,
            tries,
            repeats,
            checksum,
        ) in self._table("trials", COLUMNS):
            values = [
                trial_id.hex() if isinstance(trial_id, bytes) else None,
                cells.get(cell),
                replicate,
                *middle,
                provenances.get(made_by),
                tries,
                repeats,
            ]
            if checksum == row_checksum(values):
                checksums.append(checksum)
                whole[values[0]] = values
            else:
                self.damaged.append(_name(number, values))
        said, found = self._said(), Totals().plus(len(checksums), checksums)
        missing = (said or found).trials - len(whole) - len(self.damaged)
        if missing:
            self.damaged.append(f"{missing} trials are missing")
        elif not self.damaged and said != found:
            self.damaged.append("the totals")
        if self.damaged and not self.salvage:
            raise damaged_rows(self.path, self.damaged)
        return list(whole.values())

    def _said(self) -> Totals | None:
        try:
            return self.totals()
        except DamagedStoreError:
            if self.salvage:
                return None
            raise

    def _read(self, table: str) -> dict[int, str]:
        return dict(self._table(table, "content"))

    def _table(self, table: str, columns: str) -> Sequence[Any]:
        """The rows of a table, each with its number in front. No index is asked, only the table."""
        ask = f"SELECT rowid, {columns} FROM {table} NOT INDEXED"
        if not self.salvage:
            return self.connection.execute(ask).fetchall()
        found: dict[Any, None] = {}
        numbers = [0, 0]
        for end, order in enumerate(("ASC", "DESC")):
            # From the front to the first page that cannot be read, and from the back.
            try:
                for row in self.connection.execute(f"{ask} ORDER BY rowid {order}"):
                    found[row] = None
                    numbers[end] = row[0]
                return list(found)
            except sqlite3.DatabaseError:
                continue
        first, last = numbers
        for number in range(first + 1, last):
            with contextlib.suppress(sqlite3.DatabaseError):
                found |= dict.fromkeys(self.connection.execute(f"{ask} WHERE rowid = ?", (number,)))
        return list(found)


def _row(cell: Cell, values: Sequence[Any]) -> Row:
    trial_id, _, replicate, state, metrics, trace, record, *rest, made_by, tries, repeats = values
    found = dict(json.loads(metrics).items()) if metrics and state == DONE else {}
    told = json.loads(trace) if trace else None
    kept = json.loads(record) if record else None
    provenance = dict(json.loads(made_by).items())
    outcome = Outcome(trial_id, state, found, told, kept, *rest, provenance=provenance)
    return Row(cell, replicate, outcome, tries, repeats)


def _name(number: int, values: Sequence[Any]) -> str:
    """What a damaged row says of itself, which may be wrong."""
    try:
        params = json.loads(values[1])["params"]
        told = ", ".join(f"{name}={value}" for name, value in params.items())
        return f"row {number} ({told}, replicate {values[2]})"
    except (TypeError, ValueError, KeyError, AttributeError):
        return f"row {number}"


def decode_text(content: bytes) -> str:
    """Text as it stands in the file: a flipped bit must not hide the rows behind it."""
    return content.decode("utf-8", "surrogateescape")


def connect(place: str) -> sqlite3.Connection:
    """A connection that waits for others, and that believes little of what is in the file."""
    connection = sqlite3.connect(place, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    connection.text_factory = decode_text
    connection.execute("PRAGMA trusted_schema = off")
    connection.execute("PRAGMA cell_size_check = on")
    return connection


@contextmanager
def open_store(
    path: str | Path, or_empty: bool = False, salvage: bool = False
) -> Iterator[StoreReader]:
    """Open a store for reading, also while it is being written.

    Args:
        path: the file.
        or_empty: act as an empty store if there is no file.
        salvage: see `StoreReader`.
    """
    path = Path(path)
    check_store_file(path)
    if not path.exists() and not or_empty:
        raise InputError(f"There is no store {path}. Running a study creates one.")
    # Not read-only: if a process was killed while it wrote, the first one that reads undoes it.
    place = f"{path.absolute().as_uri()}?mode=rw" if path.exists() else ":memory:"
    with sqlite_errors_as_sentences(path):
        connection = connect(place)
    try:
        with sqlite_errors_as_sentences(path):
            connection.execute("PRAGMA query_only = on")
            if not has_layout(connection, str(path)):
                connection.close()
                connection = connect(":memory:")
                create_layout(connection)
        yield StoreReader(connection, path, salvage)
    finally:
        connection.close()

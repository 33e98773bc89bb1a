"""Writing a store: one writer, all or nothing, finished rows never change."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from finetti.core.errors import bad_argument
from finetti.studies.store.store_errors import (
    check_store_file,
    damaged_store,
    moved_store,
    sqlite_errors_as_sentences,
)
from finetti.studies.store.store_layout import create_layout, has_layout, row_checksum
from finetti.studies.store.store_reader import COLUMNS, Row, StoreReader, connect
from finetti.studies.store.writer_lock import WriterLock
from finetti.studies.trials import DONE, canonical_json

MAX_CHECKED_BYTES = 100e6  # reading all of a larger file takes longer than starting should
PLACES = ", ".join("?" for _ in COLUMNS.split(","))
INSERT = f"INSERT INTO trials ({COLUMNS}) VALUES ({PLACES})"
ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
UPDATE = f"UPDATE trials SET ({COLUMNS}) = ({PLACES}) WHERE id = ?"


class Store:
    """The store of a study, open for writing; nobody else can write until it is closed.

    A file of up to 100 MB, one whose writer was killed, and one that is to be ``checked`` anyhow
    are looked through first. An index that is damaged is made again from its rows, if these are
    whole; nothing is written to a file whose rows are not. ``states`` has the state of each trial.

    Args:
        path: the file; made if it is not there.
        wait, on_wait: see ``WriterLock``; ``on_wait`` is also told of a repair.
        checked: look through a file of any size.
    """

    def __init__(
        self,
        path: str | Path,
        wait: bool = False,
        on_wait: Callable[[str], None] | None = None,
        checked: bool = False,
    ) -> None:
        if not str(path) or str(path) == ":memory:":
            raise bad_argument("path", "Store", "the path of a file", path)
        check_store_file(Path(path))
        self.path = Path(os.path.realpath(path))
        self.tell = on_wait or (lambda sentence: None)
        self.lock = WriterLock(self.path, wait, on_wait)
        try:
            with sqlite_errors_as_sentences(self.path):
                self.connection = connect(self.path.absolute().as_uri())
                # The same journal on every disk, also on those of several machines.
                self.connection.execute("PRAGMA journal_mode = delete")
                if not has_layout(self.connection, str(self.path)):
                    create_layout(self.connection)
                self.place = os.stat(self.path)
                self.reader = StoreReader(self.connection, self.path)
                large = self.place.st_size > MAX_CHECKED_BYTES
                if checked or self.lock.taken_over or not large:
                    self._check()
                self.states = self.reader.states()  # raises unless all rows are there and whole
                self.totals = self.reader.totals()
                self.numbers = {"cell": self.reader.cells(), "provenance": dict[str, int]()}
                self.made_by: tuple[dict[str, Any], str] = {}, "{}"
        except BaseException:
            if hasattr(self, "connection"):
                self.connection.close()
            self.lock.release()
            raise

    def _check(self) -> None:
        """Look through the file, and make its index again where only that is damaged."""
        if not (wrong := self._wrong()):
            return
        self.reader.states()  # raises unless all rows are there and whole
        self.connection.execute("REINDEX")
        if self._wrong():
            raise damaged_store(self.path, wrong)
        self.tell(
            f"The index of {self.path} was damaged ({wrong}). It was made again from the "
            "rows, which are whole."
        )

    def _wrong(self) -> str | None:
        (verdict,) = self.connection.execute("PRAGMA integrity_check(1)").fetchone()
        return None if verdict == "ok" else str(verdict)

    def add(self, rows: Sequence[Row]) -> None:
        """Store trials, all or none of them. One that is already done stays as it is.

        The attempts of a trial that had failed are added up.
        """
        states: dict[str, str] = {}
        numbers = {table: dict(known) for table, known in self.numbers.items()}
        added: list[bytes] = []
        removed: list[bytes] = []
        with sqlite_errors_as_sentences(self.path), self.connection:  # commits, or rolls back
            self.connection.execute("BEGIN IMMEDIATE")
            for row in rows:
                trial_id = row.outcome.trial_id
                known = states.get(trial_id, self.states.get(trial_id))
                if known != DONE:
                    self._put(row, known is not None, numbers, added, removed)
                    states[trial_id] = row.outcome.state
            totals = self.totals.plus(len(added) - len(removed), added, removed)
            self.connection.execute(
                "UPDATE totals SET trials = ?, checksum = ?", (totals.trials, totals.checksum)
            )
        self.totals, self.numbers = totals, numbers
        self.states |= states
        self._check_place()  # before anything more is computed for a file that is gone

    def _put(
        self,
        row: Row,
        failed_before: bool,
        numbers: dict[str, dict[str, int]],
        added: list[bytes],
        removed: list[bytes],
    ) -> None:
        """Write a row, and note its checksum and that of the row in whose place it stands."""
        outcome, attempts, repeats = row.outcome, row.attempts, row.repeats
        key = bytes.fromhex(outcome.trial_id)
        if failed_before:
            ask = "SELECT error, attempts, repeats, checksum FROM trials WHERE id = ?"
            error, *counts, checksum = self.connection.execute(ask, (key,)).fetchone()
            attempts += counts[0]
            repeats += counts[1] if error == outcome.error else 0
            removed.append(checksum)
        if outcome.provenance != self.made_by[0]:  # most are those of the row before
            self.made_by = outcome.provenance, canonical_json(outcome.provenance)
        cell, made_by = row.cell.content, self.made_by[1]
        own = [
            row.replicate,
            outcome.state,
            _text(outcome.metrics or None),
            _text(outcome.trace),
            _text(outcome.record),
            outcome.error,
            outcome.traceback,
            round(float(outcome.seconds), 6),
            round(float(outcome.finished), 3),
        ]
        checksum = row_checksum([outcome.trial_id, cell, *own, made_by, attempts, repeats])
        added.append(checksum)
        cell_number = self._number("cell", cell, numbers)
        provenance = self._number("provenance", made_by, numbers)
        values = (key, cell_number, *own, provenance, attempts, repeats, checksum)
        if failed_before:
            self.connection.execute(UPDATE, (*values, key))
        else:
            self.connection.execute(INSERT, values)

    def _number(self, table: str, content: str, numbers: dict[str, dict[str, int]]) -> int:
        """The number of a cell or a provenance, whose ``content`` is stored once."""
        known = numbers[table]
        if content not in known:
            known[content] = self.connection.execute(
                f"INSERT INTO {table}s (content) VALUES (?) RETURNING {table}", (content,)
            ).fetchone()[0]
        return known[content]

    def _check_place(self) -> None:
        """Refuse to go on if another file, or none, has the store's name: nobody would find it."""
        try:
            if os.path.samestat(os.stat(self.path), self.place):
                return
        except OSError:  # it is not there any more
            pass
        raise moved_store(self.path)

    def close(self) -> None:
        """Close the file, and let others write."""
        self.connection.close()
        self.lock.release()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _text(content: object) -> str | None:
    """JSON that may hold Infinity (and NaN in a trace), as Python reads it back."""
    if content is None:
        return None
    return ENCODER.encode(content)

"""Writing a store: one writer, all or nothing, finished rows never change."""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from finetti.core.errors import FinettiError, bad_argument
from finetti.studies.canonical import canonical_json
from finetti.studies.disk import (
    check_store_file,
    damaged,
    moved,
    on_network,
    plain_errors,
    primary_code,
)
from finetti.studies.lock import WriterLock
from finetti.studies.plan import WorkPlan
from finetti.studies.records import Records, Row
from finetti.studies.schema import migrate, schema_version

MAX_CHECKED_BYTES = 100e6  # reading all of a larger file takes longer than starting should
NO_WRITE_AHEAD = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_CANTOPEN)
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
LOG_STAYS = (*BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)

ADD = """
    INSERT INTO trials (id, cell, replicate, state, metrics, trace, error, traceback, seconds,
                        finished, provenance, attempts, repeats)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        state = excluded.state, metrics = excluded.metrics, trace = excluded.trace,
        error = excluded.error, traceback = excluded.traceback, seconds = excluded.seconds,
        finished = excluded.finished, provenance = excluded.provenance,
        attempts = trials.attempts + excluded.attempts,
        repeats = excluded.repeats + iif(excluded.error IS trials.error, trials.repeats, 0)
    WHERE trials.state = 'failed'
"""


class Store:
    """The store of a study, open for writing; nobody else can write until it is closed.

    Args:
        path: the file; made if it is not there.
        journal: ``wal`` (a write-ahead log: reading goes on beside writing), ``rollback`` (for
            disks where that cannot work: nobody reads while it is open), or ``auto``.
        wait, on_wait: see ``WriterLock``.
    """

    def __init__(
        self,
        path: str | Path,
        journal: str = "auto",
        wait: bool = False,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        if journal not in ("auto", "wal", "rollback"):
            raise bad_argument("journal", "Store", "auto, wal or rollback", journal)
        # Links are followed, so that two names of one file share its lock.
        self.path = Path(os.path.realpath(path))
        check_store_file(self.path)
        self.lock = WriterLock(self.path, wait, on_wait)
        try:
            with plain_errors(self.path):
                self.connection = sqlite3.connect(
                    self.path, timeout=30, isolation_level=None, check_same_thread=False
                )
                self._open(journal)
                self.place = os.stat(self.path)
        except BaseException:
            if hasattr(self, "connection"):
                self.connection.close()
            self.lock.release()
            raise
        self.records = Records(self.connection, self.path)
        self._numbers: dict[tuple[str, str], int] = {}

    def _open(self, journal: str) -> None:
        version = schema_version(self.connection, str(self.path))
        if 0 < self.path.stat().st_size <= MAX_CHECKED_BYTES:
            (verdict,) = self.connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise damaged(self.path, verdict)
        wanted = journal == "wal" or (journal == "auto" and not on_network(self.path))
        if wanted and self._write_ahead():
            self.journal = "wal"
            # The log survives the end of the process without waiting for the disk at each commit.
            self.connection.execute("PRAGMA synchronous = normal")
        else:
            self.journal = "rollback"
            self.connection.execute("PRAGMA journal_mode = delete")
            self.connection.execute("PRAGMA locking_mode = exclusive")
            self.connection.execute("PRAGMA synchronous = full")
        migrate(self.connection, version)

    def _write_ahead(self) -> bool:
        """Ask for a write-ahead log; whether the disk can keep one."""
        try:
            (mode,) = self.connection.execute("PRAGMA journal_mode = wal").fetchone()
        except sqlite3.OperationalError as error:
            # Disks without shared memory or locks say so here; others must not be hidden.
            if primary_code(error) not in NO_WRITE_AHEAD:
                raise
            return False
        return mode == "wal"

    def add_plan(self, plan: WorkPlan) -> None:
        """Remember what a study consists of, once."""
        own = plan.digest, plan.name, plan.trials, plan.together, plan.cohort_size, time.time()
        with self._transaction():
            found = self.connection.execute(
                "INSERT INTO plans (digest, name, trials, together, cohort_size, created)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING plan",
                own,
            ).fetchall()
            if not found:
                return
            rows = [
                (found[0][0], position, self._number("cell", cell.content), shape)
                for position, (cell, shape) in enumerate(zip(plan.cells, plan.shapes, strict=True))
            ]
            self.connection.executemany("INSERT INTO plan_cells VALUES (?, ?, ?, ?)", rows)

    def add(self, rows: Sequence[Row]) -> None:
        """Store trials, all or none of them. One that is already done stays as it is.

        The attempts of a trial that had failed are added up.
        """
        with self._transaction():
            self.connection.executemany(ADD, list(map(self._values, rows)))

    def _values(self, row: Row) -> tuple[Any, ...]:
        outcome = row.outcome
        return (
            bytes.fromhex(outcome.trial_id),
            self._number("cell", row.cell.content),
            row.replicate,
            outcome.state,
            _text(outcome.metrics or None),
            _text(outcome.trace),
            outcome.error,
            outcome.traceback,
            round(outcome.seconds, 6),
            round(outcome.finished, 3),
            self._number("provenance", canonical_json(outcome.provenance)),
            row.attempts,
            row.repeats,
        )

    def _number(self, table: str, content: str) -> int:
        """The number of a cell or a provenance, whose ``content`` is stored once."""
        key = table, content
        if key not in self._numbers:
            self.connection.execute(
                f"INSERT INTO {table}s (content) VALUES (?) ON CONFLICT DO NOTHING", (content,)
            )
            (self._numbers[key],) = self.connection.execute(
                f"SELECT {table} FROM {table}s WHERE content = ?", (content,)
            ).fetchone()
        return self._numbers[key]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of the block or none of it, with errors as sentences."""
        try:
            with plain_errors(self.path), self.connection:  # which commits, or rolls back
                self.connection.execute("BEGIN IMMEDIATE")
                yield
            self._check_place()  # before anything more is computed for a file that is gone
        except BaseException:
            self._numbers.clear()  # those given out in this transaction are not there
            raise

    def _check_place(self) -> None:
        """Refuse to go on if another file, or none, has the store's name: nobody would find it."""
        try:
            if os.path.samestat(os.stat(self.path), self.place):
                return
        except OSError:  # it is not there any more
            pass
        with plain_errors(self.path):
            # The log kept its old name, where the file that was moved would not find it.
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        raise moved(self.path)

    def close(self) -> None:
        """Close the file, as a single one that can be copied and read anywhere."""
        try:
            if self.journal == "wal":
                self.connection.execute("PRAGMA busy_timeout = 0")
                self.connection.execute("PRAGMA journal_mode = delete")
        except sqlite3.OperationalError as error:
            # Somebody reads just now, or the disk is full: the log stays beside the file.
            if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_DBMOVED:
                raise moved(self.path) from error
            if primary_code(error) not in LOG_STAYS:
                raise FinettiError(f"{self.path} cannot be closed: {error}.") from error
        finally:
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
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)

"""The layout of a store: its tables, and the checksums that tell whether its rows are whole."""

import functools
import hashlib
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from finetti.core.errors import FinettiError

APPLICATION_ID = 0x46494E45  # "FINE" in the file's header: this is a store of ours
LAYOUT = 6
CHECKSUM_BYTES = 8

# Rows have numbers, and the index by id is built from them: it can be made again where it is
# damaged, and a row that SQLite cannot reach hides no other one.
SCHEMA = """
CREATE TABLE cells (
    cell INTEGER PRIMARY KEY,
    content TEXT NOT NULL
);
CREATE TABLE provenances (
    provenance INTEGER PRIMARY KEY,
    content TEXT NOT NULL
);
CREATE TABLE trials (
    id BLOB NOT NULL,
    cell INTEGER NOT NULL,
    replicate INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('done', 'failed')),
    metrics TEXT,
    trace TEXT,
    record TEXT,
    error TEXT,
    traceback TEXT,
    seconds REAL NOT NULL,
    finished REAL NOT NULL,
    provenance INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    repeats INTEGER NOT NULL,
    checksum BLOB NOT NULL
);
CREATE UNIQUE INDEX trials_by_id ON trials (id);
CREATE TABLE totals (
    trials INTEGER NOT NULL,
    checksum BLOB NOT NULL
);
INSERT INTO totals VALUES (0, zeroblob(8));
CREATE TRIGGER done_is_done BEFORE UPDATE ON trials WHEN OLD.state = 'done'
BEGIN SELECT RAISE(ABORT, 'a finished trial is never changed'); END;
CREATE TRIGGER done_stays BEFORE DELETE ON trials WHEN OLD.state = 'done'
BEGIN SELECT RAISE(ABORT, 'a finished trial is never deleted'); END;
"""


def create_layout(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty file, all or nothing."""
    connection.executescript(
        f"BEGIN EXCLUSIVE; PRAGMA application_id = {APPLICATION_ID}; {SCHEMA}"
        f"PRAGMA user_version = {LAYOUT}; COMMIT;"
    )


def has_layout(connection: sqlite3.Connection, name: str) -> bool:
    """Whether an open file is a store; False if it is empty. Refuses everything else."""
    # One statement sees one state of the file, also while another process is creating it.
    version, application, tables = connection.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_user_version, pragma_application_id"
    ).fetchone()
    if not (tables or application or version):
        return False
    if application != APPLICATION_ID:
        raise FinettiError(
            f"{name} is a database of another program. Choose another path for the store."
        )
    if version != LAYOUT:
        raise FinettiError(
            f"{name} is damaged, or was written by another version of Finetti (layout {version}, "
            f"this one reads {LAYOUT}). It is left as it is."
        )
    if strange := _strange_parts(connection):
        raise FinettiError(
            f"{name} is damaged or is not a store: of its parts, {', '.join(strange)} "
            f"{'is' if len(strange) == 1 else 'are'} not as Finetti makes them. It is left as it "
            "is; move it away."
        )
    return True


def _strange_parts(connection: sqlite3.Connection) -> list[str]:
    """Names of parts that are missing or not as we make them; views; triggers of others."""
    ours, found = _own_parts(), _parts(connection)
    wrong = [name for name, part in ours.items() if found.get(name) != part]
    more = [n for n, (kind, _) in found.items() if n not in ours and kind in ("view", "trigger")]
    return sorted(map(str, wrong + more))


def _parts(connection: sqlite3.Connection) -> dict[str, list[str | None]]:
    found = connection.execute("SELECT name, type, sql FROM sqlite_master")
    return {name: rest for name, *rest in found}


@functools.cache
def _own_parts() -> dict[str, list[str | None]]:
    with closing(sqlite3.connect(":memory:")) as own:
        create_layout(own)
        return _parts(own)


def row_checksum(values: list[Any]) -> bytes:
    """Return the checksum of all that a row says, its cell and its provenance written out.

    >>> row_checksum(["8c", 0, 0.5, None]).hex()
    '7c97a85a9961c137'
    """
    # Python's own notation tells types apart, and is the same in all of its versions.
    return hashlib.blake2b(ascii(values).encode(), digest_size=CHECKSUM_BYTES).digest()


@dataclass(frozen=True)
class Totals:
    """How many rows there are, and the sum of their checksums: no row can vanish unnoticed."""

    trials: int = 0
    checksum: bytes = bytes(CHECKSUM_BYTES)

    def plus(self, trials: int, checksums: Iterable[bytes], less: Iterable[bytes] = ()) -> "Totals":
        """The totals with more rows, and with the checksums of changed ones exchanged."""
        total = int.from_bytes(self.checksum)
        total += sum(map(int.from_bytes, checksums)) - sum(map(int.from_bytes, less))
        total %= 1 << (8 * CHECKSUM_BYTES)
        return Totals(self.trials + trials, total.to_bytes(CHECKSUM_BYTES))

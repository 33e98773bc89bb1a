"""What can go wrong with the file of a store, in sentences: full, read-only, in use, damaged."""

import json
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from finetti.core.errors import FinettiError
from finetti.core.files import file_size
from finetti.studies.store.writer_lock import StoreBusyError, holder_text

_FOLDER = "{} cannot be opened: it is a folder. Choose a file as the store."
SAFE = "What is stored so far is safe."
MAGIC = b"SQLite format 3\0"
JOURNAL = "-journal"  # the file that SQLite keeps beside a store while it writes
MAX_NAMED_ROWS = 5


class DamagedStoreError(FinettiError):
    """The content of a store is not what was written."""


def check_store_file(path: Path) -> None:
    """Refuse what no store is before SQLite opens it: it waits for pipes and follows links."""
    if path.is_dir():
        raise FinettiError(_FOLDER.format(path))
    if os.path.lexists(path) and file_size(path):
        with sqlite_errors_as_sentences(path), path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise damaged_store(path, "it does not begin like a database")
    place = os.path.realpath(path)
    for suffix in (JOURNAL, "-wal", "-shm"):
        if os.path.lexists(place + suffix) and not stat.S_ISREG(os.lstat(place + suffix).st_mode):
            raise FinettiError(
                f"{place}{suffix} is a link, a folder or a pipe, and no part of a store. "
                "Move it away; it is left as it is."
            )


@contextmanager
def sqlite_errors_as_sentences(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about ``path`` into sentences that say what to do."""
    try:
        yield
    except OSError as error:
        raise FinettiError(f"The store {path} cannot be used: {error.strerror}.") from error
    except sqlite3.Error as error:
        code = primary_code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            sentence = f"{path} has been in use by {holder_text(path)} for minutes."
            raise StoreBusyError(f"{sentence} {SAFE} Try again when it is free.") from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise damaged_store(path, str(error)) from error
        raise FinettiError(_sentence(path, error)) from error


@contextmanager
def decode_errors_as_damage(path: Path) -> Iterator[None]:
    """The same, around reading: content that no store of ours holds is damage, too."""
    try:
        with sqlite_errors_as_sentences(path):
            yield
    except (json.JSONDecodeError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise damaged_store(path, f"{type(error).__name__}: {error}") from error


def damaged_store(path: Path, details: str) -> DamagedStoreError:
    """The error for a file that cannot be trusted."""
    return DamagedStoreError(
        f"{path} is damaged or is not a store ({details}). It is left as it is. Rows that are "
        f"whole: `finetti export {path} --salvage` writes them, and `finetti merge NEW.sqlite "
        f"{path}` makes a store of them to go on with. If neither can, try `sqlite3 FILE .recover`."
    )


def damaged_rows(path: Path, names: Sequence[str]) -> DamagedStoreError:
    """The error for rows that are not what was written, or that are missing."""
    more = len(names) - MAX_NAMED_ROWS
    named = [*names[:MAX_NAMED_ROWS], *([f"{more} more"] if more > 0 else [])]
    return damaged_store(path, f"not what was written: {'; '.join(named)}")


def moved_store(path: Path) -> FinettiError:
    """The error for a store that lost its place during a run."""
    return FinettiError(
        f"{path} was moved, replaced or deleted while it was being written. What was stored is in "
        "the file that was moved: bring it back to its place, and run again to resume. What was "
        "deleted is lost."
    )


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's code of an error, without its details."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _sentence(path: Path, error: sqlite3.Error) -> str:
    code, full_code = primary_code(error), getattr(error, "sqlite_errorcode", 0)
    if full_code == sqlite3.SQLITE_READONLY_DBMOVED:
        return str(moved_store(path))
    journal = path.with_name(path.name + JOURNAL)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and journal.exists():
        return (
            f"{path} cannot be read: a process was ended while it wrote, and undoing that takes "
            f"writing, which its folder does not allow. Copy it and {journal.name} to a folder "
            "that does."
        )
    if code == sqlite3.SQLITE_FULL:
        return f"The disk of {path} is full. {SAFE} Free some space and start again."
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return (
            f"{path} cannot be written: it is read-only. {SAFE} "
            "Choose another path for the store, or change the permissions."
        )
    if path.is_dir():
        return _FOLDER.format(path)
    if code == sqlite3.SQLITE_CANTOPEN:
        return (
            f"{path} cannot be opened: the folder is missing, read-only, or not a folder. "
            "Choose another path for the store."
        )
    if code == sqlite3.SQLITE_IOERR:
        return f"The disk of {path} failed ({error}). {SAFE} Check it and start again."
    return f"The store {path} cannot be used: {error}. {SAFE}"

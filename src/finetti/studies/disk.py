"""Disks and what can go wrong with them: full, read-only, shared over a network, corrupt."""

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from finetti.core.errors import FinettiError
from finetti.core.files import file_size
from finetti.studies.lock import StoreBusyError, holder_text

# Several machines may see such a disk, and SQLite's write-ahead log needs the memory of one.
NETWORK = ("nfs", "cifs", "smb", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p")
NETWORK_ANYWHERE = ("sshfs", "s3fs", "gcsfuse", "rclone", "juicefs", "davfs", "orangefs", "pvfs")
_FOLDER = "{} cannot be opened: it is a folder. Choose a file as the store."
SAFE = "What is stored so far is safe."
MAGIC = b"SQLite format 3\0"
COMPANIONS = ("-wal", "-shm", "-journal")  # that SQLite keeps beside a file, and writes to


def file_system(path: Path) -> str:
    """The type of the file system that holds ``path``, in lower case; empty if unknown."""
    import psutil

    place = path.resolve()
    mounts = [
        each for each in psutil.disk_partitions(all=True) if place.is_relative_to(each.mountpoint)
    ]
    # The deepest one; where several are mounted on one folder, the last hides the others.
    deepest = max(reversed(mounts), key=lambda each: len(Path(each.mountpoint).parts), default=None)
    return deepest.fstype.lower() if deepest else ""


def on_network(path: Path) -> bool:
    """Whether ``path`` stands on a disk that other machines may share."""
    kind = file_system(path)
    return kind.startswith(NETWORK) or any(name in kind for name in NETWORK_ANYWHERE)


def check_store_file(path: Path) -> None:
    """Refuse what no store is before SQLite opens it: it waits for pipes and follows links."""
    if path.is_dir():
        raise FinettiError(_FOLDER.format(path))
    if os.path.lexists(path) and file_size(path):
        with plain_errors(path), path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise damaged(path, "it does not begin like a database")
    place = os.path.realpath(path)
    for suffix in COMPANIONS:
        if os.path.lexists(place + suffix) and not stat.S_ISREG(os.lstat(place + suffix).st_mode):
            raise FinettiError(
                f"{place}{suffix} is a link, a folder or a pipe, and no part of a store. "
                "Move it away; it is left as it is."
            )


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about ``path`` into sentences that say what to do."""
    try:
        yield
    except OSError as error:
        raise FinettiError(f"The store {path} cannot be used: {error.strerror}.") from error
    except sqlite3.Error as error:
        if primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            sentence = f"{path} is being written by {holder_text(path)}."
            raise StoreBusyError(f"{sentence} Try again when it is done.") from error
        raise FinettiError(_sentence(path, error)) from error


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """The same, around reading: content that no store of ours holds is damage, too."""
    try:
        with plain_errors(path):
            yield
    except (json.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error


def damaged(path: Path, details: object) -> FinettiError:
    """The error for a file that cannot be trusted."""
    return FinettiError(
        f"{path} is damaged or is not a store ({details}). It is left as it is. "
        "Move it away, or save what can be read with `sqlite3 FILE .recover`."
    )


def moved(path: Path) -> FinettiError:
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
    code = primary_code(error)
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED:
        return str(moved(path))
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
        log = path.with_name(f"{path.name}-wal")
        if path.is_file() and log.exists():
            # SQLite reads the log through a third file, which it makes beside the two.
            return (
                f"{path} cannot be read: its newest rows are in {log.name}, and its folder cannot "
                "be written, as reading them takes. Copy both files to a folder that can be."
            )
        return (
            f"{path} cannot be opened: the folder is missing, read-only, or not a folder. "
            "Choose another path for the store."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return str(damaged(path, error))
    if code == sqlite3.SQLITE_IOERR:
        return f"The disk of {path} failed ({error}). {SAFE} Check it and start again."
    return f"The store {path} cannot be used: {error}. {SAFE}"

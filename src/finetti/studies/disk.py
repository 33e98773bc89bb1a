"""Disks and what can go wrong with them: full, read-only, shared over a network, corrupt."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from finetti.core.errors import FinettiError
from finetti.studies.lock import StoreBusyError, holder_text

# Several machines may see such a disk, and SQLite's write-ahead log needs the memory of one.
NETWORK = ("nfs", "cifs", "smb", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p")
NETWORK_ANYWHERE = ("sshfs", "s3fs", "gcsfuse", "rclone", "juicefs", "davfs", "orangefs", "pvfs")
SAFE = "What is stored so far is safe."


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


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about ``path`` into sentences that say what to do."""
    try:
        yield
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


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's code of an error, without its details."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _sentence(path: Path, error: sqlite3.Error) -> str:
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return f"The disk of {path} is full. {SAFE} Free some space and start again."
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return (
            f"{path} cannot be written: it is read-only. {SAFE} "
            "Choose another path for the store, or change the permissions."
        )
    if path.is_dir():
        return f"{path} cannot be opened: it is a folder. Choose a file as the store."
    if code == sqlite3.SQLITE_CANTOPEN:
        return (
            f"{path} cannot be opened: the folder is missing, read-only, or not a folder. "
            "Choose another path for the store."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return str(damaged(path, error))
    if code == sqlite3.SQLITE_IOERR:
        return f"The disk of {path} failed ({error}). {SAFE} Check it and start again."
    return f"The store {path} cannot be used: {error}. {SAFE}"

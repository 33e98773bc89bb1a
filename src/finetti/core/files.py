"""Files that are whole or not there."""

import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from finetti.core.errors import InputError

_DIGEST_BYTES = hashlib.sha256().digest_size


@contextlib.contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """A name beside ``path`` that is free again afterwards; what the disk refuses is told."""
    try:
        # Not by `tempfile`, whose files only their owner may read: results are for others as well.
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            yield part
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}. Choose another path, or make "
            "this one writable."
        ) from error


def write_file(content: bytes, path: str | Path) -> Path:
    """Write all or nothing: readers and interruptions never see half a file."""
    path = Path(path)
    with _part_of(path) as part:
        part.write_bytes(content)
        part.replace(path)
    return path


def check_writable(path: str | Path) -> None:
    """Refuse a place where `write_file` would fail, before anything is computed for it."""
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {str(path.parent)!r}"
        raise InputError(f"The file {str(path)!r} cannot be written: {why}.")
    with _part_of(path) as part:
        part.touch()  # permissions do not tell: root has all, and a disk may be full or read-only


def from_cache(name: str, make: Callable[[], bytes]) -> bytes:
    """What ``make`` gives, from the user's cache where it is there under ``name`` already."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(home) / "finetti" / name
    # What cannot be read, or is not whole, is made again; what cannot be written is not kept.
    with contextlib.suppress(OSError):
        stored = path.read_bytes()
        content = stored[_DIGEST_BYTES:]
        if stored == hashlib.sha256(content).digest() + content:
            return content
    content = make()
    with contextlib.suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(hashlib.sha256(content).digest() + content, path)
    return content

"""Files that are whole or not there."""

import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from finetti.core.errors import InputError

_DIGEST_BYTES = hashlib.sha256().digest_size


def write_file(content: bytes, path: str | Path) -> Path:
    """Write all or nothing: readers and interruptions never see half a file."""
    path = Path(path)
    try:
        # Not by `tempfile`, whose files only their owner may read: results are for others as well.
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            part.write_bytes(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}. Choose another path, or make "
            "this one writable."
        ) from error
    return path


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

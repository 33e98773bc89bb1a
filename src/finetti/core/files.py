"""Files that are whole or not there."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from finetti.core.errors import InputError

_DIGEST_BYTES = hashlib.sha256().digest_size


def write_file(content: bytes, path: str | Path) -> Path:
    """Write all or nothing: readers and interruptions never see half a file."""
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            # mkstemp lets only its owner read; results are for others as well.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}. Free the place or choose another."
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

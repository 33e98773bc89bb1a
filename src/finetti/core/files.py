"""Files that are written whole or not at all, and read only if they are files of a stated size."""

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from finetti.core.errors import FinettiError, InputError

MEGABYTE = 2**20
_DIGEST_BYTES = hashlib.sha256().digest_size
_MAX_PARTS = 100  # of a dotted name in TOML
_DEEP_KEY = re.compile(rf"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{_MAX_PARTS}}}")
_MAX_CACHED = 64 * MEGABYTE
_MAX_LINKS = 40  # as many as the kernel follows


def _reason(error: Exception) -> str:
    """Why a path cannot be used, from what the system or Python raised."""
    return getattr(error, "strerror", None) or str(error)


def file_size(path: str | Path) -> int:
    """Return the size of a regular file; folders, pipes, devices and loops of links are refused."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise InputError(f"The file {str(path)!r} cannot be read: {_reason(error)}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{str(path)!r} cannot be read: it is not a regular file. Give a file.")
    return found.st_size


def read_file(path: str | Path, limit: int = MEGABYTE) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes. Pipes never block."""
    size = file_size(path)
    if size > limit:
        raise InputError(f"{str(path)!r} has {size} bytes; at most {limit} are read.")
    try:
        # Somebody may put a pipe in the file's place just now, and opening that would wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(limit)
    except OSError as error:
        raise InputError(f"The file {str(path)!r} cannot be read: {_reason(error)}.") from error


def read_json(path: Path, limit: int = MEGABYTE) -> dict[str, Any]:
    """Return the object in a JSON file of at most ``limit`` bytes."""
    return parse_json(read_file(path, limit), path.name)


def parse_json(content: bytes, owner: str) -> dict[str, Any]:
    """Return the object that ``content`` spells; a name that comes twice is refused.

    >>> parse_json(b'{"a": [1, 2]}', "header")
    {'a': [1, 2]}
    """

    def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            double = next(name for name, _ in pairs if name in seen or seen.add(name))
            raise InputError(f"{owner} has the name {double[:80]!r} twice.")
        return found

    try:
        found = json.loads(content.decode("utf-8"), object_pairs_hook=without_doubles)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{owner} is not readable as JSON: {str(error)[:120]}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{owner} must be a JSON object. Got {type(found).__name__} instead.")
    return found


def parse_toml(content: bytes, owner: str) -> dict[str, Any]:
    """Return the tables that ``content`` spells.

    >>> parse_toml(b"[table]\\nname = 1", "the map")
    {'table': {'name': 1}}
    """
    try:
        text = content.decode("utf-8")
        if _DEEP_KEY.search(text):  # which takes Python minutes
            raise InputError(f"{owner} has a name of more than {_MAX_PARTS} parts.")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(f"{owner} is not text in UTF-8: {error}.") from error
    except InputError:
        raise
    # A ValueError is one of the syntax, or a number of more digits than Python reads.
    except (ValueError, RecursionError) as error:
        raise InputError(f"{owner} is not TOML: {str(error)[:120]}.") from error


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into a sentence about ``path``."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} cannot be written: {_reason(error)}. Choose another path, or make "
            "this one writable."
        ) from error


def _destination(path: Path) -> tuple[Path, bool]:
    """Return the place behind all links of ``path``, and whether it is written as it stands.

    So are pipes, terminals and devices like ``/dev/null``, which a file in their place would
    destroy, and files that this process has open, as ``/dev/stdout``.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # of a file to be made
        kind = path.stat().st_mode
        if stat.S_ISBLK(kind):
            raise InputError(f"{path} is a disk. Choose a file.")
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            return path, True
    for _ in range(_MAX_LINKS):
        folder = os.path.realpath(path.parent)
        if folder.startswith(("/proc/", "/dev/fd")):
            return path, True
        if not path.is_symlink():
            break
        path = Path(folder) / os.readlink(path)
    return path, False


@contextlib.contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """Yield a name beside ``path`` that is free again afterwards."""
    # Not by `tempfile`, whose files only their owner may read: results are for others as well.
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def write_file(content: bytes, path: str | Path) -> Path:
    """Write all or nothing: readers and interruptions never see half a file.

    Links are followed. What is no regular file (a pipe, ``/dev/stdout``) is written in place.
    """
    path = Path(path)
    with _told(path):
        target, in_place = _destination(path)
        if in_place:
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_APPEND), "wb") as file:
                file.write(content)
        else:
            with _part_of(target) as part:
                part.write_bytes(content)
                part.replace(target)
    return path


def check_writable(path: str | Path) -> None:
    """Refuse a place where `write_file` would fail, before anything is computed for it."""
    path = Path(path)
    with _told(path):
        target, in_place = _destination(path)
        if in_place:
            return
        if target.is_dir() or not target.parent.is_dir():
            missing = f"there is no folder {str(target.parent)!r}"
            why = "it is a folder" if target.is_dir() else missing
            raise InputError(f"The file {str(path)!r} cannot be written: {why}.")
        with _part_of(target) as part:
            part.touch()  # permissions do not tell: root has all, and a disk may be full


def from_cache(name: str, make: Callable[[], bytes]) -> bytes:
    """What ``make`` gives, from the user's cache where it is there under ``name`` already."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(home) / "finetti" / name
    # What cannot be read, or is not whole, is made again; what cannot be written is not kept.
    with contextlib.suppress(InputError):
        stored = read_file(path, _MAX_CACHED)
        content = stored[_DIGEST_BYTES:]
        if stored == hashlib.sha256(content).digest() + content:
            return content
    content = make()
    with contextlib.suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(hashlib.sha256(content).digest() + content, path)
    return content


def check_directory(directory: str | Path) -> Path:
    """Make ``directory`` if need be and see that files can be written there, before a long run."""
    directory = Path(directory)
    if os.path.lexists(directory) and not directory.exists():
        raise FinettiError(f"{str(directory)!r} is a link that leads nowhere. Choose a directory.")
    if directory.exists() and not directory.is_dir():
        raise FinettiError(f"{str(directory)!r} is a file. Choose a directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise FinettiError(
            f"Cannot write to {directory}: {error.strerror}. Choose another directory."
        ) from error
    return directory


def write_results(results: Mapping[str, Any], directory: str | Path) -> Path:
    """Write the plain data of a run as ``results.json`` into ``directory``."""
    text = json.dumps(results, indent=1, allow_nan=False)
    return write_file(text.encode(), Path(directory) / "results.json")

"""Files that are opened only if they are files, and read only up to a stated size."""

import json
import stat
from pathlib import Path
from typing import Any

from finetti.core.errors import InputError

MEGABYTE = 2**20


def file_size(path: Path) -> int:
    """The size of a regular file; folders, pipes, devices and loops of links are refused."""
    try:
        found = path.stat()
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"The file {str(path)!r} cannot be read: {why}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{str(path)!r} is not a regular file. Give a file or a folder of files.")
    return found.st_size


def read_json(path: Path, limit: int) -> dict[str, Any]:
    """The object in a JSON file of at most ``limit`` bytes."""
    size = file_size(path)
    if size > limit:
        raise InputError(f"{path.name} has {size} bytes; at most {limit} are read.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"The file {str(path)!r} cannot be read: {error.strerror}.") from error
    return parse_json(content, path.name)


def parse_json(content: bytes, owner: str) -> dict[str, Any]:
    """The object that ``content`` spells; a name that comes twice is refused.

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

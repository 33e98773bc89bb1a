"""Safetensors files: the header is checked to the last byte before a tensor is believed in."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.readers.number_formats import STORED, WHOLE, item_size
from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, file_size, parse_json

MAX_HEADER = 32 * MEGABYTE
MAX_NAME = 1000
MAX_AXES = 8
Entry = tuple[str, tuple[int, ...], int, int]  # type, shape, first byte, byte after the last


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file, by name. Only the header is read now, each tensor when asked for."""
    size = file_size(path)
    start, entries = _read_header(path, size)
    return {
        name: StoredTensor(name, kind, shape, _Loader(path, kind, shape, start + first))
        for name, (kind, shape, first, _) in entries.items()
    }


class _Loader:
    """Maps a tensor into memory; pages come in as they are used."""

    def __init__(self, path: Path, kind: str, shape: tuple[int, ...], offset: int) -> None:
        self.path, self.kind, self.shape, self.offset = path, kind, shape, offset

    def __call__(self) -> NDArray[Any]:
        stored = np.dtype(STORED.get(self.kind) or WHOLE[self.kind])
        if 0 in self.shape:
            return np.empty(self.shape, stored)
        count = math.prod(self.shape)
        try:
            flat = np.memmap(self.path, stored, "r", self.offset, (count,))
        except OSError as error:  # no memory left to map, for example
            raise InputError(
                f"{self.path.name!r} cannot be read: {error.strerror or error}."
            ) from error
        except ValueError as error:
            raise InputError(f"The file {self.path.name!r} changed while it was read.") from error
        return np.asarray(flat).reshape(self.shape)


def _read_header(path: Path, size: int) -> tuple[int, dict[str, Entry]]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise InputError(
                    f"The file {path.name!r} is not a complete safetensors file: its header would "
                    f"have {length} bytes, but the file has {size}. Download it again."
                )
            if length > MAX_HEADER:
                raise InputError(
                    f"The header of {path.name!r} has {length} bytes; at most {MAX_HEADER} are "
                    "read."
                )
            content = file.read(length)
    except OSError as error:
        raise InputError(f"The file {str(path)!r} cannot be read: {error.strerror}.") from error
    header = parse_json(content, f"The header of {path.name!r}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise InputError(f"The metadata of {path.name!r} is not a table of strings.")
    longest = max(map(len, header), default=0)
    if longest > MAX_NAME:
        raise InputError(
            f"{path.name} has a name of {longest} characters; at most {MAX_NAME} are read."
        )
    entries = {name: _entry(path.name, name, said) for name, said in header.items()}
    _check_offsets(path.name, entries, size - 8 - length)
    return 8 + length, entries


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _entry(file: str, name: str, said: Any) -> Entry:
    owner = f"{name[:80]!r} in {file!r}"
    if not isinstance(said, dict) or set(said) != {"dtype", "shape", "data_offsets"}:
        raise InputError(f"{owner} must be described by dtype, shape and data_offsets.")
    kind, shape, ends = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(kind, str):
        raise InputError(f"{owner} has a dtype that is not a string.")
    if not isinstance(shape, list) or len(shape) > MAX_AXES or not all(map(_is_count, shape)):
        raise InputError(f"{owner} must have a shape of at most {MAX_AXES} whole numbers ≥ 0.")
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(_is_count, ends)):
        raise InputError(f"{owner} must have two offsets that are whole numbers ≥ 0.")
    needed = math.prod(shape) * item_size(kind, owner)
    if ends[1] - ends[0] != needed:
        raise InputError(
            f"{owner} has shape {shape} of {kind}, that is {needed} bytes, and its offsets leave "
            f"{ends[1] - ends[0]}."
        )
    return kind, tuple(shape), ends[0], ends[1]


def _check_offsets(file: str, entries: dict[str, Entry], size: int) -> None:
    """Tensors follow each other without overlap, hole, or byte too many."""
    places = sorted((first, last, name) for name, (_, _, first, last) in entries.items())
    for (_, end, one), (start, _, other) in pairwise([(0, 0, "the header"), *places]):
        if end != start:
            what = "overlap" if start < end else "have a hole between them"
            raise InputError(f"{one[:80]!r} and {other[:80]!r} in {file!r} {what}.")
    end = places[-1][1] if places else 0
    if end != size:
        raise InputError(
            f"The tensors of {file!r} end at byte {end} of {size}: the file is cut off, or has "
            "bytes that belong to nothing. Download it again."
        )

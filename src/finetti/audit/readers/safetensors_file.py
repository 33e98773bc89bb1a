"""Safetensors files, one or several with an index; each tensor is mapped when asked for."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from finetti.audit.readers.number_formats import REAL, WHOLE
from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, file_size, parse_json, read_json

MAX_HEADER = 32 * MEGABYTE
MAX_NAME = 1000


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a file, by name.

    The library checks types, shapes and offsets to the last byte. It keeps the last of two equal
    names, and takes headers and names of any length: these are refused here.
    """
    start, header = _read_header(path, file_size(path))
    try:
        with safe_open(path, "numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"The file {path.name!r} is not a complete safetensors file: {str(error)[:120]}. "
            "Download it again."
        ) from error
    found = {}
    for name, said in header.items():
        kind, shape, (first, last) = said["dtype"], tuple(said["shape"]), said["data_offsets"]
        load = partial(_map, path, kind, shape, start + first, last - first)
        found[name] = StoredTensor(name, kind, shape, load)
    return found


def _read_header(path: Path, size: int) -> tuple[int, dict[str, Any]]:
    """Return where the tensors begin, and what the header says of each."""
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
    header.pop("__metadata__", None)
    longest = max(map(len, header), default=0)
    if longest > MAX_NAME:
        raise InputError(
            f"{path.name} has a name of {longest} characters; at most {MAX_NAME} are read."
        )
    return 8 + length, header


def _map(path: Path, kind: str, shape: tuple[int, ...], offset: int, length: int) -> NDArray[Any]:
    """Map a tensor into memory; of an unknown kind, its bytes."""
    dtype = REAL.get(kind) or WHOLE.get(kind)
    if dtype is None:
        dtype, shape = np.dtype(np.uint8), (length,)
    try:
        if length == 0:
            return np.empty(shape, dtype)
        flat = np.memmap(path, dtype, "r", offset, (math.prod(shape),))
        return np.asarray(flat).reshape(shape)
    except OSError as error:  # no memory left to map, for example
        raise InputError(f"{path.name!r} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise InputError(f"The file {path.name!r} changed while it was read.") from error


def read_shards(index: Path) -> dict[str, StoredTensor]:
    """Return the tensors of all shards; the index and the files must say the same."""
    places = read_json(index, MAX_HEADER).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InputError(f"{index.name} has no `weight_map` from tensors to files.")
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or "\\" in file:
            raise InputError(
                f"{index.name} puts {name[:80]!r} into {str(file)[:80]!r}, which is not the name "
                "of a file next to it."
            )
    found: dict[str, StoredTensor] = {}
    for file in sorted(set(places.values())):
        for name, tensor in read_safetensors(index.parent / file).items():
            if name in found or places.get(name) != file:
                where = f"in {places[name]}" if name in places else "nowhere"
                raise InputError(f"{file} holds {name[:80]!r}, and {index.name} has it {where}.")
            found[name] = tensor
    missing = sorted(set(places) - set(found))
    if missing:
        raise InputError(f"{places[missing[0]]} lacks {missing[0][:80]!r}, which is in the index.")
    return found

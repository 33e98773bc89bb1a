"""NumPy's ``.npz``: never a pickle, and never more unpacked than was announced."""

import math
import struct
import tokenize
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from finetti.audit.readers.number_formats import kind_of
from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, file_size

MAX_UNPACKED = 4096 * MEGABYTE
MAX_NPY_HEADER = 10_000
PACKERS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE = (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, SyntaxError)
_DAMAGE = (*_DAMAGE, zipfile.BadZipFile, zlib.error, struct.error, MemoryError, OverflowError)
_DAMAGE = (*_DAMAGE, tokenize.TokenError)  # NumPy reads the headers of arrays as Python


def read_npz(path: Path) -> dict[str, StoredTensor]:
    """Return the arrays of a file, by name; only their headers are read now."""
    file_size(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if total > MAX_UNPACKED:
                raise InputError(
                    f"{path.name} would unpack to {total} bytes; at most {MAX_UNPACKED} are. Save "
                    "larger checkpoints as safetensors."
                )
            tensors = [_read_header(archive, member, path) for member in members]
    except InputError:
        raise
    except _DAMAGE as error:
        why = str(error)[:120] or type(error).__name__
        raise InputError(f"{path.name} cannot be read as npz: {why}.") from error
    found: dict[str, StoredTensor] = {}
    for tensor in tensors:
        if tensor.name in found:
            raise InputError(f"{path.name} has the name {tensor.name[:80]!r} twice.")
        found[tensor.name] = tensor
    return found


def _read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> StoredTensor:
    # `numpy.load` would read the whole array to tell its shape, and first take the memory that a
    # false header asks for: shapes are compared with the bytes that are there.
    where = f"{member.filename[:80]!r} in {path.name}"
    if member.compress_type not in PACKERS:
        raise InputError(
            f"{where} is packed in a way that NumPy does not use. Save it with numpy.savez."
        )
    with archive.open(member) as file:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise InputError(f"{where} is npy of version {version}; 1.0 and 2.0 are read.")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file, max_header_size=MAX_NPY_HEADER)
        left = member.file_size - file.tell()
    if dtype.hasobject:
        raise InputError(f"{where} holds pickled objects, which are never loaded.")
    if any(axis < 0 for axis in shape) or dtype.itemsize == 0:
        raise InputError(f"{where} has the shape {shape} of {dtype}, which nothing has.")
    if math.prod(shape) * dtype.itemsize != left:
        raise InputError(f"{where} declares shape {shape} of {dtype} in {left} bytes.")
    name = member.filename.removesuffix(".npy")
    return StoredTensor(name, kind_of(dtype.name), shape, partial(_load, path, member.filename))


def _load(path: Path, member: str) -> NDArray[Any]:
    try:
        with np.load(path, allow_pickle=False, max_header_size=MAX_NPY_HEADER) as arrays:
            return arrays[member]
    except (*_DAMAGE, KeyError) as error:
        raise InputError(f"{member} in {path.name} cannot be read: {str(error)[:120]}.") from error

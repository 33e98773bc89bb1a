"""NumPy's ``.npz``: no pickles, and nothing is unpacked that declares too much."""

import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, file_size

MAX_UNPACKED = 4096 * MEGABYTE
# Weights do not compress a hundredfold; what does, and is large, is a bomb or all zero.
MAX_RATIO, RATIO_FROM = 100, 16 * MEGABYTE
MAX_NPY_HEADER = 10_000
_DAMAGE = (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, SyntaxError)
_DAMAGE = (*_DAMAGE, zipfile.BadZipFile, zlib.error, struct.error, MemoryError, OverflowError)
_DAMAGE = (*_DAMAGE, tokenize.TokenError)  # NumPy reads the headers of arrays as Python


def read_npz(path: Path) -> dict[str, StoredTensor]:
    """The arrays of a file, by name."""
    file_size(path)
    found: dict[str, StoredTensor] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _refuse_bombs(path.name, members)
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in found:
                    raise InputError(f"{path.name} has the name {name[:80]!r} twice.")
                with archive.open(member) as file:
                    dtype, shape, _ = _npy_header(file, member, path.name)
                loader = _Member(path, member.filename)
                found[name] = StoredTensor(name, _kind(dtype), shape, loader)
    except InputError:
        raise
    except _DAMAGE as error:
        why = str(error)[:120] or type(error).__name__
        raise InputError(f"{path.name} cannot be read as npz: {why}.") from error
    return found


class _Member:
    """Unpacks one array, never more than its header declares."""

    def __init__(self, path: Path, member: str) -> None:
        self.path, self.member = path, member

    def __call__(self) -> NDArray[Any]:
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
                member = archive.getinfo(self.member)
                dtype, shape, fortran = _npy_header(file, member, self.path.name)
                flat = np.frombuffer(file.read(math.prod(shape) * dtype.itemsize), dtype)
                return flat.reshape(shape, order="F" if fortran else "C")
        except InputError:
            raise
        except _DAMAGE as error:
            raise InputError(
                f"{self.member} in {self.path.name} cannot be read: {str(error)[:120]}."
            ) from error


def _refuse_bombs(name: str, members: list[zipfile.ZipInfo]) -> None:
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(
                f"{member.filename[:80]!r} in {name} is packed in a way that NumPy does not use. "
                "Save it with numpy.savez."
            )
    total = sum(member.file_size for member in members)
    if total > MAX_UNPACKED:
        raise InputError(
            f"{name} would unpack to {total} bytes; at most {MAX_UNPACKED} are. Save larger "
            "checkpoints as safetensors."
        )
    for member in members:
        packed, size = max(member.compress_size, 1), member.file_size
        if size > RATIO_FROM and size > MAX_RATIO * packed:
            raise InputError(
                f"{member.filename[:80]!r} in {name} would unpack from {packed} to {size} bytes, "
                f"more than {MAX_RATIO} times; weights do not, and it is refused."
            )


def _npy_header(
    file: IO[bytes], member: zipfile.ZipInfo, owner: str
) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    from numpy.lib import format as npy

    where = f"{member.filename[:80]!r} in {owner}"
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise InputError(f"{where} is npy of version {version}; 1.0 and 2.0 are read.")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file, max_header_size=MAX_NPY_HEADER)
    if dtype.hasobject:
        raise InputError(f"{where} holds pickled objects, which are never loaded.")
    if any(axis < 0 for axis in shape) or dtype.itemsize == 0:
        raise InputError(f"{where} has the shape {shape} of {dtype}, which nothing has.")
    left = member.file_size - file.tell()
    if math.prod(shape) * dtype.itemsize != left:
        raise InputError(f"{where} declares shape {shape} of {dtype} in {left} bytes.")
    return dtype, shape, fortran


def _kind(dtype: np.dtype[Any]) -> str:
    """The name of safetensors for a NumPy type; others keep their own and are never weights."""
    names = {"f": "F", "i": "I", "u": "U", "b": "BOOL"}
    if dtype.kind == "b":
        return "BOOL"
    if dtype.kind in names and dtype.itemsize <= 8:
        return f"{names[dtype.kind]}{8 * dtype.itemsize}"
    return str(dtype)

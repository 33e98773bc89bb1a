"""A tensor whose shape is known and whose numbers are read when asked for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.readers.number_formats import REAL, WHOLE
from finetti.core.errors import InputError

MAX_ENTRIES = 2**31  # numbers of a matrix, 16 GiB as float64
LARGEST = 1e100  # every norm of a product of two matrices is still a float64


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file or in memory; ``kind`` is the name of safetensors for its numbers."""

    name: str
    kind: str
    shape: tuple[int, ...]
    load: Callable[[], NDArray[Any]] = field(repr=False)

    @property
    def size(self) -> int:
        """Return how many numbers it has."""
        return int(np.prod(self.shape, dtype=object)) if self.shape else 1

    @property
    def is_real(self) -> bool:
        """Return whether it holds floating point numbers."""
        return self.kind in REAL

    def check_real(self) -> None:
        """Refuse codes of a quantizer and complex numbers by name."""
        if self.is_real:
            return
        if self.kind in WHOLE:
            raise InputError(
                f"{self.name} has type {self.kind}, whole numbers: quantized weights cannot be "
                "measured. Audit the checkpoint that was quantized."
            )
        raise InputError(
            f"{self.name} has type {self.kind}, which is none of real numbers. Save it in "
            "floating point."
        )

    def read(self, *index: slice) -> NDArray[np.float64]:
        """Return the numbers, or a slice of them, as float64; NaN and infinity are refused."""
        self.check_real()
        return self._decoded(self.load()[index])

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        """Yield the numbers, as many rows at a time; what is packed is unpacked once."""
        self.check_real()
        stored = self.load()
        for start in range(0, self.shape[0], rows):
            yield self._decoded(stored[start : start + rows])

    def _decoded(self, stored: NDArray[Any]) -> NDArray[np.float64]:
        if stored.size > MAX_ENTRIES:
            raise InputError(
                f"{self.name} has {stored.size} numbers; at most {MAX_ENTRIES} are read at once."
            )
        try:
            with np.errstate(invalid="ignore"):  # signaling NaN, which is refused below
                values = stored.astype(np.float64)
        except MemoryError as error:
            raise InputError(
                f"{self.name} has {stored.size} numbers, for which there is not enough memory."
            ) from error
        if values.size and not -LARGEST <= values.min() <= values.max() <= LARGEST:
            raise InputError(
                f"{self.name} has entries that are NaN or infinite or beyond {LARGEST:g}, and "
                "cannot be measured."
            )
        return values


@dataclass(frozen=True)
class StoredCheckpoint:
    """Tensors by name, and what ``config.json`` beside them says (empty if there is none)."""

    name: str
    tensors: Mapping[str, StoredTensor]
    config: Mapping[str, Any]


def same_end(one: str, other: str) -> bool:
    """Return whether two names differ only in what comes before the shorter one."""
    short, long = sorted((one, other), key=len)
    return f".{long}".endswith(f".{short}")


def tensor_by_name(name: str, tensors: Mapping[str, StoredTensor]) -> StoredTensor | None:
    """Return the tensor of this name, whichever prefix it has; None if there is none."""
    if name in tensors:
        return tensors[name]
    found = [tensor for key, tensor in tensors.items() if same_end(name, key)]
    return found[0] if len(found) == 1 else None


def config_number(config: Mapping[str, Any], *names: str) -> int | None:
    """Return the whole number ≥ 1 that a config gives under any of the names, or None."""
    found = {name: config[name] for name in names if config.get(name) is not None}
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 10**9:
            raise InputError(
                f"config.json has {name} = {str(value)[:40]}; expected a whole number ≥ 1."
            )
    if len(set(found.values())) > 1:
        said = " and ".join(f"{name} = {value}" for name, value in found.items())
        raise InputError(f"config.json has {said}; expected the same number.")
    return next(iter(found.values()), None)

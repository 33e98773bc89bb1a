"""A checkpoint as all readers give it: named tensors that are read when asked for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.readers.number_formats import STORED, WHOLE, decode
from finetti.core.errors import InputError

MOST = 2**31  # numbers of a matrix, 16 GiB as float64
LARGEST = 1e100  # every norm of a product of two matrices is still a float64


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file or in memory: its shape is known, its numbers are not yet read."""

    name: str
    kind: str
    shape: tuple[int, ...]
    load: Callable[[], NDArray[Any]] = field(repr=False)

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return int(np.prod(self.shape, dtype=object)) if self.shape else 1

    @property
    def is_real(self) -> bool:
        """Whether it holds floating point numbers."""
        return self.kind in STORED

    def read(self, *index: slice) -> NDArray[np.float64]:
        """The numbers, or a slice of them, as float64; NaN and infinity are refused by name."""
        return self._decoded(self._stored()[index])

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        """The numbers, as many rows at a time; what is packed is unpacked once."""
        stored = self._stored()
        for start in range(0, self.shape[0], rows):
            yield self._decoded(stored[start : start + rows])

    def _stored(self) -> NDArray[Any]:
        if not self.is_real:
            if self.kind not in WHOLE:
                raise InputError(
                    f"{self.name} has type {self.kind}, which is none of real numbers. Save it in "
                    "floating point."
                )
            raise InputError(
                f"{self.name} has type {self.kind}, whole numbers: quantized weights cannot be "
                "measured. Audit the checkpoint that was quantized."
            )
        return self.load()

    def _decoded(self, stored: NDArray[Any]) -> NDArray[np.float64]:
        if stored.size > MOST:
            raise InputError(
                f"{self.name} has {stored.size} numbers; at most {MOST} are read at once."
            )
        try:
            values = decode(stored, self.kind)
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
class Checkpoint:
    """Tensors by name, and what ``config.json`` beside them says (empty if there is none)."""

    name: str
    tensors: Mapping[str, StoredTensor]
    config: Mapping[str, Any] = field(default_factory=dict)

"""The vectors that tell T positions apart, kept in the least memory that each kind needs.

Coordinates 0, 1, 2 of every token belong to e_0, e_1 and v_[CLS]; the vectors live in the others.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.weight_range import check_weight_range, read_only

Indices = tuple[int, ...]  # positions of bits
RESERVED = 3  # e_0, e_1, v_[CLS]
BLOCK_ENTRIES = 2**22  # entries of a block of rows that is written out: 32 MB


class BitPositions(ABC):
    """T vectors of length d as the rows of a matrix that may be too large to write out."""

    count: int
    width: int

    @abstractmethod
    def rows(self, indices: Any) -> NDArray[np.float64]:
        """The vectors at ``indices`` (integers or a slice), shape (n, d)."""

    def project(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """P @ matrix in the precision of ``matrix``: (d, c) → (T, c)."""
        out = np.empty((self.count, matrix.shape[1]), dtype=matrix.dtype)
        step = max(1, BLOCK_ENTRIES // self.width)
        for start in range(0, self.count, step):
            block = self.rows(slice(start, start + step))
            out[start : start + step] = block.astype(matrix.dtype, copy=False) @ matrix
        return out

    def dense(self) -> NDArray[np.float64]:
        """The whole matrix, shape (T, d)."""
        return self.rows(slice(None))

    def stored(self) -> NDArray[Any] | None:
        """What a file has of it: the matrix in float64; its signs in int8 behind the reserved
        coordinates; or nothing for unit vectors."""
        return self.dense()


class StandardPositions(BitPositions):
    """v_t = the unit vector of coordinate 3 + t: an orthonormal basis that needs no memory."""

    def __init__(self, count: int, width: int):
        self.count, self.width = count, width

    def rows(self, indices: Any) -> NDArray[np.float64]:
        """Unit vectors."""
        which = np.arange(self.count)[indices]
        out = np.zeros((len(which), self.width))
        out[np.arange(len(which)), RESERVED + which] = 1.0
        return out

    def project(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """The rows of ``matrix``."""
        return matrix[RESERVED : RESERVED + self.count].copy()

    def stored(self) -> None:
        """Nothing."""


class SignPositions(BitPositions):
    """v_t = random signs / √(d − 3), one bit of memory per entry.

    Args:
        bits: signs, packed along axis 1: uint8 of shape (T, ⌈(d − 3)/8⌉).
        width: d.
    """

    def __init__(self, bits: NDArray[np.uint8], width: int):
        self.bits, self.count, self.width = read_only(bits), len(bits), width

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int, width: int) -> "SignPositions":
        """Independent signs."""
        n_bytes = -(-(width - RESERVED) // 8)
        drawn = np.frombuffer(rng.bytes(count * n_bytes), dtype=np.uint8)
        return cls(drawn.reshape(count, n_bytes), width)

    @classmethod
    def from_signs(cls, signs: NDArray[np.int8]) -> "SignPositions":
        """Vectors with these signs, ±1, shape (T, d − 3)."""
        if not (np.abs(signs) == 1).all():
            raise ValueError("signs are 1 or -1")
        return cls(np.packbits(signs > 0, axis=1), signs.shape[1] + RESERVED)

    def stored(self) -> NDArray[np.int8]:
        """The signs, shape (T, d − 3)."""
        ones = np.unpackbits(self.bits, axis=1, count=self.width - RESERVED).view(np.int8)
        return 2 * ones - np.int8(1)

    def rows(self, indices: Any) -> NDArray[np.float64]:
        """Signs, scaled to length 1."""
        free = self.width - RESERVED
        ones = np.unpackbits(self.bits[indices], axis=1, count=free)
        out = np.zeros((len(ones), self.width))
        np.multiply(ones, 2 / free**0.5, out=out[:, RESERVED:])
        out[:, RESERVED:] -= 1 / free**0.5
        return out

    def project(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """P @ matrix without the zeros and the division in every entry: bytes become signs."""
        free, out = self.width - RESERVED, np.zeros((self.count, matrix.shape[1]), matrix.dtype)
        if not matrix[RESERVED:].any():
            return out
        small = np.zeros((8 * self.bits.shape[1], matrix.shape[1]), dtype=matrix.dtype)
        small[:free] = matrix[RESERVED:] / np.asarray(free**0.5, dtype=matrix.dtype)
        signs = 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) - 1.0
        signs = signs.astype(matrix.dtype)
        step = max(1, BLOCK_ENTRIES // len(small))
        for start in range(0, self.count, step):
            here = slice(start, start + step)
            rows = np.take(signs, self.bits[here], axis=0).reshape(-1, len(small))
            np.matmul(rows, small, out=out[here])
        return out


class SparsePositions(BitPositions):
    """Zero but at a few positions: trained positions mark the relevant ones only.

    Args:
        count: T.
        indices: the positions that have a vector.
        vectors: those vectors, shape (n, d).
    """

    def __init__(self, count: int, indices: tuple[int, ...], vectors: NDArray[np.float64]):
        self.count, self.width = count, vectors.shape[1]
        self.indices, self.vectors = np.array(indices, dtype=np.int64), read_only(vectors)
        check_weight_range(positions=vectors)

    def rows(self, indices: Any) -> NDArray[np.float64]:
        """Vectors where there are some, zeros elsewhere."""
        places = np.full(self.count, -1)
        places[self.indices] = np.arange(len(self.indices))
        found = places[indices]
        out = np.zeros((len(found), self.width))
        out[found >= 0] = self.vectors[found[found >= 0]]
        return out

    def project(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Zeros but at the positions that have a vector."""
        out = np.zeros((self.count, matrix.shape[1]), dtype=matrix.dtype)
        out[self.indices] = self.vectors.astype(matrix.dtype) @ matrix
        return out


class DensePositions(BitPositions):
    """Any matrix, shape (T, d)."""

    def __init__(self, matrix: NDArray[np.float64]):
        self.matrix = read_only(matrix)
        self.count, self.width = matrix.shape
        check_weight_range(positions=matrix)

    def rows(self, indices: Any) -> NDArray[np.float64]:
        """Rows as they are."""
        return self.matrix[indices]

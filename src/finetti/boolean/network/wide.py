"""Softmax row by row, for scores too far apart to share one shift.

Tables hold exp(score − shift) with one shift per head. Where the largest scores of two inputs
differ by more than the exponent of a floating-point number, no shift serves both, and each input
is shifted by the largest score that it has itself: m·T exponentials a head, exact for any weights.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 2**22  # scores of a block of inputs


@dataclass(frozen=True, eq=False)
class WideTables:
    """Scores and values as they are.

    Args:
        zero, one: of a position whose bit is 0 or 1: H scores and H·v values, (T, H(1 + v)).
        cls: of [CLS], shape (H(1 + v),).
        n_heads: H.
    """

    zero: NDArray[Any]
    one: NDArray[Any]
    cls: NDArray[Any]
    n_heads: int

    def attention(self, bits: NDArray[Any], head: int) -> NDArray[Any]:
        """What each row of ``bits`` puts on [CLS] and then on every position, shape (m, 1 + T)."""
        chosen = np.where(bits.astype(bool), self.one[:, head], self.zero[:, head])
        own = np.full((len(bits), 1), self.cls[head])
        scores = np.concatenate([own, chosen], axis=1)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            return weights / weights.sum(axis=1, keepdims=True)

    def read(self, bits: NDArray[Any]) -> NDArray[Any]:
        """The mean value of each head at each row of ``bits``, shape (m, H, v)."""
        heads = self.n_heads
        zero, one, cls = (
            each[..., heads:].reshape(*each.shape[:-1], heads, -1)
            for each in (self.zero, self.one, self.cls)
        )
        out = np.empty((len(bits), *cls.shape), dtype=cls.dtype)
        step = max(1, BLOCK // (len(zero) + 1))
        for start in range(0, len(bits), step):
            rows = bits[start : start + step].astype(bool)
            for head in range(heads):
                weights = self.attention(rows, head)
                own, others = weights[:, 0], weights[:, 1:]
                for each in range(cls.shape[-1]):
                    # Only what is chosen is multiplied: a NaN of the other bit is not there.
                    chosen = np.where(rows, one[:, head, each], zero[:, head, each])
                    with np.errstate(invalid="ignore", over="ignore"):
                        read = own * cls[head, each] + (others * chosen).sum(axis=1)
                    out[start : start + step, head, each] = read
        return out

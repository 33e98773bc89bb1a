"""All weights below the lookup: tokens, positions, [CLS], and the attention heads."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.domain import refuse_weights
from finetti.boolean.network.frozen import freeze
from finetti.boolean.network.positions import BitPositions
from finetti.boolean.network.tables import Tables, make_tables

if TYPE_CHECKING:
    from finetti.boolean.embeddings.base import Embedding


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """X(b) and the heads that [CLS] reads it with. Read-only: `dataclasses.replace` changes a copy.

    Args:
        embedding: how bits become tokens.
        positions: P or V, (T, d).
        tokens: E, shape (2, d); zeros for the bag, where a bit has no vector of its own.
        cls: x_[CLS], shape (d,).
        query, key: W_Q, W_K, shape (H, d, k).
        value: W_V, shape (H, d, v).
        output: W_C, shape (H, v, features).
    """

    embedding: "Embedding"
    positions: BitPositions
    tokens: NDArray[np.float64]
    cls: NDArray[np.float64]
    query: NDArray[np.float64]
    key: NDArray[np.float64]
    value: NDArray[np.float64]
    output: NDArray[np.float64]

    def __post_init__(self) -> None:
        freeze(self)
        refuse_weights(
            tokens=self.tokens,
            cls=self.cls,
            query=self.query,
            key=self.key,
            value=self.value,
            output=self.output,
        )

    @property
    def context_length(self) -> int:
        """T."""
        return self.positions.count

    @property
    def width(self) -> int:
        """d."""
        return self.positions.width

    @property
    def n_heads(self) -> int:
        """H."""
        return len(self.query)

    @property
    def n_parameters(self) -> int:
        """Numbers in all matrices, positions written out."""
        small = (self.tokens, self.cls, self.query, self.key, self.value, self.output)
        return self.context_length * self.width + sum(each.size for each in small)

    @cached_property
    def tables(self) -> Tables:
        """What [CLS] sees of every position, in float64."""
        return self.tables_in(np.float64)

    @cached_property
    def tables32(self) -> Tables:
        """The same, computed in float32 from float32 weights."""
        return self.tables_in(np.float32)

    def tables_in(self, dtype: type[np.floating]) -> Tables:
        """Tables in another precision."""
        small = (self.tokens, self.cls, self.query, self.key, self.value, self.output)
        with np.errstate(all="ignore"):  # what float32 cannot hold is reported, not warned of
            return make_tables(
                self.positions, self.embedding, *(each.astype(dtype) for each in small)
            )

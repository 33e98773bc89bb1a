"""All weights below the lookup: tokens, positions, [CLS], and the attention heads."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.domain import seal
from finetti.boolean.embeddings.base import CLS, Embedding, HeadMatrices, unit
from finetti.boolean.embeddings.positions import BitPositions
from finetti.boolean.network.tables import Tables, make_tables


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """X(b) and the heads that [CLS] reads it with. `dataclasses.replace` changes a copy."""

    embedding: Embedding  # how bits become tokens
    positions: BitPositions  # P or V, (T, d)
    tokens: NDArray[np.float64]  # E, (2, d); zeros for the bag: a bit has no vector of its own
    cls: NDArray[np.float64]  # x_[CLS], (d,)
    query: NDArray[np.float64]  # W_Q, (H, d, k)
    key: NDArray[np.float64]  # W_K, (H, d, k)
    value: NDArray[np.float64]  # W_V, (H, d, v)
    output: NDArray[np.float64]  # W_C, (H, v, features)

    def __post_init__(self) -> None:
        seal(self)

    @classmethod
    def build(
        cls, embedding: Embedding, positions: BitPositions, heads: HeadMatrices
    ) -> "HeadWeights":
        """With the tokens of the embedding and x_[CLS] = v_[CLS]."""
        width = positions.width
        return cls(embedding, positions, embedding.token_vectors(width), unit(width, CLS), *heads)

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The matrices by name."""
        names = ("tokens", "cls", "query", "key", "value", "output")
        return {name: getattr(self, name) for name in names}

    @property
    def width(self) -> int:
        """d."""
        return self.positions.width

    @property
    def n_heads(self) -> int:
        """H."""
        return len(self.query)

    @cached_property
    def tables(self) -> Tables:
        """What [CLS] sees of every position, in float64."""
        return self.tables_in(np.float64)

    def tables_in(self, dtype: Any) -> Tables:
        """The same in another precision, from weights in that precision."""
        arrays = {name: array.astype(dtype) for name, array in self.arrays.items()}
        with np.errstate(all="ignore"):  # what float32 cannot hold is reported, not warned of
            return make_tables(self.positions, self.embedding, **arrays)

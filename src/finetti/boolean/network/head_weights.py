"""All weights below the lookup: tokens, positions, [CLS], and the attention heads."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.domain import refuse_scores, seal
from finetti.boolean.embeddings.base import CLS, Embedding, HeadMatrices, unit
from finetti.boolean.embeddings.positions import BitPositions
from finetti.boolean.network.tables import Tables


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

    @np.errstate(all="ignore")  # what float32 cannot hold is reported, not warned of
    def tables_in(self, dtype: Any) -> Tables:
        """The same in another precision, from weights in that precision."""
        tokens, cls, query, key, value, output = (
            each.astype(dtype) for each in self.arrays.values()
        )
        if output.shape[2] < output.shape[1]:
            # Fewer features than values: W_C goes into the tables, which then have fewer columns.
            narrow = np.eye(output.shape[2], dtype=output.dtype)
            value, output = value @ output, np.tile(narrow, (len(output), 1, 1))
        heads, _, values = value.shape
        absorbed = np.matmul(key, (cls @ query)[:, :, None])[:, :, 0].T  # score = x · absorbed
        read = value.transpose(1, 0, 2).reshape(-1, heads * values)
        matrix = np.concatenate([absorbed, read], axis=1)
        own = cls @ matrix
        zero, one = self.embedding.both(self.positions.project(matrix), tokens @ matrix)
        scores = np.stack([zero[:, :heads], one[:, :heads]])
        # Every input has a score of at least this, so that its denominator is at least 1.
        shift = np.maximum(scores.min(axis=0).max(axis=0), own[:heads])
        if dtype == np.float64:  # scores that float32 loses are float32's own failure
            refuse_scores(float((scores.max(axis=(0, 1)) - shift).max()))

        def exponentials(table: NDArray[Any]) -> NDArray[Any]:
            weights = np.exp(table[..., :heads] - shift)
            split = table[..., heads:].reshape(*table.shape[:-1], heads, values)
            numerators = (weights[..., None] * split).reshape(*table.shape[:-1], heads * values)
            return np.concatenate([weights, numerators], axis=-1)

        seen = max(float(np.abs(each[..., heads:]).max()) for each in (zero, one, own))
        largest = seen * max(1.0, float(np.abs(output).sum(axis=1).max()))
        tables = exponentials(zero), exponentials(own), exponentials(one)
        return Tables(*tables, output, largest)

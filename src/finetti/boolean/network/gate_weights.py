"""The weights of a network of gates, and its matrices over all d coordinates of a token: bits and
positions first, then gates, then the features of each level."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.base import CLS, ONE_BIT, ZERO_BIT, Embedding
from finetti.boolean.embeddings.positions import RESERVED, BitPositions
from finetti.boolean.gates import Gates
from finetti.boolean.network.block import Block, GateRead
from finetti.boolean.network.mixture import Mixture, make_mixture


@dataclass(frozen=True, eq=False, repr=False)
class GateWeights:
    """One block per level and one token per gate."""

    embedding: Embedding  # how bits become tokens
    positions: BitPositions  # of the bits
    gates: Gates  # the gates of the rule; the last one is its value
    blocks: tuple[Block, ...]  # one per level

    @property
    def reads(self) -> list[GateRead]:
        """Of all blocks."""
        return [read for block in self.blocks for read in block.reads]

    @property
    def n_tokens(self) -> int:
        """T + the number of gates."""
        return self.positions.count + len(self.gates)

    @property
    def width(self) -> int:
        """d."""
        features = sum(block.n_heads for block in self.blocks)
        return self.positions.width + len(self.gates) + features

    @property
    def n_parameters(self) -> int:
        """Numbers in all matrices, written out."""
        count = (self.n_tokens + 2) * self.width
        for block in self.blocks:
            n_hidden, n_units = len(block.lookup.inner_bias), len(block.lookup.outer)
            count += 2 * block.n_heads * self.width * (len(block.gates) + 1)
            count += (self.width + 1) * (n_hidden + n_units) + n_hidden * n_units
        return count

    @cached_property
    def mixture(self) -> Mixture:
        """The attention of every read, in float64."""
        return make_mixture(self.blocks, self.positions, np.float64)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Per block: the key (on positions and gates) and the R of every read, and the lookup."""
        return {
            f"blocks.{number}.{name}": array
            for number, block in enumerate(self.blocks)
            for name, array in block.arrays.items()
        }

    def written(self) -> dict[str, NDArray[Any]]:
        """Every matrix by name."""
        basis, width = self.positions.width, self.width
        tokens, gate_tokens = np.eye(2, width), np.zeros((len(self.gates), width))
        positions = np.zeros((self.positions.count, width))
        positions[:, :basis] = self.positions.dense()
        gate_tokens[:, CLS] = 1.0
        np.fill_diagonal(gate_tokens[:, basis:], 1.0)
        named = {
            "embedding.tokens": tokens,
            "embedding.positions": positions,
            "embedding.gates": gate_tokens,
        }
        first = basis + len(self.gates)
        for number, block in enumerate(self.blocks):
            features = first + np.arange(block.n_heads)
            first += block.n_heads
            for name, array in self._written_block(block, features).items():
                named[f"blocks.{number}.{name}"] = array
        return named

    def _written_block(self, block: Block, features: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """W_Q, W_K, W_V, W_C and the lookup of one block."""
        basis, width, heads, lookup = self.positions.width, self.width, block.n_heads, block.lookup
        query, key = np.zeros((2, heads, width, len(block.gates)))
        for read, vector, scale in zip(block.reads, block.keys, block.scales, strict=True):
            column = block.gates.index(read.gate)
            query[read.head, basis + read.gate, column] = scale
            key[read.head, RESERVED : RESERVED + len(vector), column] = vector
        value, output = np.zeros((heads, width, 1)), np.zeros((heads, 1, width))
        value[:, ZERO_BIT], value[:, ONE_BIT] = 1.0, -1.0
        output[np.arange(heads), 0, features] = 1.0
        inner, outer = (
            np.zeros((width, lookup.inner.shape[1])),
            np.zeros((len(lookup.outer), width)),
        )
        inner[[*features, *(basis + which for which in block.gates)]] = lookup.inner
        outer[:, [ZERO_BIT, ONE_BIT]] = lookup.outer
        heads_by_name = {"query": query, "key": key, "value": value, "output": output}
        return heads_by_name | lookup.arrays | {"inner": inner, "outer": outer}

"""All weights of a network: tokens and positions, readers, and their blocks.

A rule at [CLS] is one gate in one block: [CLS] reads, and what the lookup says is the value. In a
network of gates every gate has a token of its own, v_[CLS] + q_g, and every level a block
(`gate_blocks`); what is read and looked up is added to the tokens.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.domain import seal
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions
from finetti.boolean.embeddings.token_embedding import CLS, ONE_BIT, ZERO_BIT, Embedding, unit
from finetti.boolean.language.gate_graph import Gates
from finetti.boolean.network.block import Block, Read
from finetti.boolean.network.runner import Runner
from finetti.boolean.network.sum_tables import Tables, make_tables
from finetti.core.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """X(b), and what reads it. `dataclasses.replace` changes a copy."""

    embedding: Embedding  # how bits become tokens
    positions: BitPositions  # P or V, (T, d)
    tokens: NDArray[np.float64]  # E, (2, d); zeros for the bag: a bit has no vector of its own
    cls: NDArray[np.float64]  # x_[CLS], (d,); with q_g it is the token of gate g
    gates: Gates  # the gates of the rule, of which the last is its value; none: [CLS] reads
    blocks: tuple[Block, ...]  # one, or one per level of gates

    def __post_init__(self) -> None:
        seal(self)
        width = self.positions.width
        form = self.embedding.token_vectors(width), unit(width, CLS)
        if self.gates and not all(map(np.array_equal, (self.tokens, self.cls), form)):
            raise InputError("Tokens beside gates are those of the embedding: change positions.")

    @classmethod
    def build(
        cls,
        embedding: Embedding,
        positions: BitPositions,
        blocks: tuple[Block, ...],
        gates: Gates = (),
        **more: Any,
    ) -> Self:
        """With the tokens of the embedding, and x_[CLS] = v_[CLS]."""
        width = positions.width
        tokens = embedding.token_vectors(width), unit(width, CLS)
        return cls(embedding, positions, *tokens, gates, blocks, **more)

    def changed(self, number: int = 0, **matrices: Any) -> Self:
        """A copy with other matrices in one block, by the names they have in a file."""
        blocks = list(self.blocks)
        blocks[number] = blocks[number].changed(**matrices)
        return replace(self, blocks=tuple(blocks))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Tokens by name; beside gates they are what the embedding says."""
        return {} if self.gates else {"tokens": self.tokens, "cls": self.cls}

    @property
    def stored(self) -> dict[str, NDArray[Any]]:
        """What a file has of it beside the positions, by name."""
        named = {f"embedding.{name}": array for name, array in self.arrays.items()}
        for number, block in enumerate(self.blocks):
            named |= {f"blocks.{number}.{name}": array for name, array in block.arrays.items()}
        return named

    @property
    def context_length(self) -> int:
        """T."""
        return self.positions.count

    @property
    def n_tokens(self) -> int:
        """T + the number of gates."""
        return self.positions.count + len(self.gates)

    @property
    def heads_per_block(self) -> tuple[int, ...]:
        """H of every block."""
        return tuple(block.n_heads for block in self.blocks)

    @property
    def depth(self) -> int:
        """L, the number of blocks."""
        return len(self.blocks)

    @property
    def width(self) -> int:
        """d; beside gates they and their features have coordinates, too."""
        features = sum(self.heads_per_block) if self.gates else 0
        return self.positions.width + len(self.gates) + features

    @property
    def reads(self) -> list[Read]:
        """Of all blocks."""
        return [read for block in self.blocks for read in block.reads]

    @property
    def columns(self) -> tuple[slice, ...]:
        """Which of all reads belong to each block."""
        ends = np.cumsum([0, *(len(block.reads) for block in self.blocks)])
        return tuple(slice(a, b) for a, b in pairwise(ends.tolist()))

    @property
    def n_parameters(self) -> int:
        """Numbers in all matrices, written out."""
        count = (self.context_length + 2 + max(1, len(self.gates))) * self.width
        for block in self.blocks:
            if not self.gates:
                count += sum(array.size for array in block.arrays.values())
                continue
            n_hidden, n_units = len(block.lookup.inner_bias), len(block.lookup.outer)
            count += 2 * block.n_heads * self.width * (len(block.readers) + 1)
            count += (self.width + 1) * (n_hidden + n_units) + n_hidden * n_units
        return count

    @cached_property
    def double(self) -> Runner:
        """It in float64."""
        return Runner(self.tables, self.blocks)

    @cached_property
    def single(self) -> Runner:
        """It in float32."""
        blocks = tuple(block.astype(np.float32) for block in self.blocks)
        return Runner(self.tables_in(np.float32), blocks)

    @cached_property
    def tables(self) -> Tables:
        """What readers see of every position, in float64."""
        return self.tables_in(np.float64)

    def _scores(self, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """The scores of all reads: per coordinate of a bit's token, (d, R), and on the tokens of
        readers, (readers, R)."""
        cls = self.cls.astype(dtype)
        if not self.gates:
            query, key = self.blocks[0].query.astype(dtype), self.blocks[0].key.astype(dtype)
            keys = np.matmul(key, (cls @ query)[:, :, None])[:, :, 0].T
            return keys, (cls @ keys)[None]
        # Tokens that are no gate of a block have no query: one more read is the mean of everything.
        width, n_reads = self.positions.width, len(self.reads) + 1
        places = np.zeros((width, n_reads), dtype=dtype)
        beside = np.zeros((len(self.gates), n_reads), dtype=dtype)
        for block, columns in zip(self.blocks, self.columns, strict=True):
            key, queries = block.key.astype(dtype, copy=False), block.query[:, 0].astype(dtype)
            scores = np.matmul(key, queries[:, :, None])[:, :, 0].T
            places[RESERVED:, columns] = scores[: width - RESERVED]
            beside[:, columns] = scores[width - RESERVED :]
        return places, beside + cls @ places

    @np.errstate(all="ignore")  # what float32 cannot hold is reported, not warned of
    def tables_in(self, dtype: Any) -> Tables:
        """The same in another precision, from weights in that precision."""
        keys, beside = self._scores(dtype)
        value, output = (m.astype(dtype) for m in self.blocks[0].values(self.positions.width))
        if self.gates:
            value = value[:1]  # all heads read signs
        elif output.shape[2] < output.shape[1]:
            # Fewer features than values: W_C goes into the tables, which then have fewer columns.
            narrow = np.eye(output.shape[2], dtype=output.dtype)
            value, output = value @ output, np.tile(narrow, (len(output), 1, 1))
        read = np.concatenate(list(value), axis=1)
        if self.gates:  # a table of many reads: one copy of it at a time
            scores, places = self.positions.project(keys), self.positions.project(read)
            zero = one = scores  # keys look at no coordinate of E
            del keys
        else:
            every = self.positions.project(np.concatenate([keys, read], axis=1))
            scores, places = every[:, : keys.shape[1]], every[:, keys.shape[1] :]
            zero, one = self.embedding.both(scores, self.tokens.astype(dtype) @ keys)
        seen = (
            *self.embedding.both(places, self.tokens.astype(dtype) @ read),
            np.tile(self.cls.astype(dtype) @ read, (len(beside), 1)),
        )
        return make_tables(zero, one, beside, seen, output)

    def written(self) -> dict[str, NDArray[Any]]:
        """Every matrix by name, over all d coordinates of a token: bits and positions first, then
        gates, then the features of each level."""
        if not self.gates:
            return {"embedding.positions": self.positions.dense(), **self.stored}
        basis, width = self.positions.width, self.width
        tokens, positions = np.zeros((2, width)), np.zeros((self.context_length, width))
        gates = np.zeros((len(self.gates), width))
        tokens[:, :basis], positions[:, :basis] = self.tokens, self.positions.dense()
        gates[:, :basis] = self.cls
        np.fill_diagonal(gates[:, basis:], 1.0)
        found = {"tokens": tokens, "positions": positions, "gates": gates}
        named = {f"embedding.{name}": array for name, array in found.items()}
        first = basis + len(self.gates)
        for number, block in enumerate(self.blocks):
            features = first + np.arange(block.n_heads)
            first += block.n_heads
            for name, array in self._written_block(block, features).items():
                named[f"blocks.{number}.{name}"] = array
        return named

    def _written_block(self, block: Block, features: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """W_Q, W_K, W_V, W_C and the lookup of one block of gates."""
        basis, width, heads, lookup = self.positions.width, self.width, block.n_heads, block.lookup
        query, key = np.zeros((2, heads, width, len(block.readers)))
        rows = zip(block.reads, block.places[0], block.query, block.key, strict=True)
        for read, column, own, vector in rows:
            query[read.head, basis + read.reader, column] = own[0, 0]
            key[read.head, RESERVED : RESERVED + len(vector), column] = vector[:, 0]
        value, output = block.values(width)[0], np.zeros((heads, 1, width))
        output[np.arange(heads), 0, features] = 1.0
        inner = np.zeros((width, lookup.inner.shape[1]))
        outer = np.zeros((len(lookup.outer), width))
        inner[[*features, *(basis + which for which in block.readers)]] = lookup.inner
        outer[:, [ZERO_BIT, ONE_BIT]] = lookup.outer
        found = {"query": query, "key": key, "value": value, "output": output}
        return found | lookup.arrays | {"inner": inner, "outer": outer}

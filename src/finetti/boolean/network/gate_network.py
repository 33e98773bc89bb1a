"""A rule of gates: every gate has a token v_[CLS] + q_g, and every level of gates a block.

What is read and looked up is added to the tokens. Keys of gates look at positions and gates, which
no bit changes, so the attention of every read is one vector of T + G numbers, and what it reads of
the bits is linear in them: one product of the bits with a table of T × reads serves all blocks.
All tokens that are no gate of a block read the same mean of everything with a query of zero, so one
more token stands for them: whatever a block writes into them, if its numbers are wrong, is added to
all of them. This is the network for ANY numbers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.position_vectors import RESERVED
from finetti.boolean.embeddings.token_embedding import CLS, ONE_BIT, ZERO_BIT
from finetti.boolean.embeddings.weight_range import check_score_lead, freeze_arrays
from finetti.boolean.language.expression import ExpressionRule
from finetti.boolean.language.gate_graph import Gates, Source
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.network.lookup import BLOCK_UNITS, LOOKUP_NAMES, Lookup
from finetti.boolean.network.sum_tables import SumTables
from finetti.core.numerics.extremes import largest_of

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Read:
    """One gate's use of one head: it reads its group of that number."""

    reader: int  # which gate
    head: int  # which head of its block
    sources: tuple[Source, ...]

    @property
    def bits(self) -> list[int]:
        """The bits among its sources."""
        return [source.index for source in self.sources if not source.is_gate]

    @property
    def gates(self) -> list[int]:
        """The gates among its sources."""
        return [source.index for source in self.sources if source.is_gate]


def level_gates(gates: Gates) -> list[tuple[int, ...]]:
    """Which gates each level has, from the first."""
    levels = range(1, max(gate.level for gate in gates) + 1)
    return [tuple(k for k, gate in enumerate(gates) if gate.level == each) for each in levels]


def level_reads(gates: Gates) -> list[tuple[Read, ...]]:
    """One read per group of every gate of each level."""
    return [
        tuple(Read(k, head, group) for k in own for head, group in enumerate(gates[k].groups))
        for own in level_gates(gates)
    ]


@dataclass(frozen=True, eq=False)
class GateBlock:
    """One level. Rows of W_Q and W_K are kept per read, on the coordinates where they have numbers:
    q_g alone in the queries of gate g, positions and gates in its key."""

    reads: tuple[Read, ...]  # which head reads what for which gate
    scales: Matrix  # of W_Q: R of every read, (reads,)
    keys: Matrix  # of W_K, (reads, positions and gates)
    lookup: Lookup  # on the features, then the q_g of its gates
    # of the lemma's keys on these positions (`Keys`), for the bounds on norms
    gaps: Matrix
    spans: Matrix

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """Which gates read here."""
        return tuple(dict.fromkeys(read.reader for read in self.reads))

    @cached_property
    def places(self) -> tuple[list[int], list[int]]:
        """Of every read: the place of its gate among the readers, and its head."""
        place = {reader: number for number, reader in enumerate(self.readers)}
        return [place[read.reader] for read in self.reads], [read.head for read in self.reads]

    @cached_property
    def n_heads(self) -> int:
        """H."""
        return max(read.head for read in self.reads) + 1

    @cached_property
    def recognizer(self) -> Lookup:
        """The lookup as a function of features alone."""
        return replace(self.lookup, inner=self.lookup.inner[: self.n_heads])

    @cached_property
    def marks(self) -> NDArray[Any]:
        """What the lookup knows of each of its gates and, last, of any other token: its biases."""
        marks = self.lookup.inner[self.n_heads :]
        return np.concatenate([marks, np.zeros_like(marks[:1])]) + self.lookup.inner_bias

    def changed(self, **matrices: Any) -> "GateBlock":
        """A copy with other matrices, of the heads or of the lookup."""
        inside = {name: matrices.pop(name) for name in LOOKUP_NAMES if name in matrices}
        return replace(self, lookup=replace(self.lookup, **inside), **matrices)

    def write(self, features: NDArray[Any]) -> NDArray[Any]:
        """What is written into each gate's token and, last, into any other: (m, readers + 1, 2)."""
        return self.recognizer(features, self.marks)


@dataclass(frozen=True, eq=False)
class GateTables(SumTables):
    """The attention of every read, and last that of a query of zero, divided by its sum."""

    attention: NDArray[Any]  # on the bits, (T, reads + 1)
    beside: NDArray[Any]  # on the gates, (G, reads + 1)
    seen: tuple[NDArray[Any], NDArray[Any]]  # of a bit that is 0 and of one that is 1, (T,)
    blocks: tuple[GateBlock, ...]  # with lookups in that precision

    @property
    def length(self) -> int:
        """T."""
        return len(self.attention)

    @cached_property
    def _turned(self) -> NDArray[Any]:
        """What is seen more of bits when they turn 1."""
        return self.seen[1] - self.seen[0]

    def zero_sums(self) -> NDArray[Any]:
        """The sums of the string of zeros, without `always`."""
        return self.seen[0] @ self.attention

    def chosen(self, bits: NDArray[Any], which: list[int] | slice) -> NDArray[Any]:
        """Sums over the positions ``which`` of bits (m, n)."""
        ones = bits.astype(self.attention.dtype)
        return (self.seen[0][which] + ones * self._turned[which]) @ self.attention[which]

    def changes(self, ones: NDArray[Any], here: slice) -> NDArray[Any]:
        """By how much the sums of bits (m, n), in floating point, differ from those of zeros; a
        number that all bits have in common, -2, is multiplied last: a pass over the bits less."""
        turned = self._turned[here]
        if (turned == turned[0]).all():
            return turned[0] * (ones @ self.attention[here])
        return (ones * turned) @ self.attention[here]

    def outside_sums(self, indices: tuple[int, ...], rows: NDArray[Any]) -> NDArray[Any]:
        """Sums of each row of bits over all positions but ``indices``, without `always`."""
        blind = tuple(each.copy() for each in self.seen)  # a copy of the table would be large
        for each in blind:
            each[list(indices)] = 0
        return replace(self, always=np.zeros_like(self.always), seen=blind).sums(rows)

    def outputs(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The values of the last gate, shape (m,)."""
        out = np.empty(len(sums), dtype=sums.dtype)
        tokens = max(len(block.readers) + 1 for block in self.blocks)
        largest = tokens * max(block.n_heads for block in self.blocks)
        step = max(1, BLOCK_UNITS // (4 * max(largest, 2 * len(self.beside))))
        for start in range(0, len(sums), step):
            *_, (_, values) = self.levels(sums[start : start + step])
            out[start : start + step] = values[:, -1]
        return out

    def levels(self, sums: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Block by block: what each of its gates has read, and last any token that is no gate of
        it, shape (m, readers + 1, features); and the values of all gates after the block, (m, G).
        """
        gates, dtype = self.beside, sums.dtype
        written = np.zeros((len(sums), len(gates), 2), dtype=dtype)
        drift = np.zeros(len(sums), dtype=dtype)  # what blocks have added to the value of every bit
        first = 0
        for block in self.blocks:
            values = written[:, :, ZERO_BIT] - written[:, :, ONE_BIT]
            which, first = np.r_[first : first + len(block.reads), -1], first + len(block.reads)
            read = sums[:, which] + values @ gates[:, which]
            if drift.any():
                read += drift[:, None] * self.attention[:, which].sum(axis=0)
            features = np.tile(read[:, -1:, None], (1, len(block.readers) + 1, block.n_heads))
            features[:, *block.places] = read[:, :-1]
            new = block.write(features)
            written = written.copy()
            if new[:, -1].any():
                others = np.delete(np.arange(len(gates)), block.readers)
                written[:, others] += new[:, -1:]
                drift = drift + new[:, -1, ZERO_BIT] - new[:, -1, ONE_BIT]
            written[:, block.readers] += new[:, :-1]
            yield features, written[:, :, ONE_BIT]

    def read_attention(self) -> NDArray[Any]:
        """What each read puts on every bit and then on the gates, (reads, T + G)."""
        return np.concatenate([self.attention, self.beside]).T[:-1]


@dataclass(frozen=True, eq=False)
class GateNetwork(Network):
    """One block per level of gates; coordinate e_1 of the last gate is the value."""

    rule: ExpressionRule
    gates: Gates  # of the rule, which the last of them computes
    blocks: tuple[GateBlock, ...]

    @property
    def n_tokens(self) -> int:
        """T + G."""
        return self.context_length + len(self.gates)

    @property
    def heads_per_block(self) -> tuple[int, ...]:
        """H of every block."""
        return tuple(block.n_heads for block in self.blocks)

    @property
    def width(self) -> int:
        """d: positions, then a coordinate per gate, then one per feature."""
        return self.positions.width + len(self.gates) + sum(self.heads_per_block)

    @property
    def n_parameters(self) -> int:
        """Numbers in all matrices, written out."""
        count = (self.context_length + 2 + len(self.gates)) * self.width
        for block in self.blocks:
            n_hidden, n_units = len(block.lookup.inner_bias), len(block.lookup.outer)
            count += 2 * block.n_heads * self.width * (len(block.readers) + 1)
            count += (self.width + 1) * (n_hidden + n_units) + n_hidden * n_units
        return count

    @property
    def reads(self) -> list[Read]:
        """Of all blocks."""
        return [read for block in self.blocks for read in block.reads]

    @property
    def columns(self) -> tuple[slice, ...]:
        """Which of all reads belong to each block."""
        ends = np.cumsum([0, *(len(block.reads) for block in self.blocks)])
        return tuple(slice(a, b) for a, b in pairwise(ends.tolist()))

    def changed(self, block: int = 0, **matrices: Any) -> Self:
        """A copy with other matrices in one block: `scales`, `keys`, or those of its lookup."""
        blocks = list(self.blocks)
        blocks[block] = blocks[block].changed(**matrices)
        return replace(self, blocks=tuple(blocks))

    def tables(self, dtype: Any) -> GateTables:
        """The attention of every read, computed in this precision."""
        width, n_reads = self.positions.width, len(self.reads) + 1
        keys = np.zeros((width, n_reads), dtype=dtype)
        beside = np.zeros((len(self.gates), n_reads), dtype=dtype)
        for block, columns in zip(self.blocks, self.columns, strict=True):
            rows = block.keys.astype(dtype, copy=False) * block.scales.astype(dtype)[:, None]
            keys[RESERVED:, columns] = rows[:, : width - RESERVED].T
            beside[:, columns] = rows[:, width - RESERVED :].T
        scores = self.positions.project(keys)
        del keys  # of many reads: one copy at a time
        sign = np.zeros((width, 1), dtype=dtype)
        sign[ZERO_BIT], sign[ONE_BIT] = 1, -1
        tokens = self.embedding.token_vectors(width).astype(dtype)
        seen = self.embedding.bit_values(self.positions.project(sign), tokens @ sign)
        shift = np.maximum(scores.max(axis=0), beside.max(axis=0))
        if scores.dtype == np.float64:
            check_score_lead(float((scores.max(axis=0) - shift).max()))
        beside = np.exp(beside - shift)
        scores -= shift
        np.exp(scores, out=scores)
        total = scores.sum(axis=0) + beside.sum(axis=0)
        scores /= total
        beside /= total
        largest = largest_of(float(np.abs(each).max()) for each in seen)
        blocks = tuple(replace(block, lookup=block.lookup.astype(dtype)) for block in self.blocks)
        # Tokens of gates are empty before the first block.
        always = np.zeros(n_reads, dtype=dtype)
        signs = seen[0][:, 0], seen[1][:, 0]
        return GateTables(always, largest, scores, beside, signs, blocks)

    def matrices(self) -> dict[str, NDArray[Any]]:
        """Every matrix but the positions by its name in a file, over all d coordinates."""
        basis, width, n_gates = self.positions.width, self.width, len(self.gates)
        tokens, readers = np.zeros((2, width)), np.zeros((n_gates, width))
        tokens[:, :basis] = self.embedding.token_vectors(basis)
        readers[:, CLS] = 1.0
        np.fill_diagonal(readers[:, basis:], 1.0)
        named = {"embedding.tokens": tokens, "embedding.readers": readers}
        for number in range(self.depth):
            for name, array in self._block_matrices(number).items():
                named[f"blocks.{number}.{name}"] = array
        return named

    def _places(self, number: int) -> tuple[NDArray[np.int64], list[int], tuple[Any, Any, Any]]:
        """Where one block has its numbers: the coordinates of its features; the rows of its lookup;
        and of every read its head, the coordinate q_g of its gate, and its column."""
        block, basis = self.blocks[number], self.positions.width
        first = basis + len(self.gates) + sum(self.heads_per_block[:number])
        features = first + np.arange(block.n_heads)
        columns, heads = map(np.array, block.places)
        gates = basis + np.array([read.reader for read in block.reads])
        rows = [*features.tolist(), *(basis + which for which in block.readers)]
        return features, rows, (heads, gates, columns)

    def _block_matrices(self, number: int) -> dict[str, Matrix]:
        """W_Q, W_K, W_V, W_C and the lookup: head j reads signs into a feature of its own."""
        block, lookup, width = self.blocks[number], self.blocks[number].lookup, self.width
        features, rows, (heads, gates, columns) = self._places(number)
        query, key = np.zeros((2, block.n_heads, width, len(block.readers)))
        query[heads, gates, columns] = block.scales
        key[heads, RESERVED : RESERVED + block.keys.shape[1], columns] = block.keys
        value, output = np.zeros((block.n_heads, width, 1)), np.zeros((block.n_heads, 1, width))
        value[:, ZERO_BIT], value[:, ONE_BIT] = 1.0, -1.0
        output[np.arange(block.n_heads), 0, features] = 1.0
        inner = np.zeros((width, lookup.inner.shape[1]))
        outer = np.zeros((len(lookup.outer), width))
        inner[rows], outer[:, [ZERO_BIT, ONE_BIT]] = lookup.inner, lookup.outer
        found = {"query": query, "key": key, "value": value, "output": output}
        return found | lookup.arrays | {"inner": inner, "outer": outer}

    def with_matrices(self, named: Mapping[str, Matrix]) -> Self:
        """A copy with the numbers of these `matrices`, where a network of these gates has some."""
        network = self
        for number, block in enumerate(self.blocks):
            _, rows, (heads, gates, columns) = self._places(number)
            found = {name: named[f"blocks.{number}.{name}"] for name in LOOKUP_NAMES}
            found |= {
                "inner": found["inner"][rows],
                "outer": found["outer"][:, [ZERO_BIT, ONE_BIT]],
            }
            query, key = (named[f"blocks.{number}.{name}"] for name in ("query", "key"))
            keys = key[heads, RESERVED : RESERVED + block.keys.shape[1], columns]
            scales = query[heads, gates, columns]
            network = network.changed(number, scales=scales, keys=keys, **found)
        return network

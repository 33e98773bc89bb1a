"""One block: the heads that readers read with, and the lookup of what they have read."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.domain import seal
from finetti.boolean.embeddings.token_embedding import ONE_BIT, ZERO_BIT, HeadMatrices
from finetti.boolean.language.gate_graph import Source
from finetti.boolean.network.lookup import LOOKUP_NAMES, Lookup

Matrix = NDArray[np.float64]


def _none() -> Matrix:
    return np.zeros(0)


@dataclass(frozen=True)
class Read:
    """One reader's use of one head."""

    reader: int  # [CLS] is 0; or which gate
    head: int  # which head of its block
    # what a gate reads: its group of that number (what [CLS] should read is said by the rule)
    sources: tuple[Source, ...] = ()

    @property
    def bits(self) -> list[int]:
        """The bits among its sources."""
        return [source.index for source in self.sources if not source.is_gate]

    @property
    def gates(self) -> list[int]:
        """The gates among its sources."""
        return [source.index for source in self.sources if source.is_gate]


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of W_Q and W_K are kept per read, on the coordinates where they may have numbers: all d
    of them for [CLS]; q_g alone in the queries of gate g, positions and gates in its key."""

    reads: tuple[Read, ...]  # which head reads what for which reader
    query: Matrix  # W_Q, (reads, d or 1, k)
    key: Matrix  # W_K, (reads, d or positions and gates, k)
    lookup: Lookup  # on the features, then the q_g of its gates
    # W_V, (H, d, v) and W_C, (H, v, features); None for gates: head j reads signs, e_0 − e_1, into
    # a feature of its own
    value: Matrix | None = None
    output: Matrix | None = None
    # of the lemma's keys on these positions (`Keys`), for the bounds on norms of gates
    gaps: Matrix = field(default_factory=_none)
    spans: Matrix = field(default_factory=_none)

    def __post_init__(self) -> None:
        seal(self)

    @classmethod
    def at_cls(cls, heads: HeadMatrices, lookup: Lookup) -> "Block":
        """Whose one reader is [CLS]."""
        reads = tuple(Read(0, head) for head in range(len(heads.query)))
        return cls(reads, heads.query, heads.key, lookup, heads.value, heads.output)

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """Whose tokens read here."""
        return tuple(dict.fromkeys(read.reader for read in self.reads))

    @cached_property
    def places(self) -> tuple[list[int], list[int]]:
        """Of every read: the place of its reader among the readers, and its head."""
        place = {reader: number for number, reader in enumerate(self.readers)}
        return [place[read.reader] for read in self.reads], [read.head for read in self.reads]

    @cached_property
    def n_heads(self) -> int:
        """H."""
        return max(read.head for read in self.reads) + 1

    def values(self, width: int) -> tuple[Matrix, Matrix]:
        """W_V and W_C of every head over all coordinates of a bit's token."""
        if self.value is not None and self.output is not None:
            return self.value, self.output
        value = np.zeros((self.n_heads, width, 1))
        value[:, ZERO_BIT], value[:, ONE_BIT] = 1.0, -1.0
        return value, np.eye(self.n_heads)[:, None, :]

    def changed(self, **matrices: Any) -> "Block":
        """A copy with other matrices, by the names they have in a file."""
        inside = {name: matrices.pop(name) for name in LOOKUP_NAMES if name in matrices}
        return replace(self, lookup=replace(self.lookup, **inside), **matrices)

    def astype(self, dtype: Any) -> "Block":
        """The same with its lookup in another precision."""
        return replace(self, lookup=self.lookup.astype(dtype))

    @property
    def arrays(self) -> dict[str, Matrix]:
        """What a file has of it, by name."""
        names = ("query", "key", "value", "output")
        found = {name: getattr(self, name) for name in names}
        kept = {name: array for name, array in found.items() if array is not None}
        return kept | self.lookup.arrays

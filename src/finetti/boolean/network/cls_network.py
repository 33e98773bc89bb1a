"""A rule at [CLS]: one block, whose heads [CLS] alone reads with, and whose lookup is the value.

With e_{b,t,h} = exp(score − shift_h), attention is num_h/den_h with

    den_h = e_cls + Σ_t e_{b_t,t,h},   num_h = e_cls v_cls + Σ_t e_{b_t,t,h} v_{b_t,t,h}
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.position_geometry import Geometry
from finetti.boolean.embeddings.token_embedding import CLS, HeadMatrices, Relevant, unit
from finetti.boolean.embeddings.weight_range import (
    check_score_lead,
    check_weight_range,
    freeze_arrays,
    read_only,
)
from finetti.boolean.language.families import Symmetric, TruthTable
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.network.lookup import LOOKUP_NAMES, Lookup
from finetti.boolean.network.sum_tables import SumTables
from finetti.core.numerics.extremes import largest_of

MAX_ROUNDING_WORK = 2**31  # multiplications that the rounding of one batch may cost
MAX_CANCELLATION = {"float64": 1e4, "float32": 30.0}  # a sum's largest value over its least


@dataclass(frozen=True, eq=False)
class ClsTables(SumTables):
    """H denominators, then H·v numerators, of each position for either value of its bit."""

    zero: NDArray[Any]  # what a position adds if its bit is 0, shape (T, C)
    one: NDArray[Any]  # what it adds if its bit is 1
    output: NDArray[Any]  # W_C, shape (H, v, features)
    lookup: Lookup

    @property
    def length(self) -> int:
        """T."""
        return len(self.zero)

    @property
    def n_heads(self) -> int:
        """H."""
        return len(self.output)

    def difference(self, which: Any = slice(None)) -> NDArray[Any]:
        """What bits change when they turn 1."""
        return self.one[which] - self.zero[which]

    def zero_sums(self) -> NDArray[Any]:
        """The sums of the string of zeros, without `always`."""
        return self.zero.sum(axis=0)

    def loses_digits(self) -> bool:
        """Whether denominators of zeros are so large that changes would lose their digits."""
        heads = slice(0, self.n_heads)
        least = np.minimum(self.zero[:, heads], self.one[:, heads]).sum(axis=0)
        least = self.always[heads] + least
        return not (self.base[heads] <= MAX_CANCELLATION[self.zero.dtype.name] * least).all()

    def chosen(self, bits: NDArray[Any], which: list[int] | slice) -> NDArray[Any]:
        """Sums over the positions ``which`` of bits (m, n)."""
        ones = bits.astype(self.zero.dtype)
        return ones @ self.one[which] + (1 - ones) @ self.zero[which]

    def changes(self, ones: NDArray[Any], here: slice) -> NDArray[Any]:
        """By how much the sums of bits (m, n), in floating point, differ from those of zeros."""
        return ones @ self.difference(here)

    def outside_sums(self, indices: tuple[int, ...], rows: NDArray[Any]) -> NDArray[Any]:
        """Sums of each row of bits over all positions but ``indices``, without `always`."""
        aside = np.delete(np.arange(self.length), list(indices))
        nothing = np.zeros_like(self.always)
        among = replace(self, zero=self.zero[aside], one=self.one[aside], always=nothing)
        return among.sums(rows[:, aside])

    def attention(self, bits: NDArray[Any]) -> NDArray[Any]:
        """What each head puts on every position and then on [CLS], for one input."""
        heads = slice(0, self.n_heads)
        chosen = np.where(bits[:, None] == 1, self.one[:, heads], self.zero[:, heads])
        exponentials = np.concatenate([chosen, self.always[None, heads]]).T
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    def folded(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Denominators beside num_hW_C^h, which is all that features depend on."""
        heads, values, _ = self.output.shape
        split = rows[:, heads:].reshape(-1, heads, values)
        through = np.einsum("mhv,hvf->mhf", split, self.output).reshape(len(rows), -1)
        return np.concatenate([rows[:, :heads], through], axis=1)

    def features(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Σ_h (num_h/den_h)W_C^h, shape (m, features)."""
        heads, values, _ = self.output.shape
        read = sums[:, heads:].reshape(-1, heads, values) / sums[:, :heads, None]
        return np.einsum("mhv,hvf->mf", read, self.output)

    def outputs(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The values of the lookup, shape (m,)."""
        return self.lookup(self.features(sums))

    def most_rounding(self) -> float:
        """As if every unit of the lookup were on."""
        return self.lookup.most_resolution(self.largest)

    def rounding(self, sums: NDArray[Any]) -> NDArray[np.float64]:
        """How far rounding alone may move each value."""
        return self.lookup.resolution(self.features(sums))

    def largest_rounding(self, sums: NDArray[Any]) -> float:
        """The largest of all rows, or of some of too many."""
        n_units = len(self.lookup.inner_bias) * len(self.lookup.outer)
        step = 1 + len(sums) * n_units // MAX_ROUNDING_WORK
        return float(self.rounding(sums[::step]).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class ClsNetwork(Network):
    """Heads that [CLS] reads with, and a lookup of what they have read."""

    rule: Symmetric | TruthTable  # on the bits that matter
    geometry: Geometry  # how the positions of the rule stand to the others, as was measured
    heads: HeadMatrices
    lookup: Lookup
    tokens: NDArray[np.float64]  # E, (2, d); zeros for the bag: a bit has no vector of its own
    cls: NDArray[np.float64]  # x_[CLS], (d,)

    def __post_init__(self) -> None:
        freeze_arrays(self)
        check_weight_range(**self.heads._asdict())
        heads = HeadMatrices(*map(read_only, self.heads))
        object.__setattr__(self, "heads", heads)

    @classmethod
    def build(
        cls,
        embedding: Any,
        rule: Symmetric | TruthTable,
        relevant: Relevant,
        heads: HeadMatrices,
        lookup: Lookup,
    ) -> Self:
        """With the tokens of the embedding, and x_[CLS] = v_[CLS]."""
        positions, geometry = relevant.positions, relevant.geometry
        tokens = embedding.token_vectors(positions.width), unit(positions.width, CLS)
        return cls(embedding, rule, positions, geometry, heads, lookup, *tokens)

    @property
    def relevant(self) -> Relevant:
        """The positions of the rule among all."""
        scalar = isinstance(self.rule, Symmetric)
        return Relevant(self.positions, self.geometry, self.rule.indices, scalar)

    @property
    def heads_per_block(self) -> tuple[int, ...]:
        """H, of the only block."""
        return (len(self.heads.query),)

    @property
    def width(self) -> int:
        """d."""
        return self.positions.width

    @property
    def n_tokens(self) -> int:
        """T: [CLS] is not counted."""
        return self.context_length

    @property
    def n_parameters(self) -> int:
        """Numbers in all matrices, written out."""
        inside = (*self.heads, *self.lookup.arrays.values())
        return (self.context_length + 3) * self.width + sum(array.size for array in inside)

    def changed(self, block: int = 0, **matrices: Any) -> Self:
        """A copy with other matrices of the heads or of the lookup; the only block is 0."""
        inside = {name: matrices.pop(name) for name in LOOKUP_NAMES if name in matrices}
        heads, lookup = self.heads._replace(**matrices), replace(self.lookup, **inside)
        return replace(self, heads=heads, lookup=lookup)

    def matrices(self) -> dict[str, NDArray[Any]]:
        """Every matrix but the positions by its name in a file."""
        inside = self.heads._asdict() | self.lookup.arrays
        named = {f"blocks.0.{name}": array for name, array in inside.items()}
        return {"embedding.tokens": self.tokens, "embedding.readers": self.cls[None], **named}

    def tables(self, dtype: Any) -> ClsTables:
        """What [CLS] sees of every position, computed in this precision."""
        tokens, cls = self.tokens.astype(dtype), self.cls.astype(dtype)
        query, key, value, output = (matrix.astype(dtype) for matrix in self.heads)
        keys = np.matmul(key, (cls @ query)[:, :, None])[:, :, 0].T  # scores per coordinate, (d, H)
        if output.shape[2] < output.shape[1]:
            # Fewer features than values: W_C goes into the tables, which then have fewer columns.
            narrow = np.eye(output.shape[2], dtype=output.dtype)
            value, output = value @ output, np.tile(narrow, (len(output), 1, 1))
        n_heads, n_values, _ = output.shape
        read = np.concatenate(list(value), axis=1)
        every = self.positions.project(np.concatenate([keys, read], axis=1))
        zero, one = self.embedding.bit_values(every[:, :n_heads], tokens @ keys)
        seen = (*self.embedding.bit_values(every[:, n_heads:], tokens @ read), (cls @ read)[None])
        own = cls @ keys
        # Every input has a score of at least this, so that its denominator is at least 1.
        shift = np.maximum(np.minimum(zero, one).max(axis=0), own)
        if zero.dtype == np.float64:  # scores that float32 loses are float32's own failure
            check_score_lead(float((np.maximum(zero.max(axis=0), one.max(axis=0)) - shift).max()))
        most = largest_of(float(np.abs(each).max()) for each in seen)
        largest = most * largest_of(1.0, float(np.abs(output).sum(axis=1).max()))

        def entries(scores: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
            weights = scores - shift
            np.exp(weights, out=weights)
            split = values.reshape(len(values), -1, n_values)
            numerators = (weights[..., None] * split).reshape(len(values), -1)
            return np.concatenate([weights, numerators], axis=1)

        zero, one, always = map(entries, (zero, one, own[None]), seen)
        lookup = self.lookup.astype(dtype)
        return ClsTables(always[0], largest, zero, one, output, lookup)

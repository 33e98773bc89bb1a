"""What [CLS] reads of T binary tokens, as sums over positions of the entries of two tables.

With e_{b,t,h} = exp(score − shift_h), attention is num_h/den_h with

    den_h = e_cls + Σ_t e_{b_t,t,h},   num_h = e_cls v_cls + Σ_t e_{b_t,t,h} v_{b_t,t,h}

so each input is a choice of one row of two per position, and its sums are all that matters: no
array is ever T × T or batch × T × d. (`finetti.attention.binary` does the same in JAX.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.domain import refuse_scores
from finetti.boolean.functions.base import all_bits
from finetti.boolean.network.positions import BitPositions

if TYPE_CHECKING:
    from finetti.boolean.embeddings.base import Embedding

BLOCK_ENTRIES = 2**23  # entries of a block of bits in floating point: 64 MB
ENUMERATED_BITS = 10  # bits of the half that is enumerated once
MAX_CANCELLATION = {
    "float64": 1e4,
    "float32": 30.0,
}  # how much smaller than its terms a difference may be


@dataclass(frozen=True, eq=False)
class Tables:
    """Columns: H denominators, then H·v numerators.

    Args:
        zero, one: what a position adds if its bit is 0 or 1, shape (T, H(1 + v)).
        cls: what [CLS] adds, shape (H(1 + v),).
        output: W_C, shape (H, v, features).
        largest: the largest |v|, in the units of the features.
    """

    zero: NDArray[Any]
    one: NDArray[Any]
    cls: NDArray[Any]
    output: NDArray[Any]
    largest: float = 1.0

    @property
    def n_heads(self) -> int:
        """H."""
        return len(self.output)

    @cached_property
    def difference(self) -> NDArray[Any]:
        """What a bit changes when it turns 1."""
        return self.one - self.zero

    @cached_property
    def base(self) -> NDArray[Any]:
        """The sums of the string of zeros."""
        return self.cls + self.zero.sum(axis=0)

    @cached_property
    def _cancels(self) -> bool:
        """Whether base + bits @ difference would lose digits: large entries taken away again."""
        heads = slice(0, self.n_heads)
        least = self.cls[heads] + np.minimum(self.zero[:, heads], self.one[:, heads]).sum(axis=0)
        return not (self.base[heads] <= MAX_CANCELLATION[self.zero.dtype.name] * least).all()

    def read(self, bits: NDArray[Any]) -> NDArray[Any]:
        """Features of each row of ``bits`` (m, T), as the textbook's softmax gives them."""
        return self.features(self.sums(bits))

    def read_sparse(self, rows: Any) -> NDArray[Any]:
        """The same for a SciPy matrix in CSR form; its cost is its ones where digits allow it."""
        if not self._cancels:
            ones = rows.astype(self.zero.dtype)
            return self.features(self.base + ones @ self.difference)
        out = np.zeros((rows.shape[0], self.output.shape[2]), dtype=self.zero.dtype)
        step = max(1, BLOCK_ENTRIES // len(self.zero))
        for start in range(0, rows.shape[0], step):
            out[start : start + step] = self.read(rows[start : start + step].toarray())
        return out

    def attention(self, bits: NDArray[Any]) -> NDArray[Any]:
        """What each head puts on [CLS] and then on every position, for one input: (H, 1 + T)."""
        heads = slice(0, self.n_heads)
        chosen = np.where(bits[:, None] == 1, self.one[:, heads], self.zero[:, heads])
        exponentials = np.concatenate([self.cls[None, heads], chosen]).T
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    def sums(self, bits: NDArray[Any]) -> NDArray[Any]:
        """Sums of each row of ``bits`` (m, T), in blocks."""
        out = np.zeros((len(bits), self.zero.shape[1]), dtype=self.zero.dtype)
        length = len(self.zero)
        columns = min(max(length, 1), 2**15)
        rows = max(1, BLOCK_ENTRIES // columns)
        for top in range(0, len(bits), rows):
            for left in range(0, length, columns):
                here = slice(left, left + columns)
                ones = bits[top : top + rows, here].astype(out.dtype)
                if self._cancels:
                    part = ones @ self.one[here] + (1 - ones) @ self.zero[here]
                else:
                    part = ones @ self.difference[here]
                out[top : top + rows] += part
        return out + (self.cls if self._cancels else self.base)

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

    def enumerate_sums(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Sums of ALL 2^T inputs in order, in blocks, each with the number of its first input.

        The first bit is most significant. The low half is enumerated once; the rest is additions.
        """
        low = min(ENUMERATED_BITS, len(self.zero))
        high = len(self.zero) - low
        ends = self._enumerate(slice(high, None))
        step = max(1, BLOCK_ENTRIES // (4 * ends.size))
        starts = self._enumerate(slice(0, high)) + self.cls
        for first in range(0, len(starts), step):
            block = starts[first : first + step, None] + ends[None]
            yield first << low, block.reshape(-1, ends.shape[1])

    def _enumerate(self, which: slice) -> NDArray[Any]:
        zero, one = self.zero[which], self.one[which]
        bits = all_bits(len(zero)).astype(zero.dtype)
        return bits @ one + (1 - bits) @ zero

    def enumerate_features(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Features of ALL 2^T inputs in order, in blocks, each with its first input's number."""
        for first, sums in self.enumerate_sums():
            yield first, self.features(sums)

    @cached_property
    def all_features(self) -> NDArray[Any]:
        """Features of all 2^T inputs, kept because every rule on the same bits has the same."""
        return np.concatenate([features for _, features in self.enumerate_features()])


def make_tables(
    positions: BitPositions,
    embedding: "Embedding",
    tokens: NDArray[Any],
    cls: NDArray[Any],
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any],
    output: NDArray[Any],
) -> Tables:
    """Tables in the precision of the weights."""
    if output.shape[2] < output.shape[1]:
        # Fewer features than values: W_C goes into the tables, which then have fewer columns.
        value, output = (
            value @ output,
            np.tile(np.eye(output.shape[2], dtype=output.dtype), (len(output), 1, 1)),
        )
    heads, _, values = value.shape
    absorbed = np.matmul(key, (cls @ query)[:, :, None])[:, :, 0].T  # score = x · absorbed
    read = value.transpose(1, 0, 2).reshape(-1, heads * values)
    matrix = np.concatenate([absorbed, read], axis=1)
    places = positions.project(matrix)  # (T, H + Hv)
    own = cls @ matrix
    zero, one = embedding.both(places, tokens @ matrix)
    scores = np.stack([zero[:, :heads], one[:, :heads]])
    # Every input has a score of at least this, so that its denominator is at least 1.
    shift = np.maximum(scores.min(axis=0).max(axis=0), own[:heads])
    if places.dtype == np.float64:  # scores that float32 loses are float32's own failure
        refuse_scores(float((scores.max(axis=(0, 1)) - shift).max()))

    def exponentials(table: NDArray[Any]) -> NDArray[Any]:
        weights = np.exp(table[..., :heads] - shift)
        split = table[..., heads:].reshape(*table.shape[:-1], heads, values)
        numerators = (weights[..., None] * split).reshape(*table.shape[:-1], heads * values)
        return np.concatenate([weights, numerators], axis=-1)

    seen = max(float(np.abs(each[..., heads:]).max()) for each in (zero, one, own))
    largest = seen * max(1.0, float(np.abs(output).sum(axis=1).max()))
    return Tables(exponentials(zero), exponentials(one), exponentials(own), output, largest)

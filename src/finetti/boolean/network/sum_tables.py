"""What readers read of T binary tokens, as sums over positions of the entries of two tables.

With e_{b,t,h} = exp(score − shift_h), attention is num_h/den_h with

    den_h = e_cls + Σ_t e_{b_t,t,h},   num_h = e_cls v_cls + Σ_t e_{b_t,t,h} v_{b_t,t,h}

so each input is a choice of one row of two per position, and its sums are all that matters: no
array is ever T × T or batch × T × d. (`finetti.probe.cls_attention` does the same in JAX.) Where no
bit changes the attention, as that of gates, exponentials are divided by den_h beforehand, and what
is read is linear in what is seen of the bits: one table of attention is enough, and the product
with it takes ±1 for 0 and 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.domain import refuse_scores
from finetti.boolean.language.rule import all_bits
from finetti.core.numerics.extremes import largest_of

BLOCK_ENTRIES = 2**23  # entries of a block of bits in floating point: 64 MB
BLOCK_POSITIONS = 2**15  # positions that are summed at a time
ENUMERATED_BITS = 10  # bits of the half that is enumerated once
MAX_CANCELLATION = {"float64": 1e4, "float32": 30.0}  # a sum's largest value over its least


@dataclass(frozen=True, eq=False)
class Tables:
    """Sums over T bits of one row of two for each: R denominators, then R·v numerators; where no
    bit changes the attention, it alone, which is added times what is seen of the bit."""

    zero: NDArray[Any]  # what a position adds if its bit is 0, shape (T, C)
    one: NDArray[Any]  # what it adds if its bit is 1; the same array where no bit changes it
    cls: NDArray[Any]  # what every input has, from the tokens of readers: shape (C,)
    readers: NDArray[Any]  # e of every read on these tokens, shape (readers, R)
    output: NDArray[Any]  # W_C of the first block, shape (H, v, features)
    # the largest |v|, in the units of the features
    largest: float = 1.0
    # what is seen of a bit that is 0 and of one that is 1, (T,), where no bit changes the attention
    seen: tuple[NDArray[Any], NDArray[Any]] | None = None

    @property
    def n_reads(self) -> int:
        """R."""
        return self.readers.shape[1]

    @property
    def fixed(self) -> NDArray[Any] | None:
        """The attention of every read on the bits, (T, R), where no bit changes it."""
        return None if self.seen is None else self.zero

    def difference(self, which: Any = slice(None)) -> NDArray[Any]:
        """What bits change when they turn 1."""
        return self.one[which] - self.zero[which]

    @cached_property
    def _turned(self) -> NDArray[Any]:
        """What is seen more of bits when they turn 1, where no bit changes the attention."""
        assert self.seen is not None
        return self.seen[1] - self.seen[0]

    @cached_property
    def base(self) -> NDArray[Any]:
        """The sums of the string of zeros."""
        return self.cls + (self.zero.sum(axis=0) if self.seen is None else self.seen[0] @ self.zero)

    @cached_property
    def cancels(self) -> bool:
        """Whether base + bits @ difference would lose digits of denominators: large entries taken
        away again."""
        if self.seen is not None:
            return False
        reads = slice(0, self.n_reads)
        least = self.cls[reads] + np.minimum(self.zero[:, reads], self.one[:, reads]).sum(axis=0)
        return not (self.base[reads] <= MAX_CANCELLATION[self.zero.dtype.name] * least).all()

    def sums(self, rows: Any) -> NDArray[Any]:
        """Sums of each row of bits (m, T): an array, in blocks; or sparse in CSR form, at the cost
        of its ones where digits allow it."""
        sparse, length = not isinstance(rows, np.ndarray), len(self.zero)
        if sparse and not self.cancels:
            ones = rows.astype(self.zero.dtype)
            if self.seen is None:
                return self.base + ones @ self.difference()
            return self.base + ones.multiply(self._turned).tocsr() @ self.zero
        out = np.zeros((rows.shape[0], self.zero.shape[1]), dtype=self.zero.dtype)
        step = max(1, BLOCK_ENTRIES // (length if sparse else min(max(length, 1), BLOCK_POSITIONS)))
        for top in range(0, len(out), step):
            block = rows[top : top + step]
            block = block.toarray() if sparse else block
            for left in range(0, length, BLOCK_POSITIONS):
                here = slice(left, left + BLOCK_POSITIONS)
                if self.cancels:
                    part = self._chosen(block[:, here], here)
                elif self.seen is None:
                    part = block[:, here].astype(out.dtype) @ self.difference(here)
                else:
                    part = self._turned_sums(block[:, here].astype(out.dtype), here)
                out[top : top + step] += part
        return out + (self.cls if self.cancels else self.base)

    def _turned_sums(self, ones: NDArray[Any], here: slice) -> NDArray[Any]:
        """What these bits change in sums where no bit changes the attention: numbers that all bits
        have in common, -2, are multiplied last, which spares a pass over the bits."""
        turned = self._turned[here]
        if (turned == turned[0]).all():
            return turned[0] * (ones @ self.zero[here])
        return (ones * turned) @ self.zero[here]

    def outside_sums(self, indices: tuple[int, ...], rows: NDArray[Any]) -> NDArray[Any]:
        """Sums of each row of bits over all positions but ``indices``, without what every input
        has."""
        if self.seen is None:
            aside = np.delete(np.arange(len(self.zero)), list(indices))
            return self._among(aside).sums(rows[:, aside])
        blind = tuple(each.copy() for each in self.seen)  # a copy of the table would be large
        for each in blind:
            each[list(indices)] = 0
        return replace(self, cls=np.zeros_like(self.cls), seen=blind).sums(rows)

    def _among(self, places: NDArray[np.int64]) -> "Tables":
        """The same over these positions alone, without what every input has."""
        rows = self.zero[places], self.one[places], np.zeros_like(self.cls)
        return replace(self, zero=rows[0], one=rows[1], cls=rows[2])

    def settings_sums(self, indices: tuple[int, ...], settings: NDArray[np.uint8]) -> NDArray[Any]:
        """Sums for each setting of the bits in ``indices``, without the other positions."""
        return self.cls + self._chosen(settings, list(indices))

    def _chosen(self, bits: NDArray[np.uint8], which: list[int] | slice) -> NDArray[Any]:
        ones = bits.astype(self.zero.dtype)
        if self.seen is not None:
            return (self.seen[0][which] + ones * self._turned[which]) @ self.zero[which]
        return ones @ self.one[which] + (1 - ones) @ self.zero[which]

    def enumerate_sums(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Sums of ALL 2^T inputs in order, in blocks, each with the number of its first input.

        The first bit is most significant. The low half is enumerated once; the rest is additions.
        """
        low = min(ENUMERATED_BITS, len(self.zero))
        high = len(self.zero) - low
        ends = self._chosen(all_bits(low), slice(high, None))
        step = max(1, BLOCK_ENTRIES // (4 * ends.size))
        starts = self.cls + self._chosen(all_bits(high), slice(0, high))
        for first in range(0, len(starts), step):
            block = starts[first : first + step, None] + ends[None]
            yield first << low, block.reshape(-1, ends.shape[1])

    def read(self, rows: Any) -> NDArray[Any]:
        """Features of each row of bits (m, T), as the textbook's softmax gives them."""
        return self.features(self.sums(rows))

    def attention(self, bits: NDArray[Any]) -> NDArray[Any]:
        """What each read puts on every position and then on readers, for one input."""
        reads = slice(0, self.n_reads)
        chosen = np.where(bits[:, None] == 1, self.one[:, reads], self.zero[:, reads])
        exponentials = np.concatenate([chosen, self.readers]).T
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

    @cached_property
    def all_features(self) -> NDArray[Any]:
        """Features of all 2^T inputs, in order."""
        return np.concatenate([self.features(sums) for _, sums in self.enumerate_sums()])


def make_tables(
    zero: NDArray[Any],
    one: NDArray[Any],
    beside: NDArray[Any],
    seen: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    output: NDArray[Any],
) -> Tables:
    """Tables in the precision of the scores.

    Args:
        zero, one: scores of every read on bits that are 0 and 1, (T, R), which are written over;
            one array for both if no bit changes the attention.
        beside: scores on the tokens of readers, (readers, R).
        seen: what heads see of bits 0, of bits 1 and of readers, (tokens, H·v); one column where no
            bit changes the attention.
        output: W_C, (H, v, features).
    """
    fixed = zero is one
    # Every input has a score of at least this, so that its denominator is at least 1.
    shift = np.maximum((zero if fixed else np.minimum(zero, one)).max(axis=0), beside.max(axis=0))
    if zero.dtype == np.float64:  # scores that float32 loses are float32's own failure
        refuse_scores(float((np.maximum(zero.max(axis=0), one.max(axis=0)) - shift).max()))
    on_readers = np.exp(beside - shift)
    for scores in (zero,) if fixed else (zero, one):
        scores -= shift
        np.exp(scores, out=scores)
    most = largest_of(float(np.abs(each).max()) for each in seen)
    largest = most * largest_of(1.0, float(np.abs(output).sum(axis=1).max()))
    if fixed:
        total = zero.sum(axis=0) + on_readers.sum(axis=0)
        zero /= total
        on_readers /= total
        every = seen[2][:, 0] @ on_readers
        return Tables(
            zero, zero, every, on_readers, output, largest, (seen[0][:, 0], seen[1][:, 0])
        )

    def entries(weights: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
        split = values.reshape(len(values), -1, output.shape[1])
        numerators = (weights[..., None] * split).reshape(len(values), -1)
        return np.concatenate([weights, numerators], axis=1)

    rows = [entries(*each) for each in zip((zero, one, on_readers), seen, strict=True)]
    return Tables(rows[0], rows[1], rows[2].sum(axis=0), on_readers, output, largest)

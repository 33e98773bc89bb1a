"""All positions at which a function fits a sample: depth first, 64 samples at a time.

A prefix of positions cuts the sample into cells, one per different rest of the function. Where the
rest is constant, the labels of the cell are right or wrong whatever the other positions are; a
prefix with too many wrong ones is left. For AND this keeps the positions that are 1 in all positive
samples, for majority the pairs that are never equal with the other label.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

CHUNK = 2**15  # prefixes that are extended together: their words stay in the cache
MIN_VISITS = 1000  # what a step costs however few its prefixes are

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]


class NotCountedError(Exception):
    """The search was given up; says why."""


def pack(bits: NDArray[np.uint8]) -> Words:
    """Rows of bits as rows of 64-bit words, zeros at the end.

    >>> pack(np.array([[1, 0, 0, 0, 0, 0, 0, 1]], np.uint8)).view(np.uint8)[0, :2].tolist()
    [129, 0]
    """
    packed = np.packbits(bits, axis=-1)
    padding = [(0, 0)] * (packed.ndim - 1) + [(0, -packed.shape[-1] % 8)]
    return np.ascontiguousarray(np.pad(packed, padding)).view(np.uint64)


@dataclass(frozen=True)
class PackedSample:
    """A sample as words over its rows: one row of words per position, one for the labels."""

    columns: Words
    labels: Words
    rows: Words  # ones where there is a row

    @classmethod
    def of(cls, bits: NDArray[np.uint8], labels: NDArray[np.uint8]) -> "PackedSample":
        """Pack bits of shape (m, T) and labels of shape (m,)."""
        return cls(pack(bits.T), pack(labels), pack(np.ones_like(labels)))

    def where(self, position: int | slice, value: int) -> Words:
        """The rows whose bit is ``value``."""
        column = self.columns[position]
        return column if value else self.rows & ~column

    def wrong(self, prediction: int) -> Words:
        """The rows that have the other label."""
        return self.rows & ~self.labels if prediction else self.labels


@dataclass
class SearchState:
    """State of a search: the sets found so far, and the limit at which it gives up."""

    max_errors: int
    limit: int
    max_visits: int
    order: list[int] = field(default_factory=list)
    visits: int = 0
    count: int = 0
    listed: int = 0
    sets: list[Integers] = field(default_factory=list)

    def visit(self, n_prefixes: int) -> None:
        """Count the work of a step, in prefixes looked at; give up beyond ``max_visits``."""
        self.visits += max(n_prefixes, MIN_VISITS)
        if self.visits > self.max_visits:
            raise NotCountedError(f"it takes more than {self.max_visits} visits of partial sets")

    def add(self, prefixes: Integers, keep: Integers, last: int) -> None:
        """Some of the prefixes, shape (s−1, P), with their last position."""
        self.count += len(keep)
        room = min(self.limit - self.listed, len(keep))
        if room > 0:
            sets = np.vstack([prefixes[:, keep[:room]], np.full(room, last)]).T
            self.add_sets(sets[:, self.order])

    def add_sets(self, sets: Integers) -> None:
        """List sets of shape (k, s)."""
        self.sets.append(sets)
        self.listed += len(sets)


@dataclass(frozen=True)
class _Prefixes:
    """Prefixes of k positions, sorted by the last one; the prefix is the last axis of all arrays.

    ``cells[r]`` are the rows in which the rest of the function is ``rests[r]``, of those rests that
    are not constant; ``errors`` the wrong labels in the others.
    """

    positions: Integers  # (k, P)
    cells: Words  # (R, W, P)
    rests: tuple[bytes, ...]
    errors: Integers  # (P,)

    def before(self, position: int) -> int:
        """Return the number of prefixes that end before a position."""
        level, size = self.positions.shape
        return int(np.searchsorted(self.positions[-1], position)) if level else size


def search(
    table: NDArray[np.uint8], sample: PackedSample, state: SearchState, order: tuple[int, ...]
) -> None:
    """Add every increasing tuple of positions at which the function with this table (first bit most
    significant, not constant) is wrong at most ``state.max_errors`` times, listed in ``order``."""
    state.order = list(order)
    s = len(table).bit_length() - 1
    allowed = _allowed_positions(table.reshape((2,) * s), sample, state.max_errors)
    start = _Prefixes(
        np.zeros((0, 1), np.int64), sample.rows[None, :, None], (table.tobytes(),), np.zeros(1, int)
    )
    _extend(start, allowed, sample, state)


def _allowed_positions(
    cube: NDArray[np.uint8], sample: PackedSample, max_errors: int
) -> list[Integers]:
    """For each bit of the function the positions at which it alone does not force more errors."""
    found = []
    for axis in range(cube.ndim):
        errors = np.zeros(len(sample.columns), np.int64)
        for value in (0, 1):
            rest = np.take(cube, value, axis)
            if (rest == rest.flat[0]).all():
                wrong = sample.where(slice(None), value) & sample.wrong(int(rest.flat[0]))
                errors += np.bitwise_count(wrong).sum(axis=1, dtype=np.int64)
        found.append(np.flatnonzero(errors <= max_errors))
    return found


def _extend(
    prefixes: _Prefixes, allowed: list[Integers], sample: PackedSample, state: SearchState
) -> None:
    if len(prefixes.positions) == len(allowed) - 1:
        _finish(prefixes, allowed[-1], sample, state)
        return
    waiting: list[_Prefixes] = []
    n_waiting = 0
    for position in allowed[len(prefixes.positions)]:
        n_before = prefixes.before(position)
        if not n_before:
            continue
        state.visit(n_before)
        waiting.append(_children(prefixes, n_before, int(position), sample, state.max_errors))
        n_waiting += len(waiting[-1].errors)
        if n_waiting > CHUNK:
            _extend(_joined(waiting), allowed, sample, state)
            waiting, n_waiting = [], 0
    if n_waiting:
        _extend(_joined(waiting), allowed, sample, state)


def _children(
    prefixes: _Prefixes, n_before: int, position: int, sample: PackedSample, max_errors: int
) -> _Prefixes:
    """The first ``n_before`` prefixes with one more position, where they are still right."""
    errors = prefixes.errors[:n_before].copy()
    cells: dict[bytes, Words] = {}
    for rest, rows in zip(prefixes.rests, prefixes.cells[..., :n_before], strict=True):
        for value in (0, 1):
            half = len(rest) // 2
            smaller = rest[half:] if value else rest[:half]
            cell = rows & sample.where(position, value)[:, None]
            if smaller == smaller[:1] * half:
                wrong = cell & sample.wrong(smaller[0])[:, None]
                errors += np.bitwise_count(wrong).sum(axis=0, dtype=np.int64)
            else:
                cells[smaller] = cells[smaller] | cell if smaller in cells else cell
    keep = np.flatnonzero(errors <= max_errors)
    positions = np.empty((len(prefixes.positions) + 1, len(keep)), np.int64)
    positions[:-1], positions[-1] = prefixes.positions[:, keep], position
    left = np.stack(list(cells.values()))[..., keep]
    return _Prefixes(positions, left, tuple(cells), errors[keep])


def _joined(parts: list[_Prefixes]) -> _Prefixes:
    return _Prefixes(
        np.concatenate([part.positions for part in parts], axis=1),
        np.concatenate([part.cells for part in parts], axis=2),
        parts[0].rests,  # the same for all: they depend on the table only
        np.concatenate([part.errors for part in parts]),
    )


def _finish(
    prefixes: _Prefixes, positions: Integers, sample: PackedSample, state: SearchState
) -> None:
    """The last position: its bit, or its negation, is the prediction in each cell.

    Wrong are the rows of (V & c) ^ U: V all cells, c the bit, U the rows of V where the label is 1,
    or else 0 if the prediction is the negation.
    """
    negated = [rest == b"\1\0" for rest in prefixes.rests]
    every = np.bitwise_or.reduce(prefixes.cells, axis=0)
    offset = np.bitwise_or.reduce(prefixes.cells[negated], axis=0) if any(negated) else 0
    offset = offset ^ (every & sample.labels[:, None])
    for position in positions:
        n_before = prefixes.before(position)
        if not n_before:
            continue
        state.visit(n_before)
        column = sample.columns[position]
        errors, keep = prefixes.errors[:n_before], np.arange(n_before)
        for word, bit in enumerate(column):
            left = keep if word else slice(n_before)  # few are left after the first word
            wrong = (every[word, left] & bit) ^ offset[word, left]
            errors = errors + np.bitwise_count(wrong)
            fits = np.flatnonzero(errors <= state.max_errors)
            keep, errors = keep[fits], errors[fits]
            if not len(fits):
                break
        else:
            state.add(prefixes.positions, keep, int(position))

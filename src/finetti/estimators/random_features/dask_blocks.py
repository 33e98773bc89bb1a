"""Rows that come in chunks: from memory, a mapped file, an iterator, or many machines."""

import abc
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from finetti.core.errors import InputError

MAPPED_ROWS = 4096  # of a mapped file that are read at once

Step = Callable[[Any, "Chunk"], Any]
Merge = Callable[[Any, Any], Any]


class Chunk(NamedTuple):
    """Some rows, as `fit` takes them."""

    X: Any
    y: Any
    sample_weight: Any = None
    query: Any = None
    mask: Any = None


class Chunks(abc.ABC):
    """All rows, chunk by chunk.

    Attributes:
        is_read_once: whether the rows are gone after one pass.
        n_rows: how many, where this is known beforehand.
    """

    is_read_once: bool = False
    n_rows: int | None = None

    @abc.abstractmethod
    def first(self) -> Chunk:
        """One of them, or its first row, to see what they are like; it is not used up."""

    @abc.abstractmethod
    def fold(self, step: Step, merge: Merge) -> Any:
        """``step(None, chunk)`` of the first, then ``step(result, chunk)`` of all others.

        Or, where chunks lie apart, ``step(None, chunk)`` of each, and ``merge`` of the results.
        """


class LocalChunks(Chunks):
    """One after the other, in this process."""

    def __init__(self, chunks: Iterable[Any], n_rows: int | None = None):
        self.n_rows = n_rows
        self.is_read_once = isinstance(chunks, Iterator)
        self._chunks = chunks

    def first(self) -> Chunk:
        """Put back in front where chunks can be read once."""
        iterator = iter(self._chunks)
        try:
            chunk = next(iterator)
        except StopIteration:
            raise InputError("There is no chunk to fit to: `X` yields nothing.") from None
        if self.is_read_once:
            self._chunks = itertools.chain([chunk], iterator)
        return _as_chunk(chunk)

    def fold(self, step: Step, merge: Merge) -> Any:
        """In one pass."""
        return functools.reduce(step, map(_as_chunk, self._chunks), None)


class MappedRows:
    """Slices of arrays, read when they are asked for, as often as they are."""

    def __init__(self, chunk: Chunk):
        self.arrays = chunk

    def __iter__(self) -> Iterator[Chunk]:
        for start in range(0, len(self.arrays.X), MAPPED_ROWS):
            rows = slice(start, start + MAPPED_ROWS)
            yield Chunk(*(None if each is None else np.asarray(each[rows]) for each in self.arrays))


class DaskChunks(Chunks):
    """Where Dask has them: one task for each chunk, and a tree of merges; sums alone travel."""

    def __init__(self, chunks: list[Any]):
        self._chunks = chunks

    def first(self) -> Chunk:
        """Its first row."""
        from dask.delayed import delayed

        return delayed(_first_row)(self._chunks[0]).compute()

    def fold(self, step: Step, merge: Merge) -> Any:
        """By the scheduler in use: that of a distributed client, or threads."""
        from dask.delayed import delayed

        # As an argument and not as the function: the model, or all eigenvectors, is one node of the
        # graph and sent once, not with every chunk.
        call, step_node, merge_node = delayed(_call), delayed(step), delayed(merge)
        chunks = [delayed(_as_chunk)(chunk) for chunk in self._chunks]
        parts = [call(step_node, None, chunk) for chunk in chunks]
        while len(parts) > 1:
            pairs = itertools.zip_longest(parts[::2], parts[1::2])
            parts = [one if other is None else merge_node(one, other) for one, other in pairs]
        return parts[0].compute()


def as_chunks(chunk: Chunk, owner: str) -> Chunks | None:
    """The rows of what is not simply in memory; None for the rest."""
    X = chunk.X
    if _is_dask(X, "dask.array", "Array"):
        return _dask_array(chunk, owner)
    if isinstance(X, np.memmap):
        return LocalChunks(MappedRows(chunk), len(X))
    if chunk.y is not None or hasattr(X, "shape") or not isinstance(X, Iterable):
        return None
    if any(each is not None for each in chunk[2:]):
        raise InputError(
            f"{owner} takes weights with each chunk, (X, y, sample_weight), and the query as token "
            "0 of each set. Got `sample_weight`, `query` or `mask` beside chunks."
        )
    if isinstance(X, list) and X and all(_is_dask(each, "dask.delayed", "Delayed") for each in X):
        return DaskChunks(X)
    if isinstance(X, list | tuple) and not (X and all(map(_is_pair, X))):
        return None
    return LocalChunks(X)


def _is_dask(value: Any, module: str, name: str) -> bool:
    """Without importing Dask: who has such an object has imported it."""
    found = sys.modules.get(module)
    return found is not None and isinstance(value, getattr(found, name))


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) in (2, 3) and hasattr(value[1], "__len__")


def _as_chunk(value: Any) -> Chunk:
    if isinstance(value, Chunk):
        return value
    if not _is_pair(value):
        got = f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
        raise InputError(f"A chunk must be (X, y) or (X, y, sample_weight). Got {got} instead.")
    return Chunk(*value)


def _call(function: Any, *arguments: Any) -> Any:
    return function(*arguments)


def _first_row(value: Any) -> Chunk:
    chunk = _as_chunk(value)
    return Chunk(*(None if each is None else each[:1] for each in chunk))


def _dask_array(chunk: Chunk, owner: str) -> DaskChunks:
    """Blocks of rows; the others cut as X is."""
    import dask.array
    from dask.delayed import delayed

    X, rest = chunk.X, chunk[1:]
    if chunk.y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None.")
    if X.ndim < 2 or np.isnan(X.shape[0]):
        raise InputError(
            f"{owner} takes a Dask array (n, N, d) or (n, N·d) whose chunks have known sizes. Got "
            f"shape {X.shape}; `X.compute_chunk_sizes()` finds them."
        )
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    columns = [X.to_delayed().ravel()]
    for each in rest:
        if each is None:
            columns.append([None] * len(columns[0]))
            continue
        if not _is_dask(each, "dask.array", "Array"):
            each = dask.array.asarray(np.asarray(each))
        if each.shape[0] != X.shape[0]:
            raise ValueError(
                "Found input variables with inconsistent numbers of samples: "
                f"[{X.shape[0]}, {each.shape[0]}]"
            )
        cut = each.rechunk({0: X.chunks[0]} | dict.fromkeys(range(1, each.ndim), -1))
        columns.append(cut.to_delayed().ravel())
    make = delayed(Chunk)
    return DaskChunks([make(*parts) for parts in zip(*columns, strict=True)])

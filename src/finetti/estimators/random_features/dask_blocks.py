"""Dask arrays in `fit`: blocks of rows are added up where they lie, and sums alone travel."""

import itertools
import operator
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from finetti.core.errors import InputError


class Block(NamedTuple):
    """Some rows, as `fit` takes them."""

    X: Any
    y: Any
    sample_weight: Any = None
    query: Any = None
    mask: Any = None


def is_dask_array(value: Any) -> bool:
    """Whether it is one; who has such an array has imported Dask."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(value, module.Array)


class DaskRows:
    """Rows of Dask arrays, all cut as ``rows.X`` is; columns are not cut.

    Attributes:
        n_rows: how many.
    """

    def __init__(self, rows: Block, owner: str):
        import dask.array

        X = rows.X
        if X.ndim < 2 or np.isnan(X.shape[0]):
            raise InputError(
                f"{owner} takes a Dask array (n, N, d) or (n, N·d) whose chunks have known sizes. "
                f"Got shape {X.shape}; `X.compute_chunk_sizes()` finds them."
            )
        self.n_rows = X.shape[0]
        cut = []
        for each in rows:
            if each is not None:
                each = each if is_dask_array(each) else dask.array.from_array(np.asarray(each))
                if each.shape[0] != self.n_rows:
                    raise ValueError(
                        "Found input variables with inconsistent numbers of samples: "
                        f"[{self.n_rows}, {each.shape[0]}]"
                    )
                each = each.rechunk({0: X.chunks[0]} | dict.fromkeys(range(1, each.ndim), -1))
            cut.append(each)
        self._rows = Block(*cut)

    def first(self) -> Block:
        """The first row, computed."""
        return self._computed(slice(1))

    def whole(self) -> Block:
        """All rows, computed."""
        return self._computed(slice(None))

    def _computed(self, rows: slice) -> Block:
        return Block(*(each if each is None else each[rows].compute() for each in self._rows))

    def classes(self) -> Any:
        """The different values of y, computed."""
        import dask.array

        return dask.array.unique(self._rows.y).compute()

    def add_up(self, step: Callable[[Block], Any]) -> Any:
        """``step(block)`` of every block, added up in a tree by the scheduler in use."""
        from dask.delayed import delayed

        columns = [itertools.repeat(None) if a is None else a.to_delayed().flat for a in self._rows]
        # ``step`` as an argument and not as the function: the model, or all eigenvectors, is one
        # node of the graph and sent once, not with every block.
        call, node, make, add = map(delayed, (_call, step, Block, operator.iadd))
        parts = [call(node, make(*columns)) for columns in zip(*columns, strict=False)]
        while len(parts) > 1:
            pairs = itertools.zip_longest(parts[::2], parts[1::2])
            parts = [one if other is None else add(one, other) for one, other in pairs]
        return parts[0].compute()


def _call(step: Callable[[Block], Any], block: Block) -> Any:
    return step(block)

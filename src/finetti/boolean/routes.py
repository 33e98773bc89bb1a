"""Which lemma serves a rule: symmetric rules need one feature, others one per bit."""

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.base import Embedding
from finetti.boolean.functions.symmetric import Symmetric
from finetti.boolean.functions.truth_table import TruthTable
from finetti.boolean.network.lookup import CORNERS


def is_scalar_route(function: Symmetric | TruthTable) -> bool:
    """Whether a feature of the number of ones is enough (Lemma B.5), or not (Lemma B.6)."""
    return isinstance(function, Symmetric)


def lookup_values(function: Symmetric | TruthTable) -> NDArray[np.float64]:
    """The value at each point of the lookup: s + 1 counts, or 2^s settings."""
    return function.profile() if isinstance(function, Symmetric) else function.table()


def lookup_bytes(function: Symmetric | TruthTable, embedding: Embedding) -> int:
    """What the largest matrix of the lookup takes in float64.

    Bumps are shared, one for every level of a coordinate; points of value 0 have no unit.
    """
    sparsity = function.sparsity
    if isinstance(function, Symmetric):
        return 8 * len(CORNERS) * (sparsity + 1)
    n_bumps = sparsity * embedding.n_levels(sparsity)
    n_points = max(1, int(np.count_nonzero(function.table())))
    return 8 * len(CORNERS) * n_bumps * 2 * n_points

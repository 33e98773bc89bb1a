"""Measured norms beside their bounds, and the covering number of the class with these norms.

The classes grow with log T: of the heads that can compute such rules there are few (Corollary 4.4
for one head, Lemma A.12 for several, edelman2022). Positions count as fixed: the cost of trained
ones, linear in T, is not in it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.certificate import NormBound
from finetti.boolean.embeddings.token_embedding import HeadBounds
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.network.lookup import Lookup
from finetti.bounds.sparse_variables.array_norms import head_norms
from finetti.bounds.sparse_variables.head_class import HeadClass, MultiHeadClass, SoftmaxHeadNorms
from finetti.bounds.sparse_variables.transformer_theorems import HeadCovering, MultiHeadCovering
from finetti.bounds.value import BoundValue, Sample
from finetti.core.numerics.extremes import largest_of

N_SAMPLES = 1000  # m, how many sequences the covers are for


def head_norm_rows(
    at: str, sizes: list[NDArray[np.float64]], limits: HeadBounds, sources: tuple[str, ...]
) -> list[NormBound]:
    """W_Q, W_K, W_V and W_C of one block: of the heads the one above its bound, if any, else the
    largest. ``sizes`` are ‖W‖_F of every head, ``sources`` where the bounds come from."""
    found = []
    names = ("W_Q", "W_K", "W_V", "W_C")
    for name, values, bounds, source in zip(names, sizes, limits[:4], sources, strict=True):
        heads = [
            NormBound(f"‖{name}‖_F{at}", float(size), float(bound), source)
            for size, bound in np.broadcast(values, bounds)
        ]
        found.append(max(heads, key=lambda norm: (not norm.within, norm.value)))
    return found


def lookup_norms(
    lookup: Lookup, radius: float, tolerance: float, largest: float, n_marks: int = 0
) -> tuple[NormBound, ...]:
    """Largest entries, biases included: max(1, B + 2δ)/δ, max(1, d), max|f|   (Lemma B.8).

    Args:
        lookup: the network.
        radius: B, the largest coordinate of a point.
        tolerance: δ.
        largest: max|f|.
        n_marks: rows of marks but one: of all marks a unit sees one.
    """
    sizes = {name: float(np.abs(array).max()) for name, array in lookup.arrays.items()}
    inner = largest_of(1.0, radius + 2 * tolerance) / tolerance
    rows = [("‖W_1‖_∞", largest_of(sizes["inner"], sizes["inner_bias"]), inner)]
    if lookup.middle is not None:
        middle = largest_of(sizes["middle"], sizes["middle_bias"])
        rows.append(("‖W_2‖_∞", middle, float(len(lookup.inner) - n_marks)))
    rows.append(("‖w‖_∞", sizes["outer"], largest))
    return tuple(NormBound(*row, "Lemma B.8") for row in rows)


def head_covering(
    network: Network,
    matrices: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    resolution: float,
    query_norm: float,
    input_norm: float,
    class_token: bool = False,
) -> BoundValue:
    """log N_∞ of all heads with the norms of one block, at the resolution ε that its lookup needs.

    ``matrices`` are, per head, the largest row of W_QK (of rank 1), W_V and W_C.
    """
    rows, value, output = matrices
    norms = [head_norms(*each) for each in zip(rows, value, output, strict=True)]
    common: dict[str, Any] = {
        "width": network.width,
        "head_dimension": value.shape[2],
        "query_norm": query_norm,
        "class_token": class_token,
    }
    sample = Sample(N_SAMPLES, network.n_tokens, input_norm=input_norm)
    if len(norms) == 1 and class_token:
        return HeadCovering(HeadClass(**norms[0], **common), resolution).evaluate(sample)
    heads = tuple(SoftmaxHeadNorms(**each) for each in norms)
    return MultiHeadCovering(MultiHeadClass(heads=heads, **common), resolution).evaluate(sample)

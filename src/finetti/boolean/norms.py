"""Every norm of the compiled weights beside the bound that its lemma gives, and the other side of
the coin: how large the classes are that heads with these norms come from.

The classes grow with log T: of the heads that can compute such rules there are few (Corollary 4.4
for one head, Lemma A.12 for several, edelman2022). Positions count as fixed: the cost of trained
ones, linear in T, is not in it.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from finetti.boolean.embeddings.base import Relevant, scale_bound
from finetti.boolean.embeddings.positions import Indices
from finetti.boolean.findings import NormBound
from finetti.boolean.network.gate_weights import GateWeights
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.head_class import HeadClass, MultiHeadClass, SoftmaxHeadNorms
from finetti.bounds.sparse_variables.networks import HeadCovering, MultiHeadCovering
from finetti.bounds.value import BoundValue
from finetti.core.norms import frobenius, max_column_norm, spectral

VALUE_NORM = math.sqrt(2)  # of E_0 − E_1
N_SAMPLES = 1000  # m, how many sequences the covers are for


def head_norm_bounds(
    head: HeadWeights, indices: Indices, scalar: bool, margin: float
) -> tuple[NormBound, ...]:
    """Norms of W_Q, W_K, W_V, W_C, the largest over the heads, against the embedding's lemma."""
    embedding, positions = head.embedding, head.positions
    geometry = embedding.geometry(positions, indices, scalar)
    bounds = embedding.bounds(Relevant(positions, geometry, indices, scalar), margin)
    source = f"Lemma {embedding.lemma}" + ("" if bounds.prior else ", measured gap")
    rows = (
        ("‖W_Q‖_F", head.query, bounds.query, source + _as_stated(margin)),
        ("‖W_K‖_F", head.key, bounds.key, source),
        ("‖W_V‖_F", head.value, bounds.value, source),
        ("‖W_C‖_F", head.output, bounds.output, source),
    )
    found = [
        NormBound(name, float(np.max(frobenius(matrix))), bound, said)
        for name, matrix, bound, said in rows
    ]
    extra = embedding.position_bounds(positions, indices)
    return (*found, *(NormBound(*row, source) for row in extra))


def _as_stated(margin: float) -> str:
    return "" if margin == 1 else f", margin {margin:g} as stated"


def gate_norm_bounds(
    network: GateWeights, indices: Indices, margin: float
) -> tuple[NormBound, ...]:
    """The norms of all blocks, the largest over the heads of each (one above its bound, if any).

    One head serves all gates of its level, each with a column of W_Q and W_K of its own, so the
    squares of the lemma's bounds add up over the gates. In the lookup a gate's mark q_g counts as
    one coordinate more.
    """
    found, lemma = [], f"Lemma {network.embedding.lemma}"
    for number, block in enumerate(network.blocks, start=1):
        at, per_gate = f", block {number}", f"{lemma}, per gate"
        per_gate += ", measured gap" if (block.gaps < 1).any() else ""
        squares = np.zeros((4, block.n_heads))
        for k, read in enumerate(block.reads):
            apart = network.embedding.separation(len(read.sources), True)
            gap = float(block.gaps[k])
            squares[:, read.head] += (
                np.square(block.scales[k]),
                scale_bound(network.n_tokens, apart, margin, gap) ** 2,
                float(block.keys[k] @ block.keys[k]),
                float(block.spans[k]),
            )
        query, query_bound, key, key_bound = np.sqrt(squares)
        for name, sizes, bounds, source in (
            ("W_Q", query, query_bound, per_gate + _as_stated(margin)),
            ("W_K", key, key_bound, per_gate),
        ):
            heads = [
                NormBound(f"‖{name}‖_F{at}", float(size), float(bound), source)
                for size, bound in zip(sizes, bounds, strict=True)
            ]
            found.append(max(heads, key=lambda norm: (not norm.within, norm.value)))
        found.append(NormBound(f"‖W_V‖_F{at}", VALUE_NORM, 2.0, lemma))
        found.append(NormBound(f"‖W_C‖_F{at}", 1.0, 1.0, lemma))
        delta = network.embedding.tolerance(block.most_sources, True)
        lookup = lookup_norms(block.lookup, 1.0, delta, 1.0, len(block.gates) - 1)
        found += [replace(norm, name=f"{norm.name}{at}") for norm in lookup]
    extra = network.embedding.position_bounds(network.positions, indices)
    return (*found, *(NormBound(*row, lemma) for row in extra))


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
    inner = max(1.0, radius + 2 * tolerance) / tolerance
    rows = [("‖W_1‖_∞", max(sizes["inner"], sizes["inner_bias"]), inner)]
    if lookup.middle is not None:
        middle = max(sizes["middle"], sizes["middle_bias"])
        rows.append(("‖W_2‖_∞", middle, float(len(lookup.inner) - n_marks)))
    rows.append(("‖w‖_∞", sizes["outer"], largest))
    return tuple(NormBound(*row, "Lemma B.8") for row in rows)


def _norms(head: HeadWeights, index: int) -> dict[str, float]:
    # W_QK = W_Q W_Kᵀ has rank 1 here, and is d × d: its rows are those of W_Q times ‖W_K‖.
    query, key = head.query[index], head.key[index]
    rows = float(np.abs(query).max()) * float(np.linalg.norm(key))
    return {
        "value_norm": float(spectral(head.value[index])),
        "value_column_norm": float(max_column_norm(head.value[index])),
        "score_row_norm": rows,
        "out_lipschitz": float(spectral(head.output[index])),
    }


def head_capacity(head: HeadWeights, resolution: float) -> BoundValue:
    """log N_∞ of all heads with the compiled norms, at the resolution ε that the lookup needs."""
    sample = Sample(N_SAMPLES, head.positions.count, input_norm=head.embedding.token_norm)
    sizes: dict[str, Any] = {
        "width": head.width,
        "head_dimension": head.value.shape[2],
        "query_norm": 1.0,
        "class_token": True,
    }
    if head.n_heads == 1:
        single = HeadClass(**_norms(head, 0), **sizes)
        return HeadCovering(single, resolution).evaluate(sample)
    heads = tuple(SoftmaxHeadNorms(**_norms(head, each)) for each in range(head.n_heads))
    return MultiHeadCovering(MultiHeadClass(heads=heads, **sizes), resolution).evaluate(sample)


def block_capacities(network: GateWeights) -> tuple[BoundValue, ...]:
    """The same for the heads of every block.

    Tokens are no longer than √2 before the first block. Every block adds a feature of at most 1 per
    head to a token, and e_0 or e_1 to that of a gate.
    """
    found, added = [], 0
    for block in network.blocks:
        rows = np.zeros(block.n_heads)
        for read, key, scale in zip(block.reads, block.keys, block.scales, strict=True):
            size = abs(float(scale)) * float(np.linalg.norm(key))
            rows[read.head] = max(rows[read.head], size)  # W_Q has one row per gate
        longest = math.sqrt(2 + added + (added > 0))
        values = {"value_norm": VALUE_NORM, "value_column_norm": VALUE_NORM}
        heads = tuple(SoftmaxHeadNorms(**values, score_row_norm=float(row)) for row in rows)
        sizes: dict[str, Any] = {"width": network.width, "head_dimension": 1}
        layer = MultiHeadClass(heads=heads, query_norm=longest, **sizes)
        resolution = network.embedding.tolerance(block.most_sources, True)
        sample = Sample(N_SAMPLES, network.n_tokens, input_norm=longest)
        found.append(MultiHeadCovering(layer, resolution).evaluate(sample))
        added += block.n_heads
    return tuple(found)

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
from numpy.typing import NDArray

from finetti.boolean.domain import all_values
from finetti.boolean.embeddings.token_embedding import HeadBounds, Relevant, scale_bound
from finetti.boolean.findings import NormBound
from finetti.boolean.language.families import Symmetric
from finetti.boolean.language.rule import BooleanFunction
from finetti.boolean.network.block import Block
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.network.lookup import Lookup
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.array_norms import head_norms
from finetti.bounds.sparse_variables.head_class import HeadClass, MultiHeadClass, SoftmaxHeadNorms
from finetti.bounds.sparse_variables.transformer_theorems import HeadCovering, MultiHeadCovering
from finetti.bounds.value import BoundValue
from finetti.core.linalg.matrix_norms import frobenius
from finetti.core.numerics.extremes import largest_of

N_SAMPLES = 1000  # m, how many sequences the covers are for


def norm_bounds(
    network: Network, rule: BooleanFunction, tolerances: list[float], margin: float
) -> tuple[NormBound, ...]:
    """The norms of all blocks beside the bounds of the embedding's lemma, the largest over the
    heads of each (one above its bound, if any); ``tolerances`` are δ of the lookups."""
    by_gates, embedding = bool(network.gates), network.embedding
    lemma = f"Lemma {embedding.lemma}"
    stated = "" if margin == 1 else f", margin {margin:g} as stated"
    extra = embedding.position_bounds(network.positions, tuple(sorted(rule.indices)))
    radius, largest = _points(network, rule)
    found = []
    for number, (block, delta) in enumerate(zip(network.blocks, tolerances, strict=True), start=1):
        at = f", block {number}" * by_gates
        limits = (_gate_limits if by_gates else _cls_limits)(network, block, rule, margin)
        said = lemma + ", per gate" * by_gates + ", measured gap" * (not limits.prior)
        plain = lemma if by_gates else said
        value, output = block.values(network.positions.width)
        for name, sizes, bounds, source in (
            ("W_Q", _per_head(block, frobenius(block.query)), limits.query, said + stated),
            ("W_K", _per_head(block, frobenius(block.key)), limits.key, said),
            ("W_V", frobenius(value), limits.value, plain),
            ("W_C", frobenius(output), limits.output, plain),
        ):
            heads = [
                NormBound(f"‖{name}‖_F{at}", float(size), float(bound), source)
                for size, bound in np.broadcast(sizes, bounds)
            ]
            found.append(max(heads, key=lambda norm: (not norm.within, norm.value)))
        found += [] if by_gates else [NormBound(*row, said) for row in extra]
        lookup = lookup_norms(block.lookup, radius, delta, largest, len(block.readers) - 1)
        found += [replace(norm, name=f"{norm.name}{at}") for norm in lookup]
    return (*found, *(NormBound(*row, lemma) for row in extra if by_gates))


def _per_head(block: Block, sizes: NDArray[np.floating]) -> NDArray[np.float64]:
    """‖W‖_F of every head. One head serves all readers of its block, each with a column of W_Q and
    W_K of its own, so that squares add up over them."""
    return np.sqrt(np.bincount([read.head for read in block.reads], np.square(sizes)))


def _cls_limits(network: Network, block: Block, rule: BooleanFunction, margin: float) -> HeadBounds:
    """The lemma's bounds for a rule at [CLS]."""
    embedding, positions, scalar = network.embedding, network.positions, isinstance(rule, Symmetric)
    geometry = embedding.geometry(positions, rule.indices, scalar)
    return embedding.bounds(Relevant(positions, geometry, rule.indices, scalar), margin)


def _gate_limits(
    network: Network, block: Block, rule: BooleanFunction, margin: float
) -> HeadBounds:
    """The lemma's bounds for the reads of gates."""
    apart = [network.embedding.separation(len(read.sources), True) for read in block.reads]
    queries = [
        scale_bound(network.n_tokens, each, margin, float(gap))
        for each, gap in zip(apart, block.gaps, strict=True)
    ]
    limits = _per_head(block, np.array(queries)), _per_head(block, np.sqrt(block.spans))
    return HeadBounds(*limits, 2.0, 1.0, prior=not (block.gaps < 1).any())


def _points(network: Network, rule: BooleanFunction) -> tuple[float, float]:
    """The largest coordinate of a point of the lookup, and its largest value."""
    if network.gates:
        return 1.0, 1.0
    ends = np.repeat(np.array([[0], [1]], dtype=np.uint8), rule.sparsity, axis=1)
    points = network.embedding.points(ends, isinstance(rule, Symmetric))  # is there for all 0 or 1
    return float(np.abs(points).max()), float(np.abs(all_values(rule)).max())


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


def head_capacities(network: Network, resolutions: list[float]) -> tuple[BoundValue, ...]:
    """log N_∞ of all heads with the norms of each block, at the resolution ε that its lookup needs.

    Tokens beside gates are no longer than √2 before the first block. Every block adds a feature of
    at most 1 per head to a token, and e_0 or e_1 to that of a gate.
    """
    found, added = [], 0
    for block, resolution in zip(network.blocks, resolutions, strict=True):
        value, output = block.values(network.positions.width)
        # W_QK = W_Q W_Kᵀ is d × d, and has rank 1 for a reader: rows of W_Q times ‖W_K‖.
        rows, sizes = np.zeros(block.n_heads), np.abs(block.query).max(axis=(1, 2))
        lengths = np.linalg.norm(block.key, axis=(1, 2))
        np.maximum.at(rows, [read.head for read in block.reads], sizes * lengths)
        norms = [head_norms(row, value[head], output[head]) for head, row in enumerate(rows)]
        longest = math.sqrt(2 + added + (added > 0)) if network.gates else 1.0
        common: dict[str, Any] = {
            "width": network.width,
            "head_dimension": value.shape[2],
            "query_norm": longest,
            "class_token": not network.gates,
        }
        length = longest if network.gates else network.embedding.token_norm
        sample = Sample(N_SAMPLES, network.n_tokens, input_norm=length)
        if len(norms) == 1 and not network.gates:
            covering = HeadCovering(HeadClass(**norms[0], **common), resolution)
        else:
            heads = tuple(SoftmaxHeadNorms(**each) for each in norms)
            covering = MultiHeadCovering(MultiHeadClass(heads=heads, **common), resolution)
        found.append(covering.evaluate(sample))
        added += block.n_heads
    return tuple(found)

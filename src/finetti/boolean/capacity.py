"""The other side of the coin: how large the classes are that compiled heads come from.

They grow with log T: of the heads that can compute such rules there are few (Corollary 4.4 for one
head, Lemma A.12 for several, edelman2022). Positions count as fixed: the cost of trained ones,
linear in T, is not in it.
"""

import math
from typing import Any

import numpy as np

from finetti.boolean.network.gate_weights import GateWeights
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.norms import VALUE_NORM
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.head_class import HeadClass, MultiHeadClass, SoftmaxHeadNorms
from finetti.bounds.sparse_variables.networks import HeadCovering, MultiHeadCovering
from finetti.bounds.value import BoundValue
from finetti.core.norms import max_column_norm, spectral

N_SAMPLES = 1000  # m, how many sequences the covers are for


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

"""How large the classes are that the blocks' heads come from."""

import math
from typing import TYPE_CHECKING

import numpy as np

from finetti.boolean.compose.norms import VALUE_NORM
from finetti.boolean.compose.recognition import tolerance
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.head_class import MultiHeadClass, SoftmaxHeadNorms
from finetti.bounds.sparse_variables.networks import MultiHeadCovering
from finetti.bounds.value import BoundValue

if TYPE_CHECKING:
    from finetti.boolean.compose.network import GateNetwork


def block_capacities(network: "GateNetwork", n_samples: int = 1000) -> tuple[BoundValue, ...]:
    """log N_∞ of the heads of every block, at the resolution δ that its lookup needs (Lemma A.12).

    Tokens are no longer than √2 before the first block. Every block adds a feature of at most 1 per
    head to a token, and e_0 or e_1 to that of a gate. BitPositions count as fixed.

    Args:
        network: the network.
        n_samples: m, how many sequences the cover is for.
    """
    found, added = [], 0
    for block in network.blocks:
        rows = np.zeros(block.n_heads)
        for read, key, scale in zip(block.reads, block.keys, block.scales, strict=True):
            size = abs(float(scale)) * float(np.linalg.norm(key))
            rows[read.head] = max(rows[read.head], size)  # W_Q has one row per gate
        longest = math.sqrt(2 + added + (added > 0))
        heads = tuple(
            SoftmaxHeadNorms(
                value_norm=VALUE_NORM, value_column_norm=VALUE_NORM, score_row_norm=float(row)
            )
            for row in rows
        )
        layer = MultiHeadClass(
            heads=heads, width=network.layout.width, head_dimension=1, query_norm=longest
        )
        resolution = min(tolerance(len(read.sources)) for read in block.reads)
        sample = Sample(n_samples, network.layout.n_tokens, input_norm=longest)
        found.append(MultiHeadCovering(layer, resolution).evaluate(sample))
        added += block.n_heads
    return tuple(found)

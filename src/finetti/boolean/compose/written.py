"""The matrices of a network of gates over all d coordinates of a token."""

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.compose.block import Block, Layout
from finetti.boolean.embeddings.base import CLS, ONE_BIT, ZERO_BIT
from finetti.boolean.network.positions import RESERVED


def count_parameters(blocks: tuple[Block, ...], layout: Layout) -> int:
    """Numbers in all matrices, written out."""
    count = (layout.n_tokens + 2) * layout.width
    for block in blocks:
        n_hidden, n_units = len(block.lookup.inner_bias), len(block.lookup.outer)
        heads = 2 * block.n_heads * layout.width * (len(block.gates) + 1)
        ends = layout.width * (n_hidden + n_units) + n_hidden + n_units
        count += heads + ends + n_hidden * n_units
    return count


def written_weights(blocks: tuple[Block, ...], layout: Layout) -> dict[str, NDArray[np.float64]]:
    """Every matrix by name."""
    width, n_gates = layout.width, layout.n_gates
    tokens = np.zeros((2, width))
    tokens[0, ZERO_BIT] = tokens[1, ONE_BIT] = 1.0
    positions = np.zeros((layout.positions.count, width))
    positions[:, : layout.basis_width] = layout.positions.dense()
    gate_tokens = np.zeros((n_gates, width))
    gate_tokens[:, CLS] = 1.0
    np.fill_diagonal(gate_tokens[:, layout.basis_width :], 1.0)
    named = {
        "embedding.tokens": tokens,
        "embedding.positions": positions,
        "embedding.gates": gate_tokens,
    }
    for number, block in enumerate(blocks):
        for name, array in written_block(block, layout).items():
            named[f"blocks.{number}.{name}"] = array
    return named


def written_block(block: Block, layout: Layout) -> dict[str, NDArray[np.float64]]:
    """W_Q, W_K, W_V, W_C and the lookup of one block."""
    width, heads, count = layout.width, block.n_heads, len(block.gates)
    query, key = np.zeros((heads, width, count)), np.zeros((heads, width, count))
    for read, vector, scale in zip(block.reads, block.keys, block.scales, strict=True):
        column = block.gates.index(read.gate)
        query[read.head, layout.basis_width + read.gate, column] = scale
        key[read.head, RESERVED : RESERVED + layout.key_width, column] = vector
    value, output = np.zeros((heads, width, 1)), np.zeros((heads, 1, width))
    value[:, ZERO_BIT], value[:, ONE_BIT] = 1.0, -1.0
    features = block.first_feature + np.arange(heads)
    output[np.arange(heads), 0, features] = 1.0
    lookup = block.lookup
    inner = np.zeros((width, lookup.inner.shape[1]))
    inner[[*features, *(layout.basis_width + which for which in block.gates)]] = lookup.inner
    outer = np.zeros((len(lookup.outer), width))
    outer[:, [ZERO_BIT, ONE_BIT]] = lookup.outer
    return {
        "query": query,
        "key": key,
        "value": value,
        "output": output,
        **lookup.arrays,
        "inner": inner,
        "outer": outer,
    }

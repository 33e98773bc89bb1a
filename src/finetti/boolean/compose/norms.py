"""Every norm of every block beside the bound of its lemma."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from finetti.boolean.compose.recognition import separation, tolerance
from finetti.boolean.norms import NormBound, lookup_norms

if TYPE_CHECKING:
    from finetti.boolean.compose.network import GateNetwork

VALUE_NORM = math.sqrt(2)  # of E_0 − E_1


def network_norms(network: "GateNetwork", margin: float) -> tuple[NormBound, ...]:
    """The norms of all blocks, the largest over the heads of each (one above its bound, if any).

    One head serves all gates of its level, each with a column of W_Q and W_K of its own, so the
    squares of the lemma's bounds add up over the gates. In the lookup a gate's mark q_g counts as
    one coordinate more.
    """
    found, lemma = [], f"Lemma {network.embedding.lemma}"
    for number, block in enumerate(network.blocks, start=1):
        at, stated = f", block {number}", "" if margin == 1 else f", margin {margin:g} as stated"
        measured = ", measured gap" if (block.gaps < 1).any() else ""
        squares = np.zeros((4, block.n_heads))
        for k, read in enumerate(block.reads):
            logarithm = math.log(
                8 * network.layout.n_tokens * margin / separation(len(read.sources))
            )
            gap = float(block.gaps[k])
            squares[:, read.head] += (
                np.square(block.scales[k]),
                (logarithm / gap) ** 2 if gap > 0 else 0.0,
                float(block.keys[k] @ block.keys[k]),
                float(block.spans[k]),
            )
        query, query_bound, key, key_bound = np.sqrt(squares)
        for name, sizes, bounds, source in (
            ("W_Q", query, query_bound, f"{lemma}, per gate{measured}{stated}"),
            ("W_K", key, key_bound, f"{lemma}, per gate{measured}"),
        ):
            heads = [
                NormBound(f"‖{name}‖_F{at}", float(size), float(bound), source)
                for size, bound in zip(sizes, bounds, strict=True)
            ]
            found.append(max(heads, key=lambda norm: (not norm.within, norm.value)))
        found.append(NormBound(f"‖W_V‖_F{at}", VALUE_NORM, 2.0, lemma))
        found.append(NormBound(f"‖W_C‖_F{at}", 1.0, 1.0, lemma))
        delta = min(tolerance(len(read.sources)) for read in block.reads)
        lookup = lookup_norms(block.lookup, 1.0, delta, 1.0, len(block.gates) - 1)
        found += [replace(norm, name=f"{norm.name}{at}") for norm in lookup]
    indices = tuple(sorted(network.function.indices))
    extra = network.embedding.position_bounds(network.layout.positions, indices)
    return (*found, *(NormBound(*row, lemma) for row in extra))

"""Lemma A.12: the capacity of several heads."""

import math

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, close
from finetti.claims.sparse_variables.packing import covered, log_packing, unit_vectors
from finetti.claims.sparse_variables.thm_4_2 import HEADS, LENGTH, SEQUENCES, random_heads

RESOLUTION = 0.2


def run(context: Context) -> Evidence:
    """H equal heads against H³, and sums of random heads against their packing number."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import HeadNorms, MultiHeadClass, MultiHeadCovering

    def layer(count: int, norm: float) -> MultiHeadClass:
        return MultiHeadClass(heads=(HeadNorms(score_row_norm=norm),) * count, width=2)

    sample = Sample(SEQUENCES, LENGTH)
    counts = range(1, 17)
    gammas = [layer(count, 1.0).composition(sample, "derived").log_gamma for count in counts]
    cubes = max(
        abs(3 * (g - gammas[0]) - 3 * math.log(h)) for g, h in zip(gammas, counts, strict=True)
    )
    rng = context.generator(CLAIM.id)
    tokens = unit_vectors(rng, SEQUENCES, LENGTH, 2)
    total = np.sum([random_heads(rng, tokens, 4.0) for _ in range(3)], axis=0)
    bound = MultiHeadCovering(layer(3, 4.0), RESOLUTION).evaluate(sample).value
    return Evidence(
        (
            close("γ³ of H ≤ 16 equal heads: log of its ratio to H³", cubes, 1e-12),
            covered(f"{HEADS} sums of heads", log_packing(total, 2 * RESOLUTION), bound),
        )
    )


CLAIM = Claim(
    id="S-lemma-A.12",
    title="the capacity of several heads",
    statement="A sum of heads has the terms of Corollary 4.4 of all of them; H equal heads cost H³ "
    "times as much as one.",
    paper="S",
    label="Lemma A.12",
    run=run,
)

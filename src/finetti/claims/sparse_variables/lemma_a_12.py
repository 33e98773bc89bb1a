"""Lemma A.12: the capacity of several heads."""

import math
from typing import Any

import numpy as np

from finetti.claims.claim import Claim, Context, Control, Evidence, close, within
from finetti.claims.perturbations import ROUNDING
from finetti.claims.sparse_variables.cor_4_4 import as_printed, counted, random_norms
from finetti.claims.sparse_variables.instances import score_change
from finetti.claims.sparse_variables.packing import covered, log_packing, unit_vectors
from finetti.claims.sparse_variables.recomputed import composed, head_parts
from finetti.claims.sparse_variables.thm_4_2 import HEADS, LENGTH, SEQUENCES, random_heads

RESOLUTION, LAYERS = 0.2, 50


def measure(context: Context, make: Any) -> tuple[Any, ...]:
    """What a wrong cost of W_QK would change, for layers made by ``make``."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import MultiHeadCovering, SoftmaxHeadNorms

    rng, worst = context.generator(CLAIM.id, "layers"), 0.0
    for _ in range(LAYERS):
        heads = tuple(SoftmaxHeadNorms(**random_norms(rng)) for _ in range(3))
        lengths = 10.0 ** rng.uniform(-1, 1, size=2)
        layer = make(heads=heads, width=6, head_dimension=3, query_norm=float(lengths[0]))
        sample = Sample(1000, 50, input_norm=float(lengths[1]))
        parts = [part for each in heads for part in head_parts(layer, each, sample)]
        found = MultiHeadCovering(layer, 0.1).evaluate(sample).value
        worst = max(worst, abs(found / composed(parts, 0.1) - 1))
    one = make(heads=(SoftmaxHeadNorms(),), width=3, query_norm=1.0)
    used = score_change(3.0) / counted(one, one.heads[0], Sample(1, 2, input_norm=3.0))
    return (
        close(f"{LAYERS} layers of three heads: relative error of log N_∞", worst, 1e-9),
        within("tokens of length 3: change / what W_QK costs", used, 0.98, 1 + ROUNDING),
    )


def run(context: Context) -> Evidence:
    """The bound made again head by head, H equal heads against H³, and a packing of random heads.

    The first two are exact; the packing number, which is far below the bound, is only a floor.
    """
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import MultiHeadClass, MultiHeadCovering, SoftmaxHeadNorms

    def layer(count: int, norm: float) -> MultiHeadClass:
        return MultiHeadClass(heads=(SoftmaxHeadNorms(score_row_norm=norm),) * count, width=2)

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
            *measure(context, MultiHeadClass),
            close("γ³ of H ≤ 16 equal heads: log of its ratio to H³", cubes, 1e-12),
            covered(f"{HEADS} sums of heads", log_packing(total, 2 * RESOLUTION), bound),
        )
    )


def _without_lengths(context: Context) -> Evidence:
    from finetti.bounds.sparse_variables import MultiHeadClass

    return Evidence(measure(context, as_printed(MultiHeadClass)))


CLAIM = Claim(
    id="S-lemma-A.12",
    title="the capacity of several heads",
    statement="A sum of heads has the terms of Corollary 4.4 of all of them; H equal heads cost H³ "
    "times as much as one.",
    paper="S",
    label="Lemma A.12",
    run=run,
    controls=(Control("c_QK with 2 in the place of B_X B_τ, as printed", _without_lengths),),
)

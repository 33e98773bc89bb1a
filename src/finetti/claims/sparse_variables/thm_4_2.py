"""Theorem 4.2: a head costs what its scores and its values cost."""

import math

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, at_most, close
from finetti.claims.sparse_variables.packing import covered, log_packing, unit_vectors

HEADS, SEQUENCES, LENGTH, RESOLUTION = 400, 3, 4, 0.1


def random_heads(rng: np.random.Generator, tokens: np.ndarray, score_norm: float) -> np.ndarray:
    """Outputs (heads, points, 2) of random heads with ‖W_V‖ = 1 and rows of W_QK ≤ score_norm."""
    values, scores = rng.normal(size=(2, HEADS, 1, 2, 2))
    values /= np.linalg.norm(values, 2, axis=(-2, -1), keepdims=True)
    scores *= score_norm / np.linalg.norm(scores, axis=-1, keepdims=True).max(-2, keepdims=True)
    weights = np.exp(tokens @ scores @ tokens.swapaxes(1, 2))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ tokens @ values).reshape(HEADS, SEQUENCES * LENGTH, 2)


def run(context: Context) -> Evidence:
    """The best split against Corollary 4.4 and Lemma A.8, and against packings of random heads."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import HeadClass, HeadCovering, HeadSplit

    rng = context.generator(CLAIM.id)
    leading, above, below = 0.0, 0.0, 0.0
    for _ in range(50):
        norms = 10.0 ** rng.uniform(-1.5, 1.5, size=4)
        head = HeadClass(
            width=6,
            head_dimension=3,
            value_norm=norms[0],
            value_column_norm=norms[1],
            score_row_norm=norms[2],
            out_lipschitz=norms[3],
            norm_lipschitz=2.0,
        )
        sample = Sample(1000, 50)
        gamma = head.composition(sample, "derived").log_gamma
        scaling = 3 * gamma - 2 * math.log(0.1) + math.log(math.log(50_000))
        split = HeadSplit(head, form="printed").evaluate(sample).log_value
        leading = max(leading, abs(split - scaling))
        ratio = HeadSplit(head).evaluate(sample).log_value
        ratio -= HeadCovering(head).evaluate(sample).log_value
        above, below = max(above, ratio), min(below, ratio)
    head = HeadClass(width=2, score_row_norm=4.0)
    bound = HeadSplit(head, RESOLUTION).evaluate(Sample(SEQUENCES, LENGTH)).value
    tokens = unit_vectors(rng, SEQUENCES, LENGTH, 2)
    packing = log_packing(random_heads(rng, tokens, 4.0), 2 * RESOLUTION)
    return Evidence(
        (
            close("leading part: log of numerical minimum / (γ³/ε² log N)", leading, 1e-12),
            at_most("largest log of best split / Corollary 4.4", above, 1e-12),
            covered(f"{HEADS} random heads", packing, bound),
        ),
        note=f"The numerical minimum saves at most {1 - math.exp(below):.2%} over Corollary 4.4.",
    )


CLAIM = Claim(
    id="S-thm-4.2",
    title="a head costs what its scores and its values cost",
    statement="log N(F_head; ε) ≤ min over α of log N(F_Score; αε/(C_Norm L_out B_in B_X)) + "
    "log N(F_in; (1 − α)ε/L_out). Its leading part is the γ³ of Lemma A.8.",
    paper="S",
    label="Theorem 4.2",
    run=run,
)

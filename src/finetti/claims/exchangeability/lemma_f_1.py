"""Lemma F.1: how far RBF-form softmax weights move with query and keys."""

import numpy as np

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.perturbations import DRAWS, attained, holds, ratios, sizes

EXPONENTS = (1.0, 2.0, 4.0, np.inf)


def run(context: Context) -> Evidence:
    """Both sides for four norms and any bandwidth, and on keys that move apart."""
    measurements = []
    for r in EXPONENTS:

        def lemma(query, keys, other_query, other_keys, width, r=r):
            return lipschitz.rbf_softmax_perturbation(
                query, keys, other_query, other_keys, width, r
            )

        rng = context.generator(CLAIM.id, str(r))
        count = DRAWS // len(EXPONENTS)
        tokens = sizes(rng, -1, 1, count) * rng.normal(size=(count, 7, 4))
        moved = tokens + sizes(rng, -4, 0, count) * rng.normal(size=(count, 7, 4))
        width = 10.0 ** rng.uniform(-1, 2, size=count)
        found = ratios(lemma, tokens[:, 0], tokens[:, 1:], moved[:, 0], moved[:, 1:], width)
        measurements.append(holds(found, f"draws, r = {r:g}"))
        # Hölder is an equality along e₁ for r ≤ 2, along (1, …, 1) for r > 2.
        along = np.ones(4) if r > 2 else np.eye(4)[0]
        step, signs = 1e-5, np.array([[1.0], [-1.0]])
        keys = -along[None] * np.ones((2, 1))
        apart = lemma(along, keys, along, keys + step * signs * along, 3.0)
        measurements.append(attained(f"keys moved apart, r = {r:g}", apart))
        turned = lemma(0 * along, signs * along, step * along, signs * along, 3.0)
        measurements.append(attained(f"query moved, r = {r:g}", turned))
    return Evidence(
        tuple(measurements), note="Bandwidths σ² from 0.1 to 100; the paper has 2d_p^{1/s}."
    )


CLAIM = Claim(
    id="E-lemma-F.1",
    title="RBF-form softmax moves no more than query and keys",
    statement="‖softmax(q,K) − softmax(q̂,K̂)‖₁ ≤ c(‖q‖_r + ‖K‖_{r,∞})‖K − K̂‖_{r,∞} + "
    "c‖K‖_{r,∞}‖q − q̂‖_r with c = σ⁻²d_p^{max(0, 1−2/r)}, for any bandwidth; c is sharp and at "
    "most 1/2 at the printed σ² = 2d_p^{1/s}.",
    paper="E",
    label="Lemma F.1",
    run=run,
)

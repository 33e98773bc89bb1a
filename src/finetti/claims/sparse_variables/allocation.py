"""Lemma A.8: how an error is shared between matrices."""

import math

import numpy as np
import scipy

from finetti.bounds.covering.composition import allocate
from finetti.claims.claim import Context, claim
from finetti.claims.evidence import Evidence, at_least, close, within


@claim(
    id="S-lemma-A.8",
    title="the best way to share an error between matrices",
    statement="min Σ α_i/x_i² subject to Σ β_i x_i = C and x_i > 0 is γ³/C², γ = Σ α_i^{1/3}"
    "β_i^{2/3}, at x_i = (C/γ)(α_i/β_i)^{1/3}.",
)
def s_lemma_a_8(context: Context) -> Evidence:
    """γ³/C² against the value at the printed point, a numerical minimum, and random points."""
    draws = 200
    rng = context.generator(s_lemma_a_8.id)
    constraint, attained, numeric, least = 0.0, 0.0, 0.0, math.inf
    for _ in range(draws):
        costs, weights = 10.0 ** rng.uniform(-2, 2, size=(2, 3))
        log_value, log_shares = allocate(np.log(costs), np.log(weights), math.log(0.7))
        value, shares = math.exp(log_value), np.exp(log_shares)
        constraint = max(constraint, abs(weights @ shares / 0.7 - 1))
        attained = max(attained, abs((costs / shares**2).sum() / value - 1))

        def cost(logits, costs=costs, weights=weights):
            parts = np.exp(logits - np.logaddexp.reduce(logits)) * 0.7 / weights
            return math.log((costs / parts**2).sum())

        found = scipy.optimize.minimize(cost, np.log(weights * shares / 0.7) + 0.3, tol=1e-14)
        numeric = max(numeric, abs(found.fun - log_value))
        others = rng.dirichlet(np.ones(3), size=50) * 0.7 / weights
        least = min(least, (costs / others**2).sum(axis=1).min() / value)
    return Evidence(
        close("γ³/C² against a numerical minimum", numeric, 1e-8),
        close("value at the printed point", attained, 1e-12),
        close("the point obeys Σ β_i x_i = C", constraint, 1e-12),
        at_least(f"least of {50 * draws} other points / (γ³/C²)", least, 1.0),
    )


@claim(
    id="S-erratum-14",
    title="printed: the least cost of any shares",
    statement="Σ α_i/x_i² ≥ γ³/C² for all x with Σ β_i x_i = C.",
    label="Lemma A.8",
    erratum="The shares must be positive; with large shares of both signs the sum tends to 0.",
)
def s_erratum_14(context: Context) -> Evidence:
    """1/x₁² + 1/x₂² where x₁ + x₂ = 1, at (1000, −999) and at positive shares, against 8."""
    least = math.exp(allocate([0.0, 0.0], [0.0, 0.0])[0])  # γ³/C² = 2³
    shares = np.linspace(0, 1, 10_001)[1:-1]
    positive = (1 / shares**2 + 1 / (1 - shares) ** 2).min()
    return Evidence(
        at_least("value at (1000, −999)", 1 / 1000**2 + 1 / 999**2, least),
        derived=(within("least value at positive shares / 8", positive / least, 1 - 1e-9, 1.001),),
    )

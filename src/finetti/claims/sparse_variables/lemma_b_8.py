"""Lemma B.8: a table as a ReLU network that bears noise."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, at_most, close


def run(context: Context) -> Evidence:
    """Outputs at points with noise up to δ, in the corners of the noise and inside, and norms."""
    from finetti.boolean.network.lookup import make_lookup
    from finetti.boolean.norms import lookup_norms

    rng = context.generator(CLAIM.id)
    error = ratio = 0.0
    for _ in range(context.pick(quick=60, paper=600)):
        dimension, tolerance = int(rng.integers(1, 5)), float(10 ** rng.uniform(-3, 0))
        grid = rng.integers(-4, 5, size=(40, dimension))
        points = np.unique(grid, axis=0) * (4 * tolerance)
        values = rng.normal(size=len(points))
        lookup = make_lookup(points, values, tolerance)
        for noise in (rng.uniform(-1, 1, points.shape), rng.choice([-1.0, 1.0], points.shape)):
            found = lookup(points + noise * tolerance * (1 - 1e-12))
            error = max(error, float(np.abs(found - values).max()))
        radius, largest = float(np.abs(points).max()), float(np.abs(values).max())
        norms = lookup_norms(lookup, radius, tolerance, largest)
        ratio = max(ratio, *(norm.value / norm.bound for norm in norms))
    return Evidence(
        (
            close("values at points with noise δ", error, 1e-10),
            at_most("norm / bound", ratio, 1 + 1e-12),
        )
    )


CLAIM = Claim(
    id="S-lemma-B.8",
    title="a lookup in three layers",
    statement="For points at least 4δ apart in the maximum norm a three-layer ReLU network gives "
    "f(x_i) for every x within δ of x_i; ‖W_1‖_∞ ≤ max(1, B + 2δ)/δ, ‖W_2‖_∞ ≤ max(1, d), "
    "‖w‖_∞ ≤ max|f|.",
    paper="S",
    label="Lemma B.8",
    run=run,
)

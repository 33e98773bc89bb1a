"""Lemma A.10: a cover of linear functionals."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, close
from finetti.claims.sparse_variables.packing import covered, disk, log_packing, unit_vectors

POINTS = 8


def run(context: Context) -> Evidence:
    """The bound against packings of all functionals of the plane, and its printed test value."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import VectorCovering

    points = unit_vectors(context.generator(CLAIM.id), POINTS, 2)
    outputs = (disk(61) @ points.T)[:, :, None]
    measurements = []
    for resolution in (0.05, 0.1, 0.3):
        bound = VectorCovering(1.0, resolution).evaluate(Sample(1, POINTS)).value
        packing = log_packing(outputs, 2 * resolution)
        measurements.append(covered(f"ε = {resolution}", packing, bound))
    value = VectorCovering(1.0, 0.1).evaluate(Sample(100, 100)).value
    exact = 3600 * np.log(2 * 42 * 1e4 + 1)
    measurements.append(close("36·100·log(84·10⁴ + 1), relative", value / exact - 1, 1e-12))
    return Evidence(tuple(measurements))


CLAIM = Claim(
    id="S-lemma-A.10",
    title="linear functionals: a cover that is logarithmic in the points",
    statement="The functionals x ↦ vᵀx with ‖v‖ ≤ B₁ have on N points of length B₂ a cover with "
    "log N_∞ ≤ 36(B₁B₂/ε)² log(2⌈4B₁B₂/ε + 2⌉N + 1).",
    paper="S",
    label="Lemma A.10",
    run=run,
)

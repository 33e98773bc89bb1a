"""Lemma B.2: the exponential kernel reproduces directions on the sphere."""

import numpy as np

from finetti import attention
from finetti.claims.claim import Claim, Context, Evidence, close


def run(context: Context) -> Evidence:
    """C_0, C_1 and ∫ a exp(aᵀb) da by quadrature, against Bessel functions."""
    measurements = []
    for dimension in context.pick(quick=(2, 3, 4), paper=(2, 3, 4, 5)):
        nodes, weights = attention.sphere_rule(dimension, degree=40)
        direction = context.generator(CLAIM.id, dimension).normal(size=dimension)
        direction /= np.linalg.norm(direction)
        kernel = np.exp(nodes @ direction)
        closed = attention.sphere_constants(dimension)
        c0 = float(weights @ kernel)
        c1 = float(weights @ (kernel * (nodes @ direction)))
        vector = (weights * kernel) @ nodes
        measurements += [
            close(f"d = {dimension}: C₀, quadrature / Bessel − 1", c0 / closed.c0 - 1, 1e-10),
            close(f"d = {dimension}: C₁, quadrature / Bessel − 1", c1 / closed.c1 - 1, 1e-10),
            close(
                f"d = {dimension}: ‖∫ a exp(aᵀb) da − C₁b‖",
                float(np.linalg.norm(vector - closed.c1 * direction)),
                1e-10,
            ),
        ]
    return Evidence(tuple(measurements))


CLAIM = Claim(
    id="E-lemma-B.2",
    title="the exponential kernel reproduces directions",
    statement="∫ a exp(aᵀb) da over the unit sphere is C₁b, with C₀ = (2π)^(d/2) I_(d/2−1)(1) and "
    "C₁ = (2π)^(d/2) I_(d/2)(1).",
    paper="E",
    label="Lemma B.2",
    run=run,
)

"""Theorem 5.3 is Theorem C.4 for one layer of one head, free of L."""

import math

import numpy as np

from finetti.bounds import Sample
from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Claim, Context, Evidence, close, within
from finetti.core.forms import Form


def pair(rng: np.random.Generator, form: Form) -> tuple[float, float]:
    """Both theorems for one class: ω^q = ω^k = ω/2, so that ω^{qk} = ω^v = ω."""
    omega, size, alpha, inner, radius = (10.0 ** rng.uniform(-2, 2, size=5)).tolist()
    single = bounds.SingleAttention(8, 4, omega, size, alpha, inner)
    head = bounds.HeadNorms(omega / 2, omega / 2, omega, size / 2, size / 2, size)
    layer = bounds.LayerNorms((head,), alpha, None, inner, None, False, False)
    network = bounds.FullTransformer(8, 8, 4, (layer,))
    sample = Sample(int(rng.integers(10, 10**6)), int(rng.integers(1, 10**6)), input_norm=radius)
    special = bounds.SingleRate(single, form=form).evaluate(sample).log_value
    general = bounds.TransformerRate(network, form=form).evaluate(sample).log_value
    return special, general


def run(context: Context) -> Evidence:
    """Both routes on random classes, four times the samples, lengths, and depth."""
    rng = context.generator(CLAIM.id)
    forms: tuple[Form, ...] = ("printed", "derived")
    routes = [pair(rng, form) for form in forms for _ in range(200)]
    network = bounds.FullTransformer.uniform(8, 16, 2, 2, mixed_norm=3.0)
    values = {
        length: bounds.TransformerRisk(network).evaluate(Sample(1000, length)).log_value
        for length in (1, 100, 10**9)
    }
    quarter = bounds.TransformerRisk(network).evaluate(Sample(4000, 1)).log_value
    depths = 10**3, 10**4
    rates = [
        bounds.TransformerRate(bounds.FullTransformer.uniform(8, 8, depth))
        .evaluate(Sample(10**9, 1))
        .log_value
        for depth in depths
    ]
    slope = (rates[1] - rates[0]) / math.log(depths[1] / depths[0])
    return Evidence(
        (
            close("two routes (log)", max(abs(a - b) for a, b in routes), 1e-10),
            close("change with L (log)", max(values.values()) - min(values.values()), 0.0),
            close("n → 4n, log ratio − log 2", values[1] - quarter - math.log(2), 1e-12),
            within("power of the depth", slope, 1.49, 1.51),
        )
    )


CLAIM = Claim(
    id="E-thm-5.3",
    title="the generalization bound is free of L",
    statement="Theorem C.4 at H = T = 1 without skips is Theorem 5.3; its value does not depend on "
    "L, halves when n grows fourfold, and grows like T^{3/2}.",
    paper="E",
    label="Theorem 5.3, Theorem C.4",
    run=run,
)

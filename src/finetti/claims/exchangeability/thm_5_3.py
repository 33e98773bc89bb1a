"""Theorem 5.3 is Theorem C.4 for one layer of one head, free of L."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from finetti.bounds import Sample
from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Claim, Context, Control, Evidence, close, within
from finetti.claims.exchangeability import by_hand
from finetti.claims.exchangeability.eq_g_5 import draw_network
from finetti.core.forms import Form

Risk = Callable[["bounds.FullTransformer", Sample], float]


@dataclass(frozen=True)
class Case:
    """A class with ω^q = ω^k = ω/2, so that ω^{qk} = ω^v = ω, and a sample; d = 8, d_p = 4."""

    omega: float
    size: float  # R^attn
    alpha: float
    inner: float  # R^nn
    sample: Sample

    @property
    def network(self) -> "bounds.FullTransformer":
        """One layer of one head, without skips."""
        omega, size = self.omega, self.size
        head = bounds.FullHeadNorms(omega / 2, omega / 2, omega, size / 2, size / 2, size)
        layer = bounds.FullLayerNorms((head,), self.alpha, None, self.inner, None, False, False)
        return bounds.FullTransformer(8, 8, 4, (layer,))

    def rates(self, form: Form) -> tuple[float, float]:
        """Theorem 5.3, and Theorem C.4 at H = T = 1 without skips."""
        single = bounds.SingleAttention(8, 4, self.omega, self.size, self.alpha, self.inner)
        special = bounds.SingleRate(single, form=form).evaluate(self.sample)
        return special.value, bounds.TransformerRate(self.network, form=form).evaluate(
            self.sample
        ).value

    def rate_by_hand(self, form: Form) -> float:
        """(D/√n)[√log(1+γ) + √log(1+ζR) + √log(1+κ/ζ)] + √(log(1/δ)/n); derived R² and κ/√ζ."""
        omega, size, radius = self.omega, self.size, self.sample.input_norm
        widths = [self.inner / self.alpha, size / omega]
        if form == "printed":
            kappa, zeta = max(*widths, size / omega**2), omega * size
            steep, wide = zeta * radius, kappa / zeta
        else:
            steep, wide = omega**2 * radius**2, max(widths) / omega
        roots = sum(math.sqrt(math.log1p(x)) for x in (max(self.alpha, omega), steep, wide))
        n, delta = self.sample.n_samples, self.sample.delta
        return 8 * roots / math.sqrt(n) + math.sqrt(math.log(1 / delta) / n)


def deep_rate_by_hand(network: "bounds.FullTransformer", sample: Sample) -> float:
    """Theorem C.4: (D√(HT)/√n)[T√log(2+γ) + √T√log(1+ζR²) + √log(1+κ/√ζ)] + √(log(1/δ)/n)."""
    gamma, kappa, zeta = by_hand.scales(network)
    depth, heads, n = len(network.layers), len(network.layers[0].heads), sample.n_samples
    largest = max(network.dimension, network.hidden_dimension, network.head_dimension)
    roots = depth * math.sqrt(math.log(2 + gamma))
    roots += math.sqrt(depth * math.log1p(zeta * sample.input_norm**2))
    roots += math.sqrt(math.log1p(kappa / math.sqrt(zeta)))
    front = largest * math.sqrt(heads * depth / n)
    return front * roots + math.sqrt(math.log(1 / sample.delta) / n)


def risk_by_hand(network: "bounds.FullTransformer", sample: Sample) -> float:
    """Theorem C.4 with constants, by Lemmas C.11, C.13, C.8, C.7 and Theorem C.5.

    The loss, in [0, 4] and 4-Lipschitz, is divided by 4.
    """
    depth, heads = len(network.layers), len(network.layers[0].heads)
    largest = max(network.dimension, network.hidden_dimension, network.head_dimension)
    dimensions = max((4 + heads) * largest**2 * depth, by_hand.n_parameters(network))
    size = by_hand.moved(network, sample.input_norm, sharp=False)
    n, delta = sample.n_samples, sample.delta
    complexity = 12 * math.sqrt(dimensions / n) * (2 + math.sqrt(math.log1p(2 * size)))
    uniform = 3 * math.sqrt(math.log(4 / delta) / (2 * n))
    return 4 * (2 * complexity + uniform + math.sqrt(math.log(2 / delta) / (2 * n)))


def draw_sample(rng: np.random.Generator) -> Sample:
    """Tokens over four decades of length, and a loss in [0, 4]."""
    n, length = int(rng.integers(10, 10**6)), int(rng.integers(1, 10**6))
    radius, delta = float(10.0 ** rng.uniform(-2, 2)), float(rng.uniform(0.001, 0.1))
    return Sample(n, length, radius, 4.0, 4.0, delta)


def draw_case(rng: np.random.Generator) -> Case:
    """Norms over four decades."""
    omega, size, alpha, inner = (10.0 ** rng.uniform(-2, 2, size=4)).tolist()
    return Case(omega, size, alpha, inner, draw_sample(rng))


def risk(network: "bounds.FullTransformer", sample: Sample) -> float:
    """The theorem with all constants, as the package has it."""
    return bounds.TransformerRisk(network).evaluate(sample).value


def run(context: Context, value: Risk = risk) -> Evidence:
    """Rates and bound recomputed on random networks; four times the samples, lengths, and depth.

    The bound with constants is loose: its constants are checked against those of the lemmas that
    it is made of, not against a measured error.
    """
    rng = context.generator(CLAIM.id)
    cases = [draw_case(rng) for _ in range(200)]
    forms: tuple[Form, ...] = ("printed", "derived")
    rates = [
        abs(rate / case.rate_by_hand(form) - 1)
        for case in cases
        for form in forms
        for rate in case.rates(form)
    ]
    deep = [(draw_network(rng, depth=3, decades=1.0), draw_sample(rng)) for _ in range(200)]
    rates += [
        abs(bounds.TransformerRate(network).evaluate(sample).value / again - 1)
        for network, sample in deep
        for again in [deep_rate_by_hand(network, sample)]
    ]
    risks = [
        abs(value(network, sample) / risk_by_hand(network, sample) - 1)
        for network, sample in [*deep, *((case.network, case.sample) for case in cases)]
    ]
    network = bounds.FullTransformer.uniform(8, 16, 2, 2, mixed_norm=3.0)
    values = [value(network, Sample(1000, length)) for length in (1, 100, 10**9)]
    quarter = value(network, Sample(4000, 1))
    depths = 10**3, 10**4
    logs = [
        bounds.TransformerRate(bounds.FullTransformer.uniform(8, 8, depth))
        .evaluate(Sample(10**9, 1))
        .log_value
        for depth in depths
    ]
    slope = (logs[1] - logs[0]) / math.log(depths[1] / depths[0])
    return Evidence(
        (
            close("Theorems 5.3 and C.4, both forms, by hand (relative)", max(rates), 1e-12),
            close("Theorem C.4 with constants, by hand (relative)", max(risks), 1e-12),
            close("change with L", max(values) - min(values), 0.0),
            close("n → 4n, ratio − 2", values[0] / quarter - 2, 1e-12),
            within("power of the depth", slope, 1.49, 1.51),
        )
    )


def _smaller_dudley(network: "bounds.FullTransformer", sample: Sample) -> float:
    complexity = bounds.TransformerComplexity(network).evaluate(sample).value
    return risk(network, sample) - 2 * (1 - 0.01) * complexity


CLAIM = Claim(
    id="E-thm-5.3",
    title="the generalization bound is free of L",
    statement="Theorem C.4 at H = T = 1 without skips is Theorem 5.3; its value does not depend on "
    "L, halves when n grows fourfold, and grows like T^{3/2}.",
    paper="E",
    label="Theorem 5.3, Theorem C.4",
    run=run,
    controls=(Control("0.12 for Dudley's 12", partial(run, value=_smaller_dudley)),),
)

"""(G.5), Theorem 5.3 and Lemma C.8: generalization, free of the context length."""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from finetti.bounds import Sample
from finetti.bounds import exchangeability as bounds
from finetti.bounds.exchangeability.layer_constants import log_deviation
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, at_most, close, within
from finetti.claims.exchangeability import by_hand
from finetti.core.forms import Form
from finetti.core.numbers import largest_of, smallest_of


def draw_network(
    rng: np.random.Generator, depth: int = 12, decades: float = 2.0
) -> "bounds.FullTransformer":
    """Up to ``depth`` layers with two heads, all norms from 10^−``decades`` to 10^``decades``."""
    count, layers = int(rng.integers(1, depth + 1)), []
    for row in (10.0 ** rng.uniform(-decades, decades, size=(count, 16))).tolist():
        heads = bounds.FullHeadNorms(*row[:6]), bounds.FullHeadNorms(*row[6:12])
        layers.append(bounds.FullLayerNorms(heads, *row[12:]))
    return bounds.FullTransformer(4, 4, 2, tuple(layers))


def log_product(network: "bounds.FullTransformer", radius: float, form: Form = "derived") -> float:
    """log R_T^trans R_T, as Lemma C.14 gives it, or as it is printed."""
    return log_deviation(network, radius, form)[0]


@claim(
    id="E-eq-G.5",
    title="the product of all layers, in γ, κ and ζ",
    statement="R_T^trans R_T ≤ (2κ/√ζ)√T(1 + ζR_0²(1+γ)^{4T})^{T+1}, with κ and ζ as the proof "
    "needs them.",
    formula=r"R_T^{trans} R_T ≤ \frac{2κ}{\sqrt{ζ}} \sqrt{T} (1 + ζ R_0^2 (1+γ)^{4T})^{T+1}",
    controls=(Control("a fifth of the limit", changes={"divisor": 5.0}),),
)
def e_eq_g_5(context: Context, divisor: float = 1.0) -> Evidence:
    """log(R_T^trans R_T) minus the log of the limit, on random networks."""
    rng, excess = context.generator(e_eq_g_5.id), []
    for _ in range(context.pick(quick=500, paper=5_000)):
        network, radius = draw_network(rng), float(10.0 ** rng.uniform(-2, 2))
        limit = bounds.log_product_limit(network, radius) - np.log(divisor)
        excess.append(log_product(network, radius) - limit)
    name = f"largest log(product / limit) on {len(excess)} networks"
    return Evidence(at_most(name, largest_of(excess), 1e-9))


@claim(
    id="E-erratum-12",
    title="printed: (G.5) with R_0 for R_0²",
    statement="R_T^trans R_T ≤ (2κ/ζ)(1 + ζR_0(1+γ)^{4T})^{T+3}.",
    formula=r"R_T^{trans} R_T ≤ \frac{2κ}{\sqrt{ζ}} \sqrt{T} (1 + ζ R_0^2 (1+γ)^{4T})^{T+1}",
    printed=r"R_T^{trans} R_T ≤ \frac{2κ}{ζ} (1 + ζ R_0 (1+γ)^{4T})^{T+3}",
    label="(G.5)",
    erratum="ρ̃_t/ω̃_t ≤ 1 + ζ(α̃_tR_t)², so R_0² belongs there and κ/√ζ in front. Theorem C.4 keeps "
    "its order.",
    controls=(Control("short tokens, for which print is right", changes={"radius": 1.0}),),
)
def e_erratum_12(context: Context, radius: float = 2e4) -> Evidence:
    """100 layers with norms 0.001, whose scores are large only because the tokens are long."""
    network = bounds.FullTransformer.uniform(4, 4, 100, norm=1e-3)
    printed = bounds.log_product_limit(network, radius, "printed")
    derived = bounds.log_product_limit(network, radius)
    found = log_product(network, radius)
    return Evidence(
        at_most("log(R_T^trans R_T)", found, printed),
        at_most("the same, as printed", log_product(network, radius, "printed"), printed),
        derived=(at_most("log(R_T^trans R_T), against the corrected limit", found, derived),),
    )


@dataclass(frozen=True)
class _Case:
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
        general = bounds.TransformerRate(self.network, form=form).evaluate(self.sample)
        return special.value, general.value

    def rate_by_hand(self, form: Form) -> float:
        """(D/√n)[√log(1+γ) + √log(1+ζR) + √log(1+κ/ζ)] + √(log(1/δ)/n); derived R² and κ/√ζ."""
        omega, size, radius = self.omega, self.size, self.sample.input_norm
        widths = [self.inner / self.alpha, size / omega]
        if form == "printed":
            kappa, zeta = largest_of(*widths, size / omega**2), omega * size
            steep, wide = zeta * radius, kappa / zeta
        else:
            steep, wide = omega**2 * radius**2, largest_of(widths) / omega
        roots = sum(math.sqrt(math.log1p(x)) for x in (largest_of(self.alpha, omega), steep, wide))
        n, delta = self.sample.n_samples, self.sample.delta
        return 8 * roots / math.sqrt(n) + math.sqrt(math.log(1 / delta) / n)


def _deep_rate_by_hand(network: "bounds.FullTransformer", sample: Sample) -> float:
    """Theorem C.4: (D√(HT)/√n)[T√log(2+γ) + √T√log(1+ζR²) + √log(1+κ/√ζ)] + √(log(1/δ)/n)."""
    gamma, kappa, zeta = by_hand.scales(network)
    depth, heads, n = len(network.layers), len(network.layers[0].heads), sample.n_samples
    largest = max(network.dimension, network.hidden_dimension, network.head_dimension)
    roots = depth * math.sqrt(math.log(2 + gamma))
    roots += math.sqrt(depth * math.log1p(zeta * sample.input_norm**2))
    roots += math.sqrt(math.log1p(kappa / math.sqrt(zeta)))
    front = largest * math.sqrt(heads * depth / n)
    return front * roots + math.sqrt(math.log(1 / sample.delta) / n)


def _draw_sample(rng: np.random.Generator) -> Sample:
    """Tokens over four decades of length, and a loss in [0, 4]."""
    n, length = int(rng.integers(10, 10**6)), int(rng.integers(1, 10**6))
    radius, delta = float(10.0 ** rng.uniform(-2, 2)), float(rng.uniform(0.001, 0.1))
    return Sample(n, length, radius, 4.0, 4.0, delta)


def _rate(network: "bounds.FullTransformer", sample: Sample) -> float:
    """The rate of Theorem C.4, as the package has it."""
    return bounds.TransformerRate(network).evaluate(sample).value


@claim(
    id="E-thm-5.3",
    title="the generalization bound is free of L",
    statement="Theorem C.4 at H = T = 1 without skips is Theorem 5.3; its value does not depend on "
    "L, halves when n grows fourfold, and grows like T^{3/2}.",
    formula=r"E_{gen} = O(\frac{D}{\sqrt{n}} [\sqrt{log(1+γ)} + \sqrt{log(1+ζR)} + "
    r"\sqrt{log(1+κ/ζ)}] + \sqrt{\frac{log(1/δ)}{n}})",
    label="Theorem 5.3, Theorem C.4",
    controls=(Control("1 % more", changes={"value": lambda *given: 1.01 * _rate(*given)}),),
)
def e_thm_5_3(context: Context, value: Formula = _rate) -> Evidence:
    """Rates recomputed on random networks; four times the samples, lengths, and depth."""
    rng = context.generator(e_thm_5_3.id)
    cases = []
    for _ in range(200):  # norms over four decades
        omega, size, alpha, inner = (10.0 ** rng.uniform(-2, 2, size=4)).tolist()
        cases.append(_Case(omega, size, alpha, inner, _draw_sample(rng)))
    forms: tuple[Form, ...] = ("printed", "derived")
    rates = [
        abs(rate / case.rate_by_hand(form) - 1)
        for case in cases
        for form in forms
        for rate in case.rates(form)
    ]
    deep = [(draw_network(rng, depth=3, decades=1.0), _draw_sample(rng)) for _ in range(200)]
    rates += [
        abs(value(network, sample) / again - 1)
        for network, sample in deep
        for again in [_deep_rate_by_hand(network, sample)]
    ]
    network = bounds.FullTransformer.uniform(8, 16, 2, 2, mixed_norm=3.0)
    values = [value(network, Sample(1000, length)) for length in (1, 100, 10**9)]
    quarter = value(network, Sample(4000, 1))
    depths = 10**3, 10**4
    deeper = (bounds.FullTransformer.uniform(8, 8, depth) for depth in depths)
    logs = [bounds.TransformerRate(n).evaluate(Sample(10**9, 1)).log_value for n in deeper]
    slope = (logs[1] - logs[0]) / math.log(depths[1] / depths[0])
    return Evidence(
        close("Theorems 5.3 and C.4, both forms, by hand (relative)", largest_of(rates), 1e-12),
        close("change with L", largest_of(values) - smallest_of(values), 0.0),
        close("n → 4n, ratio − 2", values[0] / quarter - 2, 1e-12),
        within("power of the depth", slope, 1.49, 1.51),
    )


_TOKENS = np.array([0.6, -1.0, 0.9])
_RESOLUTIONS = (0.02, 0.1, 0.5)


def _outputs(levels: int) -> np.ndarray:
    """X_1 of every one-dimensional layer with weights on a grid in [−1, 1]."""
    grid = np.linspace(-1, 1, levels)
    found = []
    for inner, outer, query, key, value in product(grid, repeat=5):
        after = np.maximum(_TOKENS * inner, 0) * outer + _TOKENS
        scores = -((query * after[:, None] - key * after[None, :]) ** 2) / 4  # σ² = 2
        weights = np.exp(scores)
        weights /= weights.sum(axis=1, keepdims=True)
        found.append(weights @ (value * after) + after)
    return np.array(found)


def _packing(points: np.ndarray, separation: float) -> int:
    """How many points stay when each is farther than that from the others, token by token."""
    left, count = points, 0
    while len(left):
        left = left[np.abs(left - left[0]).max(axis=1) > separation]
        count += 1
    return count


@claim(
    id="E-lemma-C.8",
    title="the full Transformer is covered, whatever the length",
    statement="log N(F, ε) ≤ p·log(1 + 2R_T^trans R_T/ε) with p parameters, for every L.",
    formula=r"log N(F, ε) ≤ p log(1 + \frac{2 R_T^{trans} R_T}{ε})",
    controls=(Control("an eighth of it", changes={"factor": 1 / 8}),),
)
def e_lemma_c_8(context: Context, factor: float = 1.0) -> Evidence:
    """Packings of all networks of one dimension, which are a floor, at three resolutions.

    A packing at 2ε needs a ball of radius ε for each of its points. It is far below the bound,
    whose constants are those of Lemmas C.11 and C.13, which are attained.
    """
    one = bounds.FullTransformer.uniform(1)
    packings = []
    points = _outputs(context.pick(quick=5, paper=9))
    for resolution in _RESOLUTIONS:
        bound = bounds.FullTransformerCovering(one, resolution=resolution)
        limit = factor * bound.evaluate(Sample(1, len(_TOKENS))).value
        found = np.log(_packing(points, 2 * resolution))
        packings.append(at_most(f"log packing at 2ε, ε = {resolution:g}", found, limit))
    return Evidence(*packings)


@claim(
    id="E-erratum-9",
    title="printed: (4 + H)D²T dimensions for any head",
    statement="A network with H heads and D = max{d, d_σ, d_p} has at most (4 + H)D²T parameters.",
    formula="p = T (2 d d_σ + H (2 d d_p + d^2))",
    printed=r"p ≤ (4 + H) D^2 T,  D = max\{d, d_σ, d_p\}",
    label="Lemma C.8",
    erratum="H(2dd_p + d²) ≤ (2 + H)D² needs d_pH ≤ D, as in d = d_pH.",
    controls=(Control("d = d_pH, where print is right", changes={"head_dimension": 8}),),
)
def e_erratum_9(context: Context, head_dimension: int = 64) -> Evidence:
    """Eight heads that are as wide as the tokens, d = d_σ = d_p = 64."""
    network = bounds.FullTransformer.uniform(64, 64, n_heads=8, head_dimension=head_dimension)
    printed = bounds.FullTransformerCovering(network, form="printed").n_dimensions
    derived = bounds.FullTransformerCovering(network).n_dimensions
    # A^x and A^σ; W_q, W_k and W_v of eight heads
    parameters = 2 * 64 * 64 + 8 * (2 * 64 * head_dimension + 64 * 64)
    return Evidence(
        at_most("parameters of the network", parameters, printed),
        derived=(at_most("parameters of the network, against the derived", parameters, derived),),
    )

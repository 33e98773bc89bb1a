"""(G.5), Theorems 5.3 and C.5, Lemmas C.7 to C.9 and G.2: how large a class of networks is."""

import math
from itertools import product

import numpy as np
import scipy

from finetti.bounds import Sample
from finetti.bounds import exchangeability as bounds
from finetti.bounds.exchangeability.layer_constants import log_deviation
from finetti.bounds.exchangeability.scaling_rates import Scales
from finetti.claims.claim import CheckMethod, Claim, Context, Control, Erratum, claim
from finetti.claims.evidence import Evidence, Measurement, at_least, at_most, close, within
from finetti.core.arguments import Form
from finetti.core.numerics.extremes import largest_of


def draw_network(rng: np.random.Generator) -> "bounds.FullTransformer":
    """Up to 12 layers with two heads, all norms from 0.01 to 100."""
    count, layers = int(rng.integers(1, 13)), []
    for row in (10.0 ** rng.uniform(-2, 2, size=(count, 16))).tolist():
        heads = bounds.FullHeadNorms(*row[:6]), bounds.FullHeadNorms(*row[6:12])
        layers.append(bounds.FullLayerNorms(heads, *row[12:]))
    return bounds.FullTransformer(4, 4, 2, tuple(layers))


@claim(
    id="E-eq-G.5",
    title="the product of all layers, in γ, κ and ζ",
    statement="The product of what all layers add is bounded in γ, κ and ζ, as the proof needs "
    "them.",
    formula=r"R_T^{trans} R_T ≤ \frac{2κ}{\sqrt{ζ}} \sqrt{T} (1 + ζ R_0^2 (1+γ)^{4T})^{T+1}",
    check=CheckMethod.TIGHT,
    controls=(Control("a tenth of the limit", changes={"divisor": 10.0}),),
    erratum=Erratum(
        12,
        title="printed: (G.5) with R_0 for R_0²",
        printed=r"R_T^{trans} R_T ≤ \frac{2κ}{ζ} (1 + ζ R_0 (1+γ)^{4T})^{T+3}",
        why="ρ̃_t/ω̃_t ≤ 1 + ζ(α̃_tR_t)², so R_0² belongs there and κ/√ζ in front. Theorem C.4 keeps "
        "its order.",
        controls=(Control("short tokens, for which print is right", changes={"radius": 1.0}),),
    ),
)
def e_eq_g_5(
    context: Context, form: Form = "derived", radius: float = 2e4, divisor: float = 1.0
) -> Evidence:
    """log(R_T^trans R_T) against the log of the limit, on random networks and on 100 layers.

    These have norms 0.001: their scores are large only because the tokens are long.
    """
    network = bounds.FullTransformer.uniform(4, 4, 100, norm=1e-3)
    limit = bounds.log_product_limit(network, radius, form) - math.log(divisor)
    product_log, _ = log_deviation(network, radius)
    deep = at_most("100 layers: log(R_T^trans R_T)", product_log, limit)
    if form == "printed":
        found, _ = log_deviation(network, radius, "printed")
        return Evidence(deep, at_most("the same, as printed", found, limit))
    rng, excess, share = context.draws(), [], product_log / limit
    for _ in range(context.pick(quick=500, paper=5_000)):
        network, length = draw_network(rng), float(10.0 ** rng.uniform(-2, 2))
        limit = bounds.log_product_limit(network, length) - math.log(divisor)
        excess.append(log_deviation(network, length)[0] - limit)
    name = f"largest log(product / limit) on {len(excess)} networks"
    not_empty = at_least("100 layers: the same over the log of its limit", share, 0.2)
    return Evidence(at_most(name, largest_of(excess), 1e-9), deep, not_empty)


e_thm_5_3 = Claim(
    id="E-thm-5.3",
    title="the generalization bound is free of L",
    statement="The generalization error of attention is bounded by its norms and dimensions, "
    "whatever the context length L: the chain of Lemma C.8, Theorem C.5 and (G.5) with H = T = 1.",
    formula=r"E_{gen} = O(\frac{D}{\sqrt{n}} [\sqrt{log(1+γ)} + \sqrt{log(1+ζR)} + "
    r"\sqrt{log(1+κ/ζ)}] + \sqrt{\frac{log(1/δ)}{n}})",
    label="Theorem 5.3, Theorem C.4",
    rests_on=("E-lemma-C.8", "S-lemma-2.2", "E-eq-G.5", "E-thm-5.3-length"),
)

_TOKENS = np.array([0.6, -1.0, 0.9])


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
    statement="The covering number of a class of networks with p parameters does not depend on L.",
    formula=r"log N(F, ε) ≤ p log(1 + \frac{2 R_T^{trans} R_T}{ε}),  p = T (2 d d_σ + H (2 d d_p "
    "+ d^2))",
    check=CheckMethod.TIGHT,
    controls=(Control("an eighth of it", changes={"factor": 1 / 8}),),
    erratum=Erratum(
        9,
        title="printed: (4 + H)D²T dimensions for any head",
        formula="p = T (2 d d_σ + H (2 d d_p + d^2))",
        printed=r"p ≤ (4 + H) D^2 T,  D = max\{d, d_σ, d_p\}",
        why="H(2dd_p + d²) ≤ (2 + H)D² needs d_pH ≤ D, as in d = d_pH.",
        controls=(Control("d = d_pH, where print is right", changes={"head_dimension": 8}),),
    ),
)
def e_lemma_c_8(
    context: Context, form: Form = "derived", factor: float = 1.0, head_dimension: int = 64
) -> Evidence:
    """Packings of all networks of one dimension, which are a floor, at three resolutions.

    A packing at 2ε needs a ball of radius ε for each of its points. It is a tenth of the bound,
    whose constants are those of Lemmas C.11 and C.13, which are attained. Then the parameters of
    eight heads that are as wide as the tokens, d = d_σ = d_p = 64.
    """
    wide = bounds.FullTransformer.uniform(64, 64, n_heads=8, head_dimension=head_dimension)
    # A^x and A^σ; W_q, W_k and W_v of eight heads
    parameters = 2 * 64 * 64 + 8 * (2 * 64 * head_dimension + 64 * 64)
    allowed = bounds.FullTransformerCovering(wide, form=form).n_dimensions
    counted = at_most("eight wide heads: parameters", parameters, allowed)
    if form == "printed":
        return Evidence(counted)
    one, packings = bounds.FullTransformer.uniform(1), []
    points = _outputs(context.pick(quick=5, paper=9))
    for resolution in (0.02, 0.1, 0.5):
        bound = bounds.FullTransformerCovering(one, resolution=resolution)
        limit = factor * bound.evaluate(Sample(1, len(_TOKENS))).value
        used = math.log(_packing(points, 2 * resolution)) / limit
        packings.append(within(f"log packing at 2ε / log N, ε = {resolution:g}", used, 0.05, 1.0))
    return Evidence(*packings, counted)


e_lemma_c_9 = Claim(
    id="E-lemma-C.9",
    title="a ball of matrices is covered by its dimensions",
    statement="A ball of matrices has a cover by its dimensions, in its own norm.",
    formula=r"log N(\{‖M‖_{r,s} ≤ R\}, ε) ≤ d_1 d_2 log(1 + \frac{2R}{ε})",
    rests_on=("F-cover-count",),
)

e_lemma_c_7 = Claim(
    id="E-lemma-C.7",
    title="the complexity of the full Transformer, by Dudley's integral",
    statement="Dudley's integral of the covering number of Lemma C.8 has a closed bound.",
    formula=r"inf_ξ 4ξ + \frac{12}{\sqrt{n}} ∫_ξ^1 \sqrt{log N(ε)} dε ≤ "
    r"\frac{12 \sqrt{p}}{\sqrt{n}} (2 + \sqrt{log(1 + 2 R_T^{trans} R_T)})",
    rests_on=("E-lemma-C.8", "S-app-A.3"),
)


e_thm_c_5 = Claim(
    id="E-thm-C.5",
    title="the generalization gap, by the complexity",
    statement="With probability 1 − δ, the gap of all functions of a class is bounded by its "
    "complexity, for a loss in an interval of length b: Lemma 2.2 of edelman2022, for one side.",
    formula=r"sup_f E ℓ(f) − \hat{E} ℓ(f) ≤ b (2 \hat{R} + 3 \sqrt{\frac{log(2/δ)}{2n}})",
    rests_on=("S-lemma-2.2",),
)


@claim(
    id="E-erratum-8",
    title="printed: ζ with R^v for ω^v",
    statement="The constant of Lemma C.13 is ω̃_t(1 + ζ_t(α̃_tR_t)²) with R^v in ζ_t.",
    formula=r"ζ_t = \frac{(ω_t^{qk})^2 ω_t^v}{\tilde{ω}_t^v}",
    printed=r"ζ_t = \frac{(ω_t^{qk})^2 R_t^v}{\tilde{ω}_t^v}",
    label="(C.7)",
    erratum="(C.10) has ω^v, and so does the proof: R^v, which is larger where a matrix has more "
    "than one singular value, makes log(1 + ζR) larger and log(1 + κ/ζ) smaller than it should be.",
    controls=(Control("R^v = ω^v, where print is right", changes={"spread": 1.0}),),
)
def e_erratum_8(context: Context, spread: float = 50.0) -> Evidence:
    """ρ̃ of (C.10) over ω̃(1 + ζR²) with the package's ζ, R^v = 50 ω^v."""
    draws, count = context.draws(), 200
    norms = (10.0 ** draws.uniform(-1, 1, size=(count, 4))).tolist()

    def measured(form: Form) -> Measurement:
        errors = []
        for query, key, value, radius in norms:
            head = bounds.FullHeadNorms(query, key, value, 1.0, 1.0, spread * value)
            network = bounds.FullTransformer(4, 4, 4, (bounds.FullLayerNorms((head,)),))
            exact = 1 + value + (query + key) ** 2 * value * radius**2
            zeta = float(Scales.of(network, form).sharpness)
            errors.append(abs((1 + value) * (1 + zeta * radius**2) / exact - 1))
        return close(f"{count} heads: ω̃(1 + ζR²)/ρ̃ − 1", largest_of(errors), 1e-12)

    return Evidence(measured("printed"), derived=(measured("derived"),))


@claim(
    id="E-lemma-G.2",
    title="means of bounded vectors concentrate",
    statement="Means of independent bounded vectors are near their expectation with probability "
    "1 − δ, where ‖ξ‖ ≤ B/2 and E‖ξ‖² ≤ σ² (Caponnetto and De Vito, quoted by the paper).",
    formula=r"‖\frac{1}{L} Σ_i ξ_i − E ξ‖ ≤ 2 (\frac{B}{L} + \frac{σ}{\sqrt{L}}) log\frac{2}{δ}",
    check=CheckMethod.TIGHT,
    rejects="a bound smaller by a factor of 1.43, as with log(1/δ) in the place of log(2/δ)",
)
def e_lemma_g_2(context: Context) -> Evidence:
    """Deviations of probability δ over what is allowed: of coins, and in many dimensions.

    In many dimensions the deviation is hardly random: about σ/√L with probability δ = 0.99, where
    the bound has 2 log(2/δ) = 1.4 times that.
    """

    def allowed(length: int, delta: float) -> float:
        # |ξ| = 1: B = 2 and σ = 1.
        return 2 * (2 / length + length**-0.5) * math.log(2 / delta)

    coins = []
    for length in (10, 100, 1000):
        for delta in (0.3, 0.1, 0.01):
            high = scipy.stats.binom.ppf(1 - delta / 2, length, 0.5)
            coins.append((2 * high / length - 1) / allowed(length, delta))
    # ξ has d independent signs, over √d. Then L‖mean‖² has the mean 1 and the variance
    # 2(1 − 1/L)/d, and by Chebyshev's inequality it is below 1 − t with probability ≤ 1 − δ.
    length, dimension, delta = 10**8, 10**8, 0.99
    t = math.sqrt(2 * (1 - 1 / length) / dimension / (1 - delta))
    many = math.sqrt((1 - t) / length) / allowed(length, delta)
    return Evidence(
        within("10⁸ dimensions, δ = 0.99: deviation / bound", many, 0.7, 1.0),
        within("coins: largest deviation of probability δ / bound", largest_of(coins), 0.15, 1.0),
    )

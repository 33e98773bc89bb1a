"""Lemmas C.7, C.9, C.10, C.12, G.2, Theorem C.5, (C.6) and erratum 8: a layer, part by part."""

import math
from typing import Any

import numpy as np
import scipy

from finetti import attention
from finetti.attention import lipschitz
from finetti.bounds import Sample
from finetti.bounds import exchangeability as bounds
from finetti.bounds.exchangeability.generalization_error import log_closed
from finetti.bounds.exchangeability.layer_constants import log_deviation
from finetti.bounds.exchangeability.layer_coverings import log_volume
from finetti.bounds.exchangeability.scaling_rates import Scales
from finetti.claims import memorizers
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, Measurement, at_most, close, within
from finetti.claims.exchangeability import by_hand, instances
from finetti.claims.exchangeability.residual_capacity import draw_network
from finetti.claims.exchangeability.residual_perturbations import network as residual_network
from finetti.claims.perturbations import DRAWS, RATIO_RTOL, holds, mapped, sizes
from finetti.core.numbers import largest_of

_NETWORKS, _RESOLUTION = 200, 0.1


def _ball(rows: int, columns: int, norm: float, resolution: float) -> float:
    """The cover as the package has it."""
    return math.exp(log_volume(rows * columns, math.log(norm), math.log(resolution)))


@claim(
    id="E-lemma-C.9",
    title="a ball of matrices is covered by its dimensions",
    statement="{‖M‖_{r,s} ≤ R} has a cover of log N ≤ d₁d₂ log(1 + 2R/ε) in its own norm.",
    formula=r"log N(\{‖M‖_{r,s} ≤ R\}, ε) ≤ d_1 d_2 log(1 + \frac{2R}{ε})",
    controls=(
        Control(
            "R in the place of 2R",
            changes={"cover": lambda d, k, norm, eps: d * k * math.log1p(norm / eps)},
        ),
        Control(
            "d₁ + d₂ in the place of d₁d₂",
            changes={"cover": lambda d, k, norm, eps: (d + k) * math.log1p(2 * norm / eps)},
        ),
    ),
)
def e_lemma_c_9(context: Context, cover: Formula = _ball) -> Evidence:
    """The number by hand, and the largest set of numbers in [−R, R] that are more than ε apart.

    Such a set is a cover, and no larger one comes out of the proof: in one dimension the lemma is
    what it counts.
    """
    rng = context.generator(e_lemma_c_9.id)
    errors = []
    for _ in range(_NETWORKS):
        rows, columns = (int(each) for each in rng.integers(1, 9, size=2))
        norm, resolution = (10.0 ** rng.uniform(-2, 2, size=2)).tolist()
        by_hand = rows * columns * math.log((resolution + 2 * norm) / resolution)
        errors.append(abs(cover(rows, columns, norm, resolution) / by_hand - 1))
    step = 0.01 * (1 + 1e-9)
    count = 1 + math.floor(2.0 / step + 1e-6)  # −1, −1 + step, …, 1
    return Evidence(
        close(f"{_NETWORKS} balls: relative error of log N", largest_of(errors), 1e-12),
        within(
            "numbers in [−1, 1], ε = 0.01: log of their count / log N",
            math.log(count) / cover(1, 1, 1.0, 0.01),
            0.98,
            1 + RATIO_RTOL,
        ),
    )


def _size(covering: Any, network: Any, radius: float, count: int) -> float:
    """S of log N = p·log(1 + 2S/ε), read back from the package's log N."""
    value = covering(network, resolution=_RESOLUTION)
    found = value.evaluate(Sample(1, 1, input_norm=radius)).value
    return _RESOLUTION / 2 * math.expm1(found / count)


def _feed_forward(radius: float, inner: float, outer: float, moves: tuple[float, float]) -> float:
    """S of a feed-forward part of one dimension, as the package has it."""
    layer = bounds.FullLayerNorms(
        inner_norm=inner, outer_norm=outer, inner_mixed_norm=moves[0], outer_mixed_norm=moves[1]
    )
    return _size(
        bounds.FeedForwardCovering, bounds.FullTransformer(1, 1, 1, (layer,)), radius, count=2
    )


@claim(
    id="E-lemma-C.10",
    title="a feed-forward part is covered by how far it moves",
    statement="log N of X ↦ ReLU(XA^x)A^σ + X is at most 2dd_σ log(1 + 2S/ε) with "
    "S = (α^xR^σ + α^σR^x)‖X‖: how far it moves with its weights.",
    formula=r"log N ≤ 2 d d_σ log(1 + \frac{2 (α^x R^σ + α^σ R^x) ‖X‖_{r,∞}}{ε})",
    controls=(
        Control(
            "R^x and R^σ exchanged",
            changes={"size": lambda r, a, b, moves: _feed_forward(r, a, b, moves[::-1])},
        ),
    ),
)
def e_lemma_c_10(context: Context, size: Formula = _feed_forward) -> Evidence:
    """One token that both matrices lengthen while they grow."""
    inner, outer, moves, radius = 2.0, 5.0, (1e-4, 3e-4), 3.0
    token = np.full((1, 1), radius)
    weights = np.array([[[inner]], [[outer]]])
    moved = weights + np.reshape(moves, (2, 1, 1))
    before, after = (np.asarray(attention.FeedForward(*pair)(token)) for pair in (weights, moved))
    used = float(np.abs(after - before).max()) / size(radius, inner, outer, moves)
    return Evidence(
        within("change of the token / S", used, 0.98, 1 + 1e-3),
    )


def _heads(radius: float, norms: Any, count: int) -> float:
    """S of the heads of one layer, as the package has it."""
    layer = bounds.FullLayerNorms((norms,))
    network = bounds.FullTransformer(instances.DIMENSION, 4, instances.DIMENSION, (layer,))
    return _size(bounds.HeadsCovering, network, radius, count)


def _without_value_norm(radius: float, norms: Any, count: int) -> float:
    return _heads(radius, norms, count) / norms.value_norm


@claim(
    id="E-lemma-C.12",
    title="the heads of a layer are covered by how far they move",
    statement="log N of the heads is at most p·log(1 + 2S/ε) with "
    "S = RΣR_v + cR³Σω_v(ω_q + ω_k)(R_q + R_k), with the ω_v that print drops (erratum 5).",
    formula=r"log N ≤ p log(1 + \frac{2 R R^{mha}}{ε}),  "
    r"R^{mha} = Σ_i R_v^i + c R^2 Σ_i ω_v^i (ω_q^i + ω_k^i)(R_q^i + R_k^i)",
    printed=r"R^{mha} = Σ_i R_v^i + R^2 Σ_i (ω_q^i + ω_k^i)(R_q^i + R_k^i)",
    controls=(Control("without ω_v, as printed", changes={"size": _without_value_norm}),),
)
def e_lemma_c_12(context: Context, size: Formula = _heads) -> Evidence:
    """The query that reads opposite tokens evenly, ω_v = 10, while W_k leaves 0."""
    step = 1e-4
    moved = lipschitz.heads_weight_perturbation(*instances.even_reader(10.0, step, copies=200))
    # The query e₂ is mapped to e₁ with norm 1; W_k moves by 10⁻⁴, the others do not.
    norms = bounds.FullHeadNorms(1.0, step, 10.0, 0.0, step, 0.0)
    dimensions = 3 * instances.DIMENSION**2
    used = float(moved.measured) / size(1.0, norms, dimensions)
    return Evidence(
        within("change of the heads / S", used, 0.98, 1 + 1e-3),
    )


def _complexity(network: Any, sample: Any) -> float:
    """The complexity as the package has it."""
    return bounds.TransformerComplexity(network).evaluate(sample).value


@claim(
    id="E-lemma-C.7",
    title="the complexity of the full Transformer, by Dudley's integral",
    statement="Where log N(ε) ≤ p·log(1 + 2S/ε), inf_ξ 4ξ + (12/√n)∫_ξ^1 √log N dε is at most "
    "12√p(2 + √log(1 + 2S))/√n.",
    formula=r"inf_ξ 4ξ + \frac{12}{\sqrt{n}} ∫_ξ^1 \sqrt{log N(ε)} dε ≤ "
    r"\frac{12 \sqrt{p}}{\sqrt{n}} (2 + \sqrt{log(1 + 2 R_T^{trans} R_T)})",
    controls=(
        Control(
            "6 for Dudley's 12",
            changes={"value": lambda *given: _complexity(*given) / 2},
        ),
    ),
)
def e_lemma_c_7(context: Context, value: Formula = _complexity) -> Evidence:
    """The integral by another quadrature, and below the closed form.

    The 2 of the closed form is the paper's for √π/2 = 0.886, so that it is at most 1.13 times 12√p
    over √n above the integral: with a large S the two come together.
    """
    rng, integrals, ratios = context.generator(e_lemma_c_7.id), [], []
    for _ in range(20):
        network, n = draw_network(rng, depth=3, decades=1.0), int(10.0 ** rng.uniform(10, 14))
        sample = Sample(n, 1)
        p, size = by_hand.count_parameters(network), by_hand.moved(network, 1.0, sharp=True)
        closed = 12 * math.sqrt(p / n) * (2 + math.sqrt(math.log1p(2 * size)))
        # The best ξ has p log(1 + 2S/ξ) = n/9, so that with n ≥ 10¹⁰ it is next to 0.
        area = scipy.integrate.quad(
            lambda u, twice=2 * size: (
                math.sqrt(np.logaddexp(0.0, math.log(twice) + u)) * math.exp(-u)
            ),
            *(0.0, 700.0),
            points=(1.0, 10.0, 50.0),
            epsabs=0,
            epsrel=1e-10,
            limit=400,
        )[0]
        exact = 12 * math.sqrt(p / n) * area
        integrals.append(abs(value(network, sample) / exact - 1))
        ratios.append(exact / closed)
    long = bounds.FullTransformer.uniform(2, 2, n_layers=400, norm=10.0)
    n, (log_size, _) = 10**18, log_deviation(long, 1.0)
    closed = np.exp(log_closed(long.n_parameters, log_size, math.log(n))).sum()
    used = value(long, Sample(n, 1)) / closed
    return Evidence(
        close("20 networks: relative error of the integral", largest_of(integrals), 1e-7),
        at_most("largest integral / closed form", largest_of(ratios), 1.0),
        within("400 layers of norm 10: integral / closed form", used, 0.98, 1.0),
    )


def _gap(network: Any, sample: Any) -> float:
    """The gap as the package has it."""
    return bounds.FullTransformerGap(network).evaluate(sample).value


@claim(
    id="E-thm-C.5",
    title="the generalization gap, by the complexity",
    statement="With probability 1 − δ, E ℓ − Ê ℓ ≤ b(2R̂ + 3√(log(2/δ)/(2n))) for all functions of "
    "the class, for a loss in an interval of length b.",
    formula=r"sup_f E ℓ(f) − \hat{E} ℓ(f) ≤ b (2 \hat{R} + 3 \sqrt{\frac{log(2/δ)}{2n}})",
    controls=(
        Control("a fifth of it", changes={"value": lambda *given: _gap(*given) / 5}),
        Control("R̂ in the place of 2R̂", changes={"rademacher": memorizers.half}),
    ),
)
def e_thm_c_5(
    context: Context, value: Formula = _gap, rademacher: Formula = memorizers.complexity
) -> Evidence:
    """Exact probabilities for one function, and a class that has the gap 2R̂ on every sample.

    One function has no complexity, and a third of the last term would do for it (S-lemma-2.2 has
    where the 3 comes from). Losses that are 0 on finitely many points and 1 elsewhere have R̂ = 1/2
    and the gap 1: nothing smaller than 2R̂ is true.
    """
    still = bounds.FullTransformer.uniform(1, norm=1e-9)
    used = []
    for m in (10, 50, 400):
        complexity = bounds.TransformerComplexity(still).evaluate(Sample(m, 1)).value
        allowed = value(still, Sample(m, 1, delta=0.05)) - 2 * complexity
        # Training errors of a function whose test error is 1/2: their number is binomial.
        used.append((0.5 - scipy.stats.binom.ppf(0.05, m, 0.5) / m) / allowed)
    return Evidence(
        within("one function: gap of probability δ / what is allowed", largest_of(used), 0.2, 1.0),
        within(
            "losses that remember 10⁶ points: gap / bound",
            memorizers.used(rademacher(), two_sided=False),
            0.99,
            1.0,
        ),
    )


@claim(
    id="E-eq-C.6",
    title="tokens grow no faster than R_t",
    statement="‖X_t‖_{2,∞} ≤ R_t = R_0 Π_{τ<t} ω̃_τα̃_τ with α̃ = 1 + α^xα^σ and ω̃ = 1 + Σω_v.",
    formula=r"R_t = R_0 ∏_{τ<t} \tilde{ω}_τ^v \tilde{α}_τ,  \tilde{α} = 1 + α^x α^σ,  "
    r"\tilde{ω}^v = 1 + Σ_i ω_v^i",
    label="(C.6), (G.6)",
    controls=(
        Control(
            "without skips",
            breaks={
                "finetti.attention.lipschitz.residual_radii": lambda right: (
                    lambda radius, inner, outer: right(
                        radius, [each - 1 for each in inner], [each - 1 for each in outer]
                    )
                )
            },
        ),
    ),
)
def e_eq_c_6(context: Context) -> Evidence:
    """Lengths of tokens after three layers over R_3: random networks, and one that attains it."""
    shapes = ((instances.DIMENSION, 6), (6, instances.DIMENSION))

    def radius(layers: Any, longest: Any) -> Any:
        """R_3 from the singular values of the layers."""
        inner = [1 + _spectral(each[0]) * _spectral(each[1]) for each in layers]
        outer = [1 + _spectral(each[4]).sum(axis=-1) for each in layers]
        return lipschitz.residual_radii(longest, inner, outer)[-1]

    def lengths(tokens: Any, layers: Any) -> Any:
        import jax.numpy as jnp

        return jnp.linalg.norm(residual_network(layers)(tokens), axis=-1).max(axis=-1)

    rng, count = context.generator(e_eq_c_6.id), DRAWS // 10
    layers = [
        [
            *(0.3 * rng.normal(size=(count, *shape)) for shape in shapes),
            *instances.weights(rng, count),
        ]
        for _ in range(3)
    ]
    tokens = sizes(rng, -1, 0.5, count) * rng.normal(size=(count, 5, instances.DIMENSION))
    longest = np.linalg.norm(tokens, axis=-1).max(axis=-1)
    found = np.asarray(mapped(lengths, tokens, layers)) / radius(layers, longest)
    axis, along = instances.AXES[:1], instances.FIRST[None]
    tight = [
        [axis.T, outer * axis, 0 * along, 0 * along, value * along]
        for outer, value in ((9.0, 1.0), (0.5, 3.0), (2.0, 0.2))
    ]
    reached = float(lengths(axis, tight)) / float(radius(tight, 1.0))
    return Evidence(
        holds(found, "networks"),
        within("a token that all parts lengthen: length / R_3", reached, 0.98, 1 + RATIO_RTOL),
    )


def _spectral(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.norm(matrices, 2, axis=(-2, -1))


@claim(
    id="E-erratum-8",
    title="printed: ζ with R^v for ω^v",
    statement="ρ̃_t = ω̃_t(1 + ζ_t(α̃_tR_t)²) with ζ_t = (ω^{qk})²R^v/ω̃^v.",
    formula=r"ζ_t = \frac{(ω_t^{qk})^2 ω_t^v}{\tilde{ω}_t^v}",
    printed=r"ζ_t = \frac{(ω_t^{qk})^2 R_t^v}{\tilde{ω}_t^v}",
    label="(C.7)",
    erratum="(C.10) has ω^v, and so does the proof: R^v, which is larger where a matrix has more "
    "than one singular value, makes log(1 + ζR) larger and log(1 + κ/ζ) smaller than it should be.",
    controls=(Control("R^v = ω^v, where print is right", changes={"spread": 1.0}),),
)
def e_erratum_8(context: Context, spread: float = 50.0) -> Evidence:
    """ρ̃ of (C.10) by hand over ω̃(1 + ζR²) with the package's ζ, R^v = 50 ω^v."""
    rng, found = context.generator(e_erratum_8.id), {"printed": [], "derived": []}
    for _ in range(_NETWORKS):
        query, key, value, radius = (10.0 ** rng.uniform(-1, 1, size=4)).tolist()
        head = bounds.FullHeadNorms(query, key, value, 1.0, 1.0, spread * value)
        network = bounds.FullTransformer(4, 4, 4, (bounds.FullLayerNorms((head,)),))
        exact = 1 + value + (query + key) ** 2 * value * radius**2
        for form, errors in found.items():
            zeta = float(Scales.of(network, form).sharpness)  # pyright: ignore[reportArgumentType]
            errors.append(abs((1 + value) * (1 + zeta * radius**2) / exact - 1))

    def measured(form: str) -> Measurement:
        return close(f"{_NETWORKS} heads: ω̃(1 + ζR²)/ρ̃ − 1", largest_of(found[form]), 1e-12)

    return Evidence(measured("printed"), derived=(measured("derived"),))


@claim(
    id="E-lemma-G.2",
    title="means of bounded vectors concentrate",
    statement="If ‖ξ‖ ≤ B/2 and E‖ξ‖² ≤ σ², then ‖mean of L − Eξ‖ ≤ 2(B/L + σ/√L) log(2/δ) with "
    "probability 1 − δ (Caponnetto and De Vito, quoted by the paper).",
    formula=r"‖\frac{1}{L} Σ_i ξ_i − E ξ‖ ≤ 2 (\frac{B}{L} + \frac{σ}{\sqrt{L}}) log\frac{2}{δ}",
    controls=(
        Control("half of it", changes={"factor": 0.5}),
        Control("log(1/δ) in the place of log(2/δ)", changes={"events": 1}),
    ),
)
def e_lemma_g_2(context: Context, factor: float = 1.0, events: int = 2) -> Evidence:
    """Deviations of probability δ over what is allowed: of coins, and in many dimensions.

    In many dimensions the deviation is hardly random: about σ/√L with probability δ = 0.99, where
    the bound has 2 log(2/δ) = 1.4 times that.
    """

    def allowed(length: int, delta: float) -> float:
        # |ξ| = 1: B = 2 and σ = 1.
        return factor * 2 * (2 / length + length**-0.5) * math.log(events / delta)

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

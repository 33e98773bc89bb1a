"""Norms of targets for random heads, without and with a bias, and for random neurons."""

import math
from itertools import product
from typing import Any

import numpy as np

from finetti import attention, show
from finetti.bounds import Sample
from finetti.bounds import random_features as bounds
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, Measurement, at_least, at_most, close, trend, within
from finetti.claims.perturbations import unit_vectors
from finetti.core.numbers import largest_of, smallest_of


def interpolant_norm(kernel: Any, query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> float:
    """yᵀ(K + ηI)⁻¹y, which is at most the squared norm of any function with the values y.

    η = 10⁻¹⁰ of K's mean keeps the solution stable, and only makes it smaller.
    """
    gram = np.asarray(kernel.gram(query, keys))
    ridge = 1e-10 * np.trace(gram) / len(gram)
    return float(values @ np.linalg.solve(gram + ridge * np.eye(len(gram)), values))


def draw_contexts(
    rng: np.random.Generator, count: int, length: int, dimension: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and a direction b, all on the unit sphere."""
    query = unit_vectors(rng, count, dimension)
    keys = unit_vectors(rng, count, length, dimension)
    return query, keys, unit_vectors(rng, dimension)


POINTS, DEGREE = 64, 6


def _arc_cosine(u: np.ndarray) -> np.ndarray:
    """κ₁(u) = (√(1 − u²) + u(π − arccos u))/(2π) of complex u inside the unit circle."""
    return (np.sqrt(1 - u * u) + u * (np.pi - np.arccos(u))) / (2 * np.pi)


def _circle(radius: float) -> np.ndarray:
    """Evenly spaced points on a circle around 0."""
    return radius * np.exp(2j * np.pi * np.arange(POINTS) / POINTS)


def attention_coefficients() -> np.ndarray:
    """κ_rs of κ₁((1 + a)(1 + b)/4)(1 + b) = Σ κ_rs a^r b^s, r and s ≤ 6."""
    radius = 0.75  # κ₁ ends at |u| = 1, which |a| = |b| = 1 would reach
    a, b = _circle(radius)[:, None], _circle(radius)[None, :]
    values = _arc_cosine((1 + a) * (1 + b) / 4) * (1 + b)
    degrees = np.arange(DEGREE + 1)
    found = np.fft.fft2(values)[: DEGREE + 1, : DEGREE + 1].real / POINTS**2
    return found / radius ** (degrees[:, None] + degrees[None, :])


def network_coefficients(context_length: int) -> np.ndarray:
    """κ_k of κ₁((1 + s)/(N + 2)) = Σ κ_k s^k, k ≤ 6."""
    radius = 0.5 * (context_length + 1)  # half of the way to |u| = 1
    values = _arc_cosine((1 + _circle(radius)) / (context_length + 2))
    found = np.fft.fft(values)[: DEGREE + 1].real / POINTS
    return found / radius ** np.arange(DEGREE + 1)


def targets(
    query: np.ndarray, keys: np.ndarray, direction: np.ndarray
) -> list[tuple[str, np.ndarray, Any, tuple[int, int], float]]:
    """Averages over the keys: name, values, description, degrees (r, s) and ‖Sym f_rs‖².

    The last for a unit vector b: ⟨b, b⟩², the trace of I, and ‖(I⊗b + its transpose in the key's
    slots)/2‖² = (d + d + 2‖b‖²)/4.
    """
    correlation = np.einsum("nd,nid->ni", query, keys)
    along, d, target = keys @ direction, query.shape[1], bounds.Target
    power, both = target.correlation_power(1, dimension=d), target.correlation_times_power(1, 1, d)
    return [
        ("⟨b,x⟩²", (along**2).mean(axis=1), target.key_power(2), (0, 2), 1.0),
        ("⟨x₀,x⟩", correlation.mean(axis=1), power, (1, 1), d),
        ("⟨x₀,x⟩⟨b,x⟩", (correlation * along).mean(axis=1), both, (1, 2), (d + 1) / 2),
    ]


def _sharp(target: "bounds.Target") -> float:
    """Σ‖Sym f_rs‖²/κ_rs, as the package has it."""
    return bounds.AttentionNorm(target).evaluate(Sample(1, 1)).value


@claim(
    id="R-norm-rfa",
    title="the norm of a polynomial target",
    statement="(1/N)Σ_i Σ_rs⟨f_rs, x₀^{⊗r} ⊗ x_i^{⊗s}⟩ is an infinite-head attention with "
    "E‖v(W)‖² ≤ Σ‖Sym f_rs‖²/κ_rs, which is at most 4.42 times the stated Σ C_k‖f_rs‖², "
    "C_k = max(k^4.5·4^k, 1), for all degrees up to 20.",
    formula=r"E‖v(W)‖^2 ≤ Σ_{r,s} \frac{‖f_{rs}‖^2}{κ_{rs}},  κ_{rs} = Σ_ℓ c_ℓ 4^{-ℓ} "
    r"\binom{ℓ}{r} \binom{ℓ+1}{s}",
    label="expressivity theorem (stated; constants derived)",
    controls=(Control("a norm 20 % too large", changes={"norm": lambda f: 1.2 * _sharp(f)}),),
)
def r_norm_rfa(context: Context, norm: Formula = _sharp) -> Evidence:
    """Interpolation norms against Σ‖f_rs‖²/κ_rs, which is recomputed; C_k against 1/κ_rs, k ≤ 20.

    Interpolation comes within 28 % of the norm; κ_rs by Fourier sums over circles pins it.
    """
    rng = context.generator(r_norm_rfa.id)
    contexts = draw_contexts(rng, context.pick(quick=600, paper=2_500), length=1)
    kernel = attention.InfiniteHeadKernel(contexts[0].shape[1])
    coefficients = attention_coefficients()
    shares, errors, rows = [], [], []
    for name, values, target, degrees, size in targets(*contexts):
        bound = norm(target)
        found = interpolant_norm(kernel, *contexts[:2], values)
        shares.append(found / bound)
        errors.append(abs(bound * coefficients[degrees] / size - 1))
        rows.append((name, found, bound))
    series = largest_of(
        abs(math.exp(bounds.log_kernel_coefficient(r, s)) / coefficient - 1)
        for (r, s), coefficient in np.ndenumerate(coefficients)
    )
    constants = {k: math.exp(bounds.log_stated_constant(k)) for k in range(1, 21)}
    stated = largest_of(abs(value / (k**4.5 * 4**k) - 1) for k, value in constants.items())
    worst = largest_of(
        -bounds.log_kernel_coefficient(r, s) - bounds.log_stated_constant(max(r, s))
        for r, s in product(range(21), repeat=2)
    )
    return Evidence(
        at_most("largest interpolation norm / sharp norm", largest_of(shares), 1.0),
        at_least("smallest of them (the bound is not idle)", smallest_of(shares), 0.3),
        close("sharp norms by Fourier sums (relative)", largest_of(errors), 1e-8),
        close("κ_rs by Fourier sums, r and s ≤ 6 (relative)", series, 1e-8),
        close("C_k − k^4.5·4^k, 1 ≤ k ≤ 20 (relative)", stated, 1e-12),
        within("largest (1/κ_rs)/C_k, k ≤ 20", math.exp(worst), 4.41, 4.42),
        tables=(show.Table("d = 4", ("target", "interpolated", "sharp norm"), tuple(rows)),),
    )


_CASES = ((1, 1), (2, 1), (1, 2))  # degree p of F(t) = t^p, and L


def _biased_norm(degree: int, terms: int) -> float:
    """The d-free norm of F(t) = t^p cut after L terms, as the package has it."""
    target = bounds.CorrelationTarget((0.0,) * degree + (1.0,))
    return bounds.BiasedNorm(target, terms).evaluate(Sample(1, 1)).value


def _component_norm(order: int, dimension: int) -> float:
    """The exact squared norm of μ_l(t)⟨β, x⟩, ‖β‖ = 1, in the l-th part of the biased kernel.

    That part is μ_l(t)μ_l(t')(1 + ⟨x₀,x₀'⟩)^l(1 + ⟨x,x'⟩)^{l+1}/4^l, so by Funk–Hecke on both
    spheres it is 4^l/(E(1 + a)^l·d·E a(1 + a)^{l+1}), a the first coordinate of a uniform point. As
    d grows it tends from below to 4^l/(l + 1), which the norm puts for it.
    """

    def moment(k: int) -> float:  # E a^k
        return 0.0 if k % 2 else math.prod((i + 1) / (dimension + i) for i in range(0, k, 2))

    constant = sum(math.comb(order, k) * moment(k) for k in range(order + 1))
    linear = sum(math.comb(order + 1, k) * moment(k + 1) for k in range(order + 2))
    return 4**order / (constant * dimension * linear)


def _by_hand(degree: int, terms: int, dimension: int) -> float:
    """Σ_m G_m²(m+2)!·‖μ_{m+2}(t)⟨β, x⟩‖² with G_m = E[G_L(g) He_m(g)]/m! by quadrature."""
    size = degree + 2 * terms + 1
    nodes, weights = np.polynomial.hermite_e.hermegauss(size)
    cut = sum((nodes**2 / 2) ** j / math.factorial(j) for j in range(terms + 1))
    polynomials = np.polynomial.hermite_e.hermevander(nodes, size - 1)
    # The weights sum to √(2π), the factor that G_L has in front.
    projections = (weights * nodes**degree * cut) @ polynomials
    return sum(
        (projection / math.factorial(m)) ** 2
        * math.factorial(m + 2)
        * _component_norm(m + 2, dimension)
        for m, projection in enumerate(projections.tolist())
    )


def _attained(divisor: float = 1.0) -> tuple[dict[tuple[int, int], float], list[Measurement]]:
    """The norms, over ``divisor``, and that they are attained in high dimension."""
    norms = {case: _biased_norm(*case) / divisor for case in _CASES}
    exact = [_by_hand(*case, dimension=10**6) / norm for case, norm in norms.items()]
    # p = L = 1: √(2π)(t + t³/2) = √(2π)(2.5 He₁ + 0.5 He₃), and 6·64/4 = 96, 120·1024/6 = 20 480.
    explicit = norms[1, 1] / (2 * math.pi * (2.5**2 * 96 + 0.5**2 * 20_480)) - 1
    return norms, [
        within("smallest sum of exact norms / norm, d = 10⁶", smallest_of(exact), 0.999, 1.0),
        within("largest sum of exact norms / norm, d = 10⁶", largest_of(exact), 0.999, 1.0),
        close("p = L = 1: norm / (2π·5720) − 1", explicit, 1e-12),
    ]


@claim(
    id="R-norm-brfa",
    title="biased heads: a norm that is free of d",
    statement="With the mean W₀ = [[I,0],[0,0]], F(⟨x₀,x⟩)⟨β,x⟩ is within ε_L‖F‖_∞ of a function "
    "with E‖v(W)‖² ≤ ‖β‖²Σ_m G_m²(m+2)!4^{m+2}/(m+3), whatever the dimension.",
    formula=r"E‖v(W)‖^2 ≤ ‖β‖^2 Σ_m G_m^2 \frac{(m+2)! 4^{m+2}}{m+3},  ε_L = \frac{1}{2^{L+1} "
    "(L+1)!}",
    label="biased random-feature attention (ε_L stated; norm derived)",
    controls=(Control("the norm divided by 500", lambda _: Evidence(*_attained(500.0)[1])),),
)
def r_norm_brfa(context: Context) -> Evidence:
    """The norm against exact norms of its parts in high dimension, and interpolation norms.

    In few dimensions no function comes near the norm. Each summand of it is attained as d grows,
    which pins all constants; that parts are merely added is Cauchy–Schwarz.
    """
    norms, attained = _attained()
    rng = context.generator(r_norm_brfa.id)
    shares, misses = [], []
    for dimension in (3, 12):
        count = context.pick(quick=400, paper=2_000)
        query, keys, direction = draw_contexts(rng, count, 1, dimension)
        kernel = attention.InfiniteHeadKernel(dimension, "identity")
        t = np.einsum("nd,nd->n", query, keys[:, 0])
        for (degree, terms), norm in norms.items():
            cut = sum((t * t / 2) ** j / math.factorial(j) for j in range(terms + 1))
            function = np.exp(-t * t / 2) * cut * t**degree
            found = interpolant_norm(kernel, query, keys, function * (keys[:, 0] @ direction))
            shares.append(found / norm)
            stated = bounds.truncation_error(terms, form="printed")
            misses.append(float(np.abs(function - t**degree).max()) / stated)
    # At a large degree the d-free norm wins at last.
    high = bounds.CorrelationTarget((0.0,) * 4 + (1.0,))
    ratio = bounds.BiasedAdvantage(high, dimension=10**4).evaluate(Sample(1, 1)).value
    edge = 1 - 1.5 * math.exp(-0.5)
    return Evidence(
        *attained,
        at_most("largest interpolation norm / d-free norm", largest_of(shares), 1.0),
        at_most("largest miss / ε_L, ε_L = 1/(2^{L+1}(L+1)!)", largest_of(misses), 1.0),
        # At t = 1 the miss is what Poisson(1/2) has above L, largest there.
        close("derived ε₁ − (1 − 1.5·e^(−1/2))", bounds.truncation_error(1) - edge, 1e-14),
        at_least("B_RFA/B_BRFA for t⁴, L = 1, d = 10⁴", ratio, 1.0),
        note="At small d and degree the two upper bounds do not cross; the simulation favors the "
        "bias there.",
    )


_LENGTH = 2
_LENGTHS = (10**3, 10**4, 10**5, 10**6)
_POWERS = {1: 0, 2: 1, 3: 3, 4: 3}  # degree p of the average → exponent of N


def _norm(target: "bounds.Target") -> float:
    """B_MLP with two keys, as the package has it."""
    return bounds.NetworkNorm(target).evaluate(Sample(1, _LENGTH)).value


@claim(
    id="R-norm-mlp",
    title="averages cost a network powers of N",
    statement="For (1/N)Σ_i⟨b,x_i⟩^p the norm for random neurons on all tokens exceeds that for "
    "attention by N^{p−1} for p = 1 and even p, and by N^p for odd p ≥ 3. Derived; a ratio of "
    "upper bounds.",
    formula=r"\frac{B_{MLP}}{B_{RFA}} ∼ N^{p−1},  \text{for odd} p ≥ 3: N^p",
    label="comparison with RFMLP (stated; derived)",
    controls=(Control("a norm without 1/N", changes={"norm": lambda f: _LENGTH * _norm(f)}),),
)
def r_norm_mlp(context: Context, norm: Formula = _norm) -> Evidence:
    """Interpolation norms with two keys against B_MLP, recomputed; exponents of B_MLP/B_RFA in N.

    κ_k by Fourier sums over a circle, and the size of the tensors in all slots, pin the norm.
    """
    rng = context.generator(r_norm_mlp.id)
    contexts = draw_contexts(rng, context.pick(quick=600, paper=2_500), _LENGTH)
    kernel = attention.InfiniteMLPKernel(contexts[0].shape[1], _LENGTH)
    coefficients = network_coefficients(_LENGTH)
    shares, errors = [], []
    for _, values, target, (r, s), tensor in targets(*contexts):
        bound = norm(target)
        shares.append(interpolant_norm(kernel, *contexts[:2], values) / bound)
        # An average has N orthogonal terms of weight 1/N²; symmetrized over all slots, C(r+s, r)
        # arrangements of query and key slots are orthogonal, too.
        size = tensor / (_LENGTH * math.comb(r + s, r))
        errors.append(abs(bound * coefficients[r + s] / size - 1))
    powers, records = [], []
    for degree, power in _POWERS.items():
        bound = bounds.AttentionAdvantage(bounds.Target.key_power(degree))
        logs = [bound.evaluate(Sample(1, length)).log_value for length in _LENGTHS]
        slope = (logs[-1] - logs[-2]) / math.log(_LENGTHS[-1] / _LENGTHS[-2])
        name = f"power of N at degree {degree}"
        powers.append(within(name, slope, power - 0.01, power + 0.01))
        records += [
            {"keys": length, "ratio": math.exp(log), "degree": f"p = {degree}"}
            for length, log in zip(_LENGTHS, logs, strict=True)
        ]
    axes = {"keys": "keys N", "ratio": "B_MLP / B_RFA"}
    chart = trend(
        records,
        axes,
        "Samples of the network over samples of attention",
        color="degree",
        log_y=True,
    )
    return Evidence(
        close("B_MLP by Fourier sums (relative)", largest_of(errors), 1e-8),
        at_most("largest interpolation norm / B_MLP", largest_of(shares), 1.0),
        at_least("largest of them (the bound is not idle)", largest_of(shares), 0.3),
        *powers,
        charts=(chart,),
    )

"""Norms of targets for random heads, without and with a bias, and for random neurons.

Whatever interpolates a target at finitely many points has at most the target's own norm.
"""

import math
from itertools import product
from typing import Any

import numpy as np

from finetti import attention
from finetti.bounds import Sample
from finetti.bounds import random_features as bounds
from finetti.claims.claim import CheckMethod, Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most, within
from finetti.claims.random_features.random_inputs import draw_contexts
from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.display.card import Table


def interpolant_norm(kernel: Any, query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> float:
    """yᵀ(K + ηI)⁻¹y, which is at most the squared norm of any function with the values y.

    η = 10⁻¹⁰ of K's mean keeps the solution stable, and only makes it smaller.
    """
    gram = np.asarray(kernel.gram(query, keys))
    ridge = 1e-10 * np.trace(gram) / len(gram)
    return float(values @ np.linalg.solve(gram + ridge * np.eye(len(gram)), values))


def targets(
    query: np.ndarray, keys: np.ndarray, direction: np.ndarray
) -> list[tuple[str, np.ndarray, Any]]:
    """Averages over the keys: name, values and description."""
    correlation = np.einsum("nd,nid->ni", query, keys)
    along, d, target = keys @ direction, query.shape[1], bounds.Target
    power, both = target.correlation_power(1, dimension=d), target.correlation_times_power(1, 1, d)
    return [
        ("⟨b,x⟩²", (along**2).mean(axis=1), target.key_power(2)),
        ("⟨x₀,x⟩", correlation.mean(axis=1), power),
        ("⟨x₀,x⟩⟨b,x⟩", (correlation * along).mean(axis=1), both),
    ]


@claim(
    id="R-norm-rfa",
    title="the norm of a polynomial target",
    statement="A polynomial target (1/N)Σ_i Σ_rs⟨f_rs, x₀^{⊗r} ⊗ x_i^{⊗s}⟩ is an infinite-head "
    "attention whose squared norm is at most a sum over its degrees, which is at most 4.42 times "
    "the stated Σ C_k‖f_rs‖², C_k = max(k^4.5·4^k, 1), for all degrees up to 20.",
    formula=r"E‖v(W)‖^2 ≤ Σ_{r,s} \frac{‖f_{rs}‖^2}{κ_{rs}},  κ_{rs} = Σ_ℓ c_ℓ 4^{-ℓ} "
    r"\binom{ℓ}{r} \binom{ℓ+1}{s}",
    label="expressivity theorem (stated; constants derived)",
    check=CheckMethod.TIGHT,
    controls=(Control("a norm 30 % too small", changes={"factor": 0.7}),),
)
def r_norm_rfa(context: Context, factor: float = 1.0) -> Evidence:
    """Interpolation norms of three targets against the sharp norm; C_k against 1/κ_rs, k ≤ 20."""
    contexts = draw_contexts(context.draws(), context.pick(quick=600, paper=2_500), length=1)
    kernel = attention.InfiniteHeadKernel(contexts[0].shape[1])
    shares, rows = [], []
    for name, values, target in targets(*contexts):
        bound = factor * bounds.AttentionNorm(target).evaluate(Sample(1, 1)).value
        found = interpolant_norm(kernel, *contexts[:2], values)
        shares.append(found / bound)
        rows.append((name, found, bound))
    worst = largest_of(
        -bounds.log_kernel_coefficient(r, s) - bounds.log_stated_constant(max(r, s))
        for r, s in product(range(21), repeat=2)
    )
    return Evidence(
        at_most("largest interpolation norm / sharp norm", largest_of(shares), 1.0),
        at_least("smallest of them (the bound is not idle)", smallest_of(shares), 0.3),
        within("largest (1/κ_rs)/C_k, k ≤ 20", math.exp(worst), 4.41, 4.42),
        tables=(Table("d = 4", ("target", "interpolated", "sharp norm"), tuple(rows)),),
    )


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


@claim(
    id="R-norm-brfa",
    title="biased heads: a norm that is free of d",
    statement="With the mean W₀ = [[I,0],[0,0]], F(⟨x₀,x⟩)⟨β,x⟩ is within ε_L‖F‖_∞ of a function "
    "whose squared norm has a bound that is the same in every dimension.",
    formula=r"E‖v(W)‖^2 ≤ ‖β‖^2 Σ_m G_m^2 \frac{(m+2)! 4^{m+2}}{m+3},  ε_L = \frac{1}{2^{L+1} "
    "(L+1)!}",
    label="biased random-feature attention (ε_L stated; norm derived)",
    check=CheckMethod.TIGHT,
    rejects="a norm larger or smaller by a factor of 1.001",
)
def r_norm_brfa(context: Context) -> Evidence:
    """The norm of F(t) = t against the exact norms of its parts at d = 10⁶; interpolation norms.

    In few dimensions no function comes near the norm: only as d grows each summand is attained.
    """
    norms = {
        (degree, terms): bounds.BiasedNorm(
            bounds.CorrelationTarget((0.0,) * degree + (1.0,)), terms
        )
        .evaluate(Sample(1, 1))
        .value
        for degree, terms in ((1, 1), (2, 1), (1, 2))  # F(t) = t^p, and L
    }
    # p = L = 1: G = √(2π)(t + t³/2) = √(2π)(2.5 He₁ + 0.5 He₃).
    squares = {3: 2.5**2 * math.factorial(3), 5: 0.5**2 * math.factorial(5)}
    parts = (square * _component_norm(order, 10**6) for order, square in squares.items())
    exact = 2 * math.pi * sum(parts)
    rng, count = context.draws(), context.pick(quick=400, paper=2_000)
    shares, misses = [], []
    for dimension in (3, 12):
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
    return Evidence(
        within("p = L = 1, d = 10⁶: sum of exact norms / norm", exact / norms[1, 1], 0.999, 1.0),
        at_most("largest interpolation norm / d-free norm", largest_of(shares), 1.0),
        at_most("largest miss / ε_L, ε_L = 1/(2^{L+1}(L+1)!)", largest_of(misses), 1.0),
    )


_POWERS = {1: 0, 2: 1, 3: 3, 4: 3}  # degree p of the average → exponent of N


@claim(
    id="R-norm-mlp",
    title="averages cost a network powers of N",
    statement="For (1/N)Σ_i⟨b,x_i⟩^p the norm for random neurons on all tokens exceeds that for "
    "attention by N^{p−1} for p = 1 and even p, and by N^p for odd p ≥ 3. Derived; a ratio of "
    "upper bounds.",
    formula=r"\frac{B_{MLP}}{B_{RFA}} ∼ N^{p−1},  \text{for odd} p ≥ 3: N^p",
    label="comparison with RFMLP (stated; derived)",
    check=CheckMethod.TIGHT,
    controls=(Control("a norm 30 % too small", changes={"factor": 0.7}),),
)
def r_norm_mlp(context: Context, factor: float = 1.0) -> Evidence:
    """Interpolation norms with two keys against B_MLP; exponents of B_MLP/B_RFA in N."""
    length = 2
    contexts = draw_contexts(context.draws(), context.pick(quick=600, paper=2_500), length)
    kernel = attention.InfiniteMLPKernel(contexts[0].shape[1], length)
    shares = [
        interpolant_norm(kernel, *contexts[:2], values)
        / (factor * bounds.NetworkNorm(target).evaluate(Sample(1, length)).value)
        for _, values, target in targets(*contexts)
    ]
    powers = []
    for degree, power in _POWERS.items():
        # The norm for attention is free of N.
        bound = bounds.NetworkNorm(bounds.Target.key_power(degree))
        logs = [bound.evaluate(Sample(1, length)).log_value for length in (10**5, 10**6)]
        slope = (logs[1] - logs[0]) / math.log(10)
        name = f"power of N at degree {degree}"
        powers.append(within(name, slope, power - 0.01, power + 0.01))
    return Evidence(
        at_most("largest interpolation norm / B_MLP", largest_of(shares), 1.0),
        at_least("largest of them (the bound is not idle)", largest_of(shares), 0.3),
        *powers,
    )

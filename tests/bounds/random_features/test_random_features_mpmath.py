"""Every formula of paper R again: in 40 digits or more, and tensors by enumeration."""

import math
from dataclasses import replace
from itertools import permutations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetti.bounds.random_features import (
    AttentionNorm,
    BiasedNorm,
    BiasedRisk,
    Component,
    CorrelationTarget,
    NetworkNorm,
    RandomFeatureClass,
    RandomFeatureRisk,
    Target,
    log_kernel_coefficient,
    log_network_coefficient,
    log_stated_constant,
    truncation_error,
)
from finetti.bounds.random_features.arc_cosine_series import log_arc_cosine_coefficients
from finetti.bounds.random_features.correlation_targets import largest_value
from finetti.bounds.random_features.polynomial_targets import squared_norms
from finetti.bounds.value import Sample


@pytest.fixture(autouse=True)
def enough_digits():
    with mp.workdps(40):
        yield


SAMPLE = Sample(1000, 16)


def coefficient(order):
    """c_l of κ₁, from the double factorial."""
    if order < 2:
        return (1 / (2 * mp.pi), mp.mpf(1) / 4)[order]
    if order % 2:
        return mp.mpf(0)
    return mp.fac2(order - 3) ** 2 / (2 * mp.pi * mp.factorial(order))


@pytest.mark.parametrize("order", range(7))
def test_coefficients_of_the_arc_cosine_kernel_by_quadrature(order):
    """c_l = E[σ(g)He_l(g)]²/l!, the integral over the half line where σ(g) = g."""
    polynomial = np.polynomial.hermite_e.herme2poly([0] * order + [1])
    integral = mp.quad(lambda x: x * mp.polyval(list(polynomial[::-1]), x) * mp.npdf(x), [0, 4, 30])
    expected = integral**2 / mp.factorial(order)
    assert abs(expected - coefficient(order)) < 1e-25
    assert abs(math.exp(log_arc_cosine_coefficients(7)[order]) - expected) < 1e-15


def test_coefficients_of_the_arc_cosine_kernel_at_high_orders():
    found = np.exp(log_arc_cosine_coefficients(61))
    np.testing.assert_allclose(found, [float(coefficient(n)) for n in range(61)], rtol=1e-12)


def kappa(r, s):
    return mp.nsum(
        lambda n: coefficient(int(n)) / mp.mpf(4) ** n * mp.binomial(n, r) * mp.binomial(n + 1, s),
        [max(r, s - 1, 0), 4 * max(r, s) + 120],
        method="direct",
    )


def network_kappa(k, length):
    return mp.nsum(
        lambda n: coefficient(int(n)) * mp.binomial(n, k) / mp.mpf(length + 2) ** n,
        [k, 4 * k + 120],
        method="direct",
    )


def value(bound, sample=SAMPLE):
    return bound.evaluate(sample).value


def agrees(found, expected):
    assert abs(mp.expm1(mp.mpf(found) - mp.log(expected))) < 1e-12


@pytest.mark.parametrize(("r", "s"), [(0, 0), (0, 1), (1, 0), (1, 2), (3, 0), (4, 5), (9, 2)])
def test_coefficients_of_the_attention_kernel(r, s):
    agrees(log_kernel_coefficient(r, s), kappa(r, s))


@pytest.mark.parametrize(("k", "length"), [(0, 1), (1, 16), (2, 16), (3, 2), (6, 64)])
def test_coefficients_of_the_network_kernel(k, length):
    agrees(log_network_coefficient(k, length), network_kappa(k, length))


@pytest.mark.parametrize("k", range(1, 21))
def test_the_stated_constants(k):
    agrees(log_stated_constant(k), mp.mpf(k) ** mp.mpf(4.5) * 4**k)


def test_norms_are_tensors_over_coefficients():
    """‖Sym f_rs‖²/κ_rs for a unit vector b, and what symmetrizing over all slots leaves of it."""
    d, length = 4, 3
    cases = [  # ⟨b, b⟩², the trace of I, and ‖(I⊗b + its transpose in the key's slots)/2‖²
        (Target.key_power(2), (0, 2), 1),
        (Target.correlation_power(1, dimension=d), (1, 1), d),
        (Target.correlation_times_power(1, 1, d), (1, 2), mp.mpf(d + 1) / 2),
    ]
    for target, (r, s), size in cases:
        sample = Sample(1, length)
        agrees(AttentionNorm(target).evaluate(sample).log_value, size / kappa(r, s))
        # An average has N orthogonal terms of weight 1/N²; symmetrized over all slots, C(r+s, r)
        # arrangements of query and key slots are orthogonal, too.
        spread = size / (length * mp.binomial(r + s, r)) / network_kappa(r + s, length)
        agrees(NetworkNorm(target).evaluate(sample).log_value, spread)


@pytest.mark.parametrize(("r", "s", "d"), [(0, 0, 3), (1, 0, 3), (2, 1, 3), (1, 3, 2), (2, 2, 2)])
def test_symmetrized_tensors_by_enumeration(r, s, d):
    tensor = np.random.default_rng(r + 5 * s).normal(size=(d,) * (r + s))
    total = np.zeros_like(tensor)
    count = 0
    for first in permutations(range(r)):
        for second in permutations(range(r, r + s)):
            total += tensor.transpose(*first, *second)
            count += 1
    component = Target.from_tensors({(r, s): tensor}).components[0]
    assert math.exp(component.log_square) == pytest.approx(np.sum(tensor**2), rel=1e-12)
    assert math.exp(component.log_symmetric) == pytest.approx(
        np.sum((total / count) ** 2), rel=1e-12
    )


def outer(*factors):
    result = np.ones(())
    for factor in factors:
        result = np.multiply.outer(result, factor)
    return result


def test_named_families_are_their_tensors():
    b = np.array([0.5, -1.0, 2.0])
    norm, eye = float(np.linalg.norm(b)), np.eye(3)
    correlation = outer(eye, eye, b).transpose(0, 2, 1, 3, 4)  # x₀ slots first
    pairs = [
        (Target.key_power(3, norm), {(0, 3): outer(b, b, b)}),
        (Target.correlation_power(2, dimension=3), {(2, 2): outer(eye, eye).swapaxes(1, 2)}),
        (Target.correlation_times_power(1, 2, 3, norm), {(1, 3): outer(eye, b, b)}),
        (Target.correlation_times_power(2, 1, 3, norm), {(2, 3): correlation}),
        (
            Target.correlation_series([0.5, 0.0, -3.0], 3, norm),
            {(0, 1): 0.5 * b, (2, 3): -3 * correlation},
        ),
    ]
    for named, tensors in pairs:
        for form in ("derived", "printed"):
            bounds = (
                AttentionNorm(named, form=form),
                AttentionNorm(Target.from_tensors(tensors), form=form),
            )
            assert value(bounds[0]) == pytest.approx(value(bounds[1]), rel=1e-12)


def test_print_of_the_named_families():
    """C_p‖b‖^{2p}, C_{p+1}d, C_{p+1}d^p, C_pd^p."""

    def printed(target):
        return AttentionNorm(target, form="printed").evaluate(SAMPLE).log_value

    stated = log_stated_constant
    assert printed(Target.key_power(3, 2.0)) == pytest.approx(stated(3) + 6 * math.log(2))
    found = printed(Target.correlation_times_power(1, 4, 16))
    assert found == pytest.approx(stated(5) + math.log(16))
    found = printed(Target.correlation_times_power(4, 1, 16))
    assert found == pytest.approx(stated(5) + 4 * math.log(16))
    found = printed(Target.correlation_power(3, 25))
    assert found == pytest.approx(stated(3) + 6 * math.log(5))


def biased(coefficients, terms):
    """‖β‖ = 1 in 40 digits: convert G_L to Hermite polynomials by repeated division."""
    cut = [mp.mpf(0)] * (2 * terms + 1)
    for j in range(terms + 1):
        cut[2 * j] = 1 / (mp.mpf(2) ** j * mp.factorial(j))
    size = len(coefficients) + 2 * terms
    g = [
        mp.sqrt(2 * mp.pi)
        * sum(mp.mpf(a) * cut[n - k] for k, a in enumerate(coefficients) if 0 <= n - k < len(cut))
        for n in range(size)
    ]
    total = mp.mpf(0)
    for m in reversed(range(size)):
        top = g[m]
        total += top**2 * mp.factorial(m + 2) * mp.mpf(4) ** (m + 2) / (m + 3)
        for k in range(m // 2 + 1):  # He_m = Σ (−1)^k m!/(2^k k! (m−2k)!) t^{m−2k}
            size_k = mp.factorial(m) / (2**k * mp.factorial(k) * mp.factorial(m - 2 * k))
            g[m - 2 * k] -= top * (-1) ** k * size_k
    return total


@pytest.mark.parametrize("terms", [1, 2, 9, 60])
@pytest.mark.parametrize("coefficients", [(0.0, 1.0), (0.3, 0.0, 2.0), (0.0, 1.0, 0.5, -0.25)])
def test_the_biased_norm(coefficients, terms):
    """From exact polynomials, of which repeated division leaves few digits at 60 terms."""
    found = BiasedNorm(CorrelationTarget(coefficients, 2.0), terms).evaluate(SAMPLE)
    with mp.workdps(40 + 4 * terms):
        expected = mp.log(4 * biased(coefficients, terms))
        assert abs(found.log_value - expected) < (1e-12 if terms < 60 else 1e-9 * expected)
    assert "nan" not in found.notes[0]


def test_truncation_and_largest_values():
    for terms in range(1, 8):
        x = mp.mpf(9) / 8  # |t| ≤ 1.5
        tail = 1 - mp.exp(-x) * sum(x**j / mp.factorial(j) for j in range(terms + 1))
        assert truncation_error(terms, 1.5) == pytest.approx(float(tail), rel=1e-12)
        assert truncation_error(terms, 1.5) <= truncation_error(terms, 1.5, "printed")
    grid = np.linspace(-1, 1, 10_001)
    polynomial = np.polynomial.Polynomial([0.1, -1.0, 0.4, 1.3])
    assert largest_value(tuple(polynomial.coef)) == pytest.approx(
        np.abs(polynomial(grid)).max(), rel=1e-6
    )


def symmetric_target(norms):
    """The target with these ‖f_rs‖, all of them symmetric."""
    logs = {degrees: 2 * math.log(norm) for degrees, norm in norms.items()}
    return Target(tuple(Component(r, s, log, log) for (r, s), log in logs.items()))


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 6), st.integers(0, 6)), st.floats(1e-3, 1e3), min_size=1
    ),
    st.floats(1.01, 10),
)
def test_norms_grow_with_every_coefficient(norms, factor):
    pair = next(iter(norms))
    target, larger = (
        symmetric_target(each) for each in (norms, {**norms, pair: factor * norms[pair]})
    )
    for bound in (AttentionNorm, NetworkNorm):
        # The first part grows by factor²; the sum need not show it beside a part 10¹⁶ times larger.
        before, after = (bound(each).evaluate(Sample(100, 16)) for each in (target, larger))
        grown = after.terms[0].log_value - before.terms[0].log_value
        assert grown == pytest.approx(2 * math.log(factor), rel=1e-9)
        assert after.value >= before.value
    printed = AttentionNorm(target, form="printed")
    assert value(AttentionNorm(target)) <= 4.42 * value(printed)


RISKY = Sample(10**6, 16, delta=0.02)


def rates(d, heads):
    n, length, delta = RISKY.n_samples, RISKY.context_length, mp.mpf(RISKY.delta)
    logs = mp.log(mp.mpf(d) * heads) * mp.log(mp.mpf(n) * length * heads)
    first = mp.sqrt((logs + mp.log(1 / delta)) / n)
    return first, mp.sqrt((mp.mpf(d) ** 2 + mp.log(heads)) / (delta * heads))


@pytest.mark.parametrize("form", ["derived", "printed"])
def test_the_excess_risk(form):
    features = RandomFeatureClass(16, 10**7, Target.key_power(2))
    b = mp.exp(AttentionNorm(Target.key_power(2), form=form).evaluate(RISKY).log_value)
    found = RandomFeatureRisk(features, form=form).evaluate(RISKY)
    agrees(found.log_value, mp.sqrt(b) * sum(rates(16, 10**7)))
    assert (found.kind, found.vacuous) == ("scaling", None)


@pytest.mark.parametrize("coefficients", [(0.0, 1.0), (0.3, -1.1, 0.4, 0.8)])
def test_the_excess_risk_with_a_bias(coefficients):
    bound = BiasedRisk(16, 10**9, CorrelationTarget(coefficients, 0.5))
    largest = np.abs(np.polynomial.polynomial.polyval(np.linspace(-1, 1, 20_001), coefficients))
    options = []
    for terms in range(1, 12):
        norm = mp.exp(BiasedNorm(bound.target, terms).evaluate(RISKY).log_value)
        x = mp.mpf(1) / 2
        tail = 1 - mp.exp(-x) * sum(x**j / mp.factorial(j) for j in range(terms + 1))
        options.append(mp.sqrt(norm) * sum(rates(16, 10**9)) + tail * largest.max() / 2)
    assert abs(bound.evaluate(RISKY).log_value - mp.log(min(options))) < 1e-8
    wide = replace(bound, dimension=10**4, n_heads=10**30).evaluate(RISKY).terms[0]
    narrow = replace(bound, n_heads=10**30).evaluate(RISKY).terms[0]
    assert wide.log_value - narrow.log_value < 0.05  # log(dM) alone


def test_a_tensor_of_zeros_has_no_norm():
    assert squared_norms(np.zeros((2, 2)), 1) == (-math.inf, -math.inf)

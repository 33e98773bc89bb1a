"""Monotone in everything, halved by four times the sample, free of L, and never too large."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.bounds import exchangeability as bounds
from finetti.bounds.exchangeability.generalization import ROOT_INTEGRAL, log_closed, log_quadrature
from finetti.bounds.sample import Sample
from finetti.bounds.sweep import larger_norms
from finetti.core.logspace import log_add

SAMPLE = Sample(5_000, 30, loss_lipschitz=4.0, loss_bound=4.0)
NORMS = st.floats(1e-2, 1e2)
NETWORK = bounds.FullTransformer.uniform(6, 9, 2, 2, mixed_norm=3.0)
SINGLE = bounds.SingleAttention(8, 4, 1.5, 3.0, 0.8, 2.0)
ALL = [
    bounds.FullTransformerCovering(NETWORK),
    bounds.FullTransformerCovering(NETWORK, "sharp"),
    bounds.TransformerComplexity(NETWORK),
    bounds.FullTransformerGap(NETWORK),
    bounds.FullTransformerGap(NETWORK, "sharp", "quadrature"),
    bounds.TransformerRisk(NETWORK),
    bounds.TransformerRate(NETWORK),
    bounds.TransformerRate(NETWORK, form="printed"),
    bounds.FullTransformerGap(NETWORK, form="printed"),
    bounds.SingleRate(SINGLE),
    bounds.SingleRate(SINGLE, form="printed"),
    bounds.SingleRisk(SINGLE),
]


def networks():
    head = st.builds(bounds.FullHeadNorms, *([NORMS] * 6))
    layer = st.builds(
        bounds.FullLayerNorms,
        st.tuples(head, head),
        NORMS,
        NORMS,
        NORMS,
        NORMS,
        st.booleans(),
        st.booleans(),
    )
    layers = st.lists(layer, min_size=1, max_size=3)
    return st.builds(bounds.FullTransformer, st.just(6), st.just(9), st.just(3), layers)


@given(networks(), st.sampled_from(["paper", "sharp"]), st.integers(0, 10**6))
def test_the_risk_grows_with_every_norm(network, constants, pick):
    bound = bounds.TransformerRisk(network, constants)
    larger = list(larger_norms(bound, SAMPLE))[:-2]
    path, changed, _ = larger[pick % len(larger)]
    before, after = bound.evaluate(SAMPLE).log_value, changed.evaluate(SAMPLE).log_value
    assert after >= before - 1e-13 * abs(before), path
    assert len(larger) == len(network.layers) * (4 + 12)


@given(networks(), NORMS, st.floats(1.01, 10))
def test_the_risk_grows_with_tokens_and_loss_and_certainty(network, radius, factor):
    bound = bounds.TransformerRisk(network, "sharp")
    sample = replace(SAMPLE, input_norm=radius)
    value = bound.evaluate(sample).log_value
    for change in (
        {"input_norm": factor * radius},
        {"loss_lipschitz": factor * 4},
        {"loss_bound": factor * 4},
        {"delta": SAMPLE.delta / factor},
    ):
        assert bound.evaluate(replace(sample, **change)).log_value > value - 1e-13
    fewer = replace(sample, n_samples=100)
    assert bound.evaluate(fewer).log_value > value


@given(networks(), NORMS)
def test_sharp_is_smaller_and_quadrature_smaller_still(network, radius):
    sample = replace(SAMPLE, input_norm=radius)
    values = [
        bounds.TransformerComplexity(network, constants, integral).evaluate(sample).log_value
        for constants, integral in (
            ("paper", "closed"),
            ("sharp", "closed"),
            ("sharp", "quadrature"),
        )
    ]
    assert values[0] >= values[1] - 1e-12
    assert values[1] >= values[2] - 1e-12


@given(st.integers(1, 10**6), st.floats(-50, 1e4), st.floats(0, 60))
def test_closed_dudley_is_at_least_the_quadrature(p, log_ratio, log_samples):
    closed = log_add(*log_closed(p, log_ratio, log_samples, ROOT_INTEGRAL))
    assert log_quadrature(p, log_ratio, log_samples) <= min(closed, 0.0) + 1e-11


@pytest.mark.parametrize("bound", ALL, ids=lambda bound: f"{bound.name} {bound.form}")
def test_exactly_constant_in_the_context_length(bound):
    values = {
        bound.evaluate(replace(SAMPLE, context_length=length)).log_value
        for length in (1, 2, 1000, 10**9, 10**100)
    }
    assert len(values) == 1


@pytest.mark.parametrize(
    "bound",
    # By quadrature the best cut-off moves with n, and covering numbers do not fall at all.
    [
        each
        for each in ALL
        if each.quantity != "log covering number"
        and getattr(each, "integral", "closed") == "closed"
    ],
    ids=lambda bound: f"{bound.name} {bound.form}",
)
def test_four_times_the_samples_halve_it(bound):
    one, four = (bound.evaluate(replace(SAMPLE, n_samples=n)).log_value for n in (1000, 4000))
    assert one - four == pytest.approx(math.log(2), abs=1e-13)


def test_the_rate_grows_like_the_three_halves_power_of_the_depth():
    sample = Sample(10**9, 10)
    values = [
        bounds.TransformerRate(bounds.FullTransformer.uniform(8, 8, depth))
        .evaluate(sample)
        .log_value
        for depth in (10**3, 4 * 10**3)
    ]
    assert (values[1] - values[0]) / math.log(4) == pytest.approx(1.5, abs=0.02)


def test_no_size_overflows():
    network = bounds.FullTransformer.uniform(10**6, 4 * 10**6, 1000, 4, norm=1e3, mixed_norm=1e6)
    sample = Sample(1000, 10**6, input_norm=1e3)
    for bound in (
        bounds.FullTransformerCovering(network),
        bounds.FullTransformerCovering(network, "sharp"),
        bounds.FullTransformerGap(network),
        bounds.FullTransformerGap(network, form="printed"),
        bounds.FullTransformerGap(network, "sharp", "quadrature"),
        bounds.TransformerRisk(network),
        bounds.TransformerRate(network),
        bounds.TransformerRate(network, form="printed"),
    ):
        found = bound.evaluate(sample)
        assert math.isfinite(found.log_value)
        assert all(not math.isnan(term.log_value) for term in found.terms)
        assert str(found)


def test_samples_needed_is_the_smallest_number():
    network = bounds.FullTransformer.uniform(16, 32, 2, 2)
    bound = bounds.FullTransformerGap(network)
    n = bound.samples_needed(0.1, SAMPLE).count
    assert n is not None
    assert bound.evaluate(replace(SAMPLE, n_samples=n)).value <= 0.1
    assert bound.evaluate(replace(SAMPLE, n_samples=n - 1)).value > 0.1


@given(st.floats(1e-4, 10), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(1.01, 10))
def test_the_attention_error_is_monotone(ridge, dimension, source, factor):
    bound = bounds.ConditionalMeanError(ridge, dimension, 1.0, source)
    value = bound.evaluate(SAMPLE).log_value
    for _, larger, _ in larger_norms(bound, SAMPLE):
        assert larger.evaluate(SAMPLE).log_value > value - 1e-13
    assert bound.evaluate(replace(SAMPLE, context_length=31)).log_value < value
    assert bound.evaluate(replace(SAMPLE, delta=SAMPLE.delta / factor)).log_value > value - 1e-13


def test_tokens_needed_is_the_smallest_length():
    bound = bounds.ConditionalMeanError(0.01, 5.0, 1.0, 1.0)
    length = bound.tokens_needed(0.5, SAMPLE).count
    assert length is not None
    assert bound.evaluate(replace(SAMPLE, context_length=length)).value <= 0.5
    assert bound.evaluate(replace(SAMPLE, context_length=length - 1)).value > 0.5


@given(*([st.floats(0, 10)] * 5))
def test_approximation_errors_are_monotone(a, b, c, d, mu):
    for bound in (
        bounds.SurrogateApproximation(a, b),
        bounds.TransferApproximation(a, b, c, d, mu),
    ):
        value = bound.evaluate(SAMPLE).value
        for _, larger, _ in larger_norms(bound, SAMPLE):
            assert larger.evaluate(SAMPLE).value >= value * (1 - 1e-13)

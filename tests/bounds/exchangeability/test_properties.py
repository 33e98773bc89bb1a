"""Monotone in everything, free of L, and halved by four times the sample where that is stated."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.bounds import exchangeability as bounds
from finetti.bounds.sample import Sample
from finetti.bounds.sensitivity import _grown

SAMPLE = Sample(10**7, 30, loss_lipschitz=4.0, loss_bound=4.0)
NORMS = st.floats(1e-2, 1e2)
NETWORK = bounds.FullTransformer.uniform(6, 9, 2, 2, mixed_norm=3.0)
SINGLE = bounds.SingleAttention(8, 4, 1.5, 3.0, 0.8, 2.0)
ALL = [
    bounds.FullTransformerCovering(NETWORK),
    bounds.FullTransformerGap(NETWORK),
    bounds.FullTransformerGap(NETWORK, form="printed"),
    bounds.TransformerRate(NETWORK),
    bounds.TransformerRate(NETWORK, form="printed"),
    bounds.SingleRate(SINGLE),
    bounds.SingleRisk(SINGLE),
]


def networks():
    head = st.builds(bounds.FullHeadNorms, *([NORMS] * 6))
    norms = [NORMS] * 4
    layer = st.builds(
        bounds.FullLayerNorms, st.tuples(head, head), *norms, st.booleans(), st.booleans()
    )
    layers = st.lists(layer, min_size=1, max_size=3)
    return st.builds(bounds.FullTransformer, st.just(6), st.just(9), st.just(3), layers)


@given(networks(), st.integers(0, 10**6))
def test_the_risk_grows_with_every_norm(network, pick):
    bound = bounds.TransformerRisk(network)
    larger = list(_grown(bound))
    path, changed = larger[pick % len(larger)]
    before, after = bound.evaluate(SAMPLE).log_value, changed.evaluate(SAMPLE).log_value
    assert after >= before - 1e-11, path
    assert len(larger) == len(network.layers) * (4 + 12)


@pytest.mark.parametrize("bound", ALL, ids=lambda bound: f"{bound.name} {bound.form}")
def test_exactly_constant_in_the_context_length(bound):
    values = {
        bound.evaluate(replace(SAMPLE, context_length=length)).log_value
        for length in (1, 1000, 10**100)
    }
    assert len(values) == 1


@pytest.mark.parametrize(
    "bound",
    # Covers do not fall, and Dudley's best cut-off moves with n.
    [each for each in ALL if each.form == "printed" or each.kind == "scaling"],
    ids=lambda bound: f"{bound.name} {bound.form}",
)
def test_four_times_the_samples_halve_it(bound):
    one, four = (bound.evaluate(replace(SAMPLE, n_samples=n)).log_value for n in (1000, 4000))
    assert one - four == pytest.approx(math.log(2), abs=1e-13)


def test_no_size_overflows():
    network = bounds.FullTransformer.uniform(10**6, 4 * 10**6, 1000, 4, norm=1e3, mixed_norm=1e6)
    sample = Sample(1000, 10**6, input_norm=1e3)
    for bound in (
        bounds.FullTransformerCovering(network),
        bounds.FullTransformerGap(network),
        bounds.FullTransformerGap(network, form="printed"),
        bounds.TransformerRate(network),
    ):
        found = bound.evaluate(sample)
        assert math.isfinite(found.log_value)
        assert all(not math.isnan(term.log_value) for term in found.terms)

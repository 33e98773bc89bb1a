"""Free of L, and halved by four times the sample where that is stated."""

import math
from dataclasses import replace

import pytest

from finetti.bounds import exchangeability as bounds
from finetti.bounds.sample import Sample

SAMPLE = Sample(10**7, 30, loss_lipschitz=4.0, loss_bound=4.0)
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

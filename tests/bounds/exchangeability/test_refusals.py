"""What paper E's bounds refuse, in their own name, and what they ask for instead."""

import math

import numpy as np
import pytest

from finetti.bounds import BoundSettings, Sample, build_bounds, load_bounds
from finetti.bounds import exchangeability as bounds
from finetti.bounds.parameter_count import ParameterCountGap
from finetti.bounds.random_features import RandomFeatureRisk
from finetti.bounds.sparse_variables import ProjectedLayerNorms, TransformerClass
from finetti.core.errors import InputError, UnsupportedError

NETWORK = bounds.FullTransformer.uniform(4, 4)
SINGLE = bounds.SingleAttention(4, 2)
UNBOUNDED = Sample(1000, 10, loss_bound=math.inf)
OF_RISK = [
    bounds.TransformerRate(NETWORK),
    bounds.TransformerRate(NETWORK, form="printed"),
    bounds.TransformerRisk(NETWORK),
    bounds.FullTransformerGap(NETWORK),
    bounds.SingleRate(SINGLE),
    bounds.SingleRisk(SINGLE),
]


@pytest.mark.parametrize("bound", OF_RISK, ids=lambda bound: f"{bound.name}-{bound.form}")
def test_an_unbounded_loss_is_refused_in_the_same_true_sentence(bound):
    with pytest.raises(UnsupportedError) as refused:
        bound.evaluate(UNBOUNDED)
    count = ParameterCountGap(TransformerClass(layers=(ProjectedLayerNorms(),), width=4))
    with pytest.raises(UnsupportedError) as other:
        count.evaluate(UNBOUNDED)
    first, second = str(refused.value), str(other.value)
    assert first.startswith(f"{bound.name} assumes a bounded loss")
    assert first.removeprefix(bound.name) == second.removeprefix(count.name)
    # The bound that the sentence names does take such a loss.
    assert RandomFeatureRisk.name in first
    assert all("bounded" not in each for each in RandomFeatureRisk.assumes)


def test_layer_norm_is_sent_to_a_bound_that_takes_it():
    network = bounds.FullTransformer.uniform(4, 4, normalization="layer_norm")
    with pytest.raises(UnsupportedError, match=r"Nearest bound: F-chain-blocks-gap\."):
        bounds.FullTransformerGap(network).evaluate(Sample(1000, 10))
    real = BoundSettings(width=4, norms={"normalization": "layer_norm", "skips": True})
    (blocks,) = build_bounds([load_bounds().get("F-chain-blocks-gap")], real)
    assert blocks.evaluate(Sample(1000, 10)).value > 0


def test_generalization_error_is_a_quantity_of_its_own_that_can_be_inverted():
    quantities = {bound.quantity for bound in OF_RISK if bound.name != "E-thm-C.5"}
    assert quantities == {"generalization error"}
    assert RandomFeatureRisk.quantity == "excess risk"
    needed = bounds.TransformerRisk(NETWORK).samples_needed(0.5, Sample(1, 1))
    reached = bounds.TransformerRisk(NETWORK).evaluate(Sample(needed.count, 1))
    assert reached.value <= 0.5
    assert reached.vacuous is False


def test_tokens_for_a_tiny_ridge_are_counted_and_no_bias_is_blamed():
    bound = bounds.RegularizedDeviation(1e-200)
    needed = bound.tokens_needed(0.1, Sample(1, 1))
    assert needed.log_value > 300 * math.log(10)
    assert bound.evaluate(Sample(1, needed.count)).log_value <= math.log(0.1)
    biased = bounds.ConditionalMeanError(0.25, source_norm=2.0)
    with pytest.raises(InputError, match=r"stays at 0\.5 or above.*the bias of the ridge stays"):
        biased.tokens_needed(0.4, Sample(1, 1))
    with pytest.raises(UnsupportedError, match="does not fall with the number of tokens"):
        bounds.RidgeBias(0.25, source_norm=2.0).tokens_needed(0.6, Sample(1, 1))
    with pytest.raises(UnsupportedError, match="Solve for tokens"):
        bound.samples_needed(0.1, Sample(1, 1))


def test_a_gram_matrix_has_no_negative_eigenvalue():
    with pytest.raises(InputError, match=r"`gram` .* semi-definite.* Got the eigenvalue -1"):
        bounds.RegularizedDeviation.from_keys(-np.eye(3), 0.1)
    keys = np.random.default_rng(0).normal(size=(30, 2))
    assert (
        0 < bounds.RegularizedDeviation.from_keys(keys @ keys.T, 0.1).effective_dimension < 2
    )  # rounding is no negative part


@pytest.mark.parametrize("radius", [0.1, 1.0, 30.0])
def test_the_rates_of_both_theorems_differ_by_the_factor_that_they_hide(radius):
    """Assumption 5.1 lets ω^q = ω^k = ω^v = ω: then ζ of Theorem C.4 is 4ω², of 5.3 it is ω²."""
    single = bounds.SingleAttention(8, 4, 1.5, 3.0, 0.8, 2.0)
    sample = Sample(10**6, 10, input_norm=radius)
    special = bounds.SingleRate(single).evaluate(sample).value
    general = bounds.TransformerRate(single.as_network()).evaluate(sample).value
    assert special / 2 <= general <= 2 * special
    assert general != special


def test_the_rate_may_fall_in_the_attention_norm_and_the_risk_never_does():
    sample = Sample(10**6, 10, input_norm=0.01)
    small, large = (bounds.SingleAttention(8, 4, omega, 100.0) for omega in (0.5, 1.0))
    values = [bounds.SingleRate(each).evaluate(sample).value for each in (small, large)]
    assert values[1] < values[0]
    risks = [bounds.SingleRisk(each).evaluate(sample).value for each in (small, large)]
    assert risks[1] >= risks[0]

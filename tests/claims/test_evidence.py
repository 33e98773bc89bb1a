"""What claims compute: instances where lemmas are tight or printed forms fail."""

from dataclasses import replace

import numpy as np
import pytest

from finetti.attention.lipschitz import (
    attention_token_perturbation,
    attention_weight_perturbation,
    heads_token_perturbation,
    heads_weight_perturbation,
    residual_perturbation,
    softmax_perturbation,
)
from finetti.bounds import exchangeability as bounds
from finetti.bounds.sample import Sample
from finetti.claims.exchangeability.head_perturbations import amplified
from finetti.claims.exchangeability.instances import AXES, even_reader, heads
from finetti.claims.sparse_variables.instances import (
    balanced,
    first_axis,
    layer,
    two_layers,
    two_tokens,
)

SAMPLE = Sample(1000, 20)


@pytest.mark.parametrize(
    "found",
    [
        softmax_perturbation(np.zeros(2), np.array([1e-3, -1e-3])),
        attention_weight_perturbation(
            layer(first_axis(0.0)), layer(first_axis(1e-3)), two_tokens(2.0)
        ),
        attention_token_perturbation(layer(balanced(50, 1e-6)[0]), *balanced(50, 1e-6)[1:]),
        two_layers(),
    ],
)
def test_tight_instances_see_a_factor_of_two(found):
    assert 0.98 <= found.ratio <= 1 + 1e-9


def test_printed_a_13_fails_for_long_tokens():
    pair = layer(first_axis(0.0)), layer(first_axis(0.155))
    printed = attention_weight_perturbation(*pair, two_tokens(2.0), "printed")
    np.testing.assert_allclose(printed.measured / 0.155, 7.1, atol=0.05)
    np.testing.assert_allclose(printed.bound / 0.155, 4.0)
    assert not printed.holds


def test_printed_order_fails_on_two_layers():
    derived, printed = two_layers(), two_layers("printed")
    np.testing.assert_allclose(
        [derived.measured, derived.bound, printed.bound], [0.025, 0.025, 0.005], rtol=1e-10
    )


def test_tight_heads_and_networks():
    weights = heads_weight_perturbation(*even_reader(10.0, 1e-4, copies=200))
    opposite = AXES[:1] * [[1.0], [-1.0]]
    sharp = heads(0 * AXES[None], 40 * AXES[None], AXES[None])
    tokens = heads_token_perturbation(sharp, opposite, opposite + 1e-6 * AXES[0])
    network = residual_perturbation(*amplified(1.0, 1e-4))
    for found in (weights, tokens, network):
        assert 0.98 <= found.ratio <= 1 + 1e-9


def test_printed_c_11_fails_at_ten():
    printed = heads_weight_perturbation(*even_reader(10.0, 0.01), "printed")
    np.testing.assert_allclose(printed.measured, 0.0247, atol=2e-4)
    np.testing.assert_allclose(printed.bound, 0.0101, atol=1e-10)
    assert not printed.holds


def test_printed_radii_of_c_14_fail_behind_a_steep_feed_forward_part():
    instance = amplified(10.0, 1e-4)
    assert not residual_perturbation(*instance, "printed").holds
    assert bool(residual_perturbation(*instance).holds)


def test_erratum_5_print_misses_the_values():
    """ω_v = 10: the heads move by more than print allows."""
    first, second, tokens = even_reader(10.0, 0.01)
    measured = np.abs(np.asarray(first(tokens, tokens) - second(tokens, tokens))).max()
    # W_k alone moves, by 0.01: its class has mixed norm 0.01 there and 0 elsewhere.
    head = bounds.FullHeadNorms(1.0, 0.01, 10.0, 0.0, 0.01, 0.0)
    network = bounds.FullTransformer(4, 4, 4, (bounds.FullLayerNorms((head,)),))
    printed = bounds.HeadsDeviation(network, change=1.0, form="printed").evaluate(SAMPLE).value
    derived = bounds.HeadsDeviation(network, change=1.0).evaluate(SAMPLE).value
    assert printed < measured <= derived
    assert derived == pytest.approx(10 * printed)


def test_erratum_6_print_misses_the_feed_forward_part():
    """α̃ = 10, then heads with ω_v = 1."""
    first, second, tokens = amplified(10.0, 1e-4)
    measured = np.abs(np.asarray(first(tokens) - second(tokens))).max()
    layer = bounds.measure_network(first).layers[0]
    head = bounds.FullHeadNorms(1.0, 1e-4, 1.0, 0.0, 1e-4, 0.0)
    frozen = replace(layer, heads=(head,), inner_mixed_norm=0.0, outer_mixed_norm=0.0)
    network = bounds.FullTransformer(4, 8, 4, (frozen,))
    printed, derived = (
        bounds.TransformerDeviation(network, change=1.0, form=form).evaluate(SAMPLE).value
        for form in ("printed", "derived")
    )
    assert printed < measured <= derived

"""What claims compute: instances where lemmas are tight or printed forms fail."""

import numpy as np
import pytest

from finetti.attention.lipschitz import (
    attention_token_perturbation,
    attention_weight_perturbation,
    heads_token_perturbation,
    heads_weight_perturbation,
    network_perturbation,
    residual_perturbation,
    softmax_perturbation,
)
from finetti.claims.exchangeability.residual_perturbations import (
    AXES,
    amplified,
    even_reader,
    heads,
)
from finetti.claims.sparse_variables.tight_layers import (
    balanced,
    first_axis,
    layer,
    two_layers,
    two_tokens,
)


@pytest.mark.parametrize(
    "found",
    [
        softmax_perturbation(np.zeros(2), np.array([1e-3, -1e-3])),
        attention_weight_perturbation(
            layer(first_axis(0.0)), layer(first_axis(1e-3)), two_tokens(2.0)
        ),
        attention_token_perturbation(layer(balanced(50, 1e-6)[0]), *balanced(50, 1e-6)[1:]),
        network_perturbation(*two_layers()),
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
    derived, printed = (
        network_perturbation(*two_layers(), form) for form in ("derived", "printed")
    )
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

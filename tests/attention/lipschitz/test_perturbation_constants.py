"""The constants are pure formulas: no JAX, known values, and the right way round."""

import subprocess
import sys

import numpy as np
import pytest

from finetti.attention.lipschitz import (
    amplifications,
    heads_token_constant,
    heads_weight_bound,
    layer_constant,
    layer_radii,
    rbf_constant,
    residual_deviation,
    residual_radii,
    softmax_distance,
    token_constant,
    weight_bound,
)
from finetti.attention.networks.softmax_constants import bandwidth, softmax_constant
from finetti.core.errors import InputError


def test_the_constants_need_no_jax():
    code = (
        "import sys; from finetti.attention.lipschitz import layer_constant, rbf_constant; "
        "layer_constant(1.0, 1.0, 1.0, 1.0); rbf_constant(2.0, 4); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unit_norms_amplify_by_three_and_print_says_five():
    assert layer_constant(1.0, 1.0, 1.0, 1.0) == 3
    assert layer_constant(1.0, 1.0, 1.0, 1.0, form="printed") == 5
    assert token_constant(2.0, 0.5, radius=2.0) == 2 * (1 + 2 * 0.5 * 4)


def test_two_layers_of_the_test_vector():
    """q_i = min(1, B_V r_i), r_{i+1} = min(1, B_C q_i), for the layers of A.17's test vector."""
    radii = layer_radii(1.5, 1.0, output_norms=(1.1, 0.7), value_norms=(0.8, 1.3))
    np.testing.assert_allclose(radii, (1.5, 1.0, 0.7))
    radii = layer_radii(1.0, 1.0, output_norms=(1.1, 0.7), value_norms=(0.8, 1.3))
    np.testing.assert_allclose(radii, (1.0, 0.88, 0.7))


def test_amplification_by_the_layers_after_and_in_print_before():
    factors = [2.0, 3.0, 5.0, 7.0]
    assert amplifications(factors) == (105, 35, 7, 1)
    assert amplifications(factors, "printed") == (1, 2, 6, 30)
    assert amplifications([4.0]) == amplifications([4.0], "printed") == (1,)


def test_softmax_saturates():
    assert softmax_constant() * 0.1 > softmax_distance(0.1) > 0.0999
    assert softmax_distance(np.array([100.0])) == 2


def test_the_printed_bandwidth_makes_the_derived_constants_smaller_than_print():
    for r in (1.0, 1.5, 2.0, 3.0, np.inf):
        for dimension in (1, 4, 64):
            width = bandwidth(dimension, r=r)
            derived = rbf_constant(width, dimension, r)
            assert derived <= 0.5 + 1e-12
            assert rbf_constant(width, dimension, r, "printed") == 1


def test_heads_add_up_and_print_lacks_the_values():
    one = heads_weight_bound([0.1], [2.0], [0.3], [10.0], 1.5, 4.0)
    np.testing.assert_allclose(one, 1.5 * 0.1 + 1.5**3 * 10 * 2 * 0.3 / 4)
    printed = heads_weight_bound([0.1], [2.0], [0.3], [10.0], 1.5, 4.0, "printed")
    np.testing.assert_allclose(printed, 1.5 * 0.1 + 1.5**3 * 2 * 0.3)
    pair = heads_weight_bound([0.1] * 2, [2.0] * 2, [0.3] * 2, [10.0] * 2, 1.5, 4.0)
    np.testing.assert_allclose(pair, 2 * one)
    rho = heads_token_constant([1.0, 2.0], [3.0, 1.0], radius=2.0, bandwidth=4.0)
    np.testing.assert_allclose(rho, 3 + 4 * (9 * 1 + 1 * 2) / 4)


def test_the_recursion_is_the_sum_of_lemma_c_14():
    rng = np.random.default_rng(0)
    inner_errors, head_errors, inner, heads = rng.uniform(0.5, 2, size=(4, 3))
    total = sum(
        (heads[t] * inner_errors[t] + head_errors[t]) * np.prod(heads[t + 1 :] * inner[t + 1 :])
        for t in range(3)
    )
    np.testing.assert_allclose(residual_deviation(inner_errors, head_errors, inner, heads), total)
    np.testing.assert_allclose(residual_radii(2.0, inner, heads)[-1], 2 * np.prod(inner * heads))


def test_constants_of_arrays_are_arrays():
    norms = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(token_constant(norms, norms), norms * (1 + 2 * norms))
    np.testing.assert_allclose(weight_bound(norms, 1.0, 0.5, radius=2.0), 4 * norms + 0.5)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: softmax_constant("sharp"), "form"),
        (lambda: token_constant(1.0, 1.0, form="sharp"), "form"),
        (lambda: amplifications([]), "factors"),
        (lambda: rbf_constant(1.0, 4, r=0.5), "r"),
        (lambda: bandwidth(0), "head_dimension"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=f"`{word}`"):
        call()

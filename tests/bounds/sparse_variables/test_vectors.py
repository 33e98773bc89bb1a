"""The test vectors of the specification, to all their digits."""

import math

import pytest

from finetti.bounds import Sample
from finetti.bounds.covering.dudley import dudley_printed
from finetti.bounds.sparse_variables import (
    HeadClass,
    HeadCovering,
    LinearMapCovering,
    MultiHeadClass,
    MultiHeadCovering,
    ProjectedTransformerCovering,
    VectorCovering,
)


def log_covering_and_gamma(bound, sample):
    gamma = bound.functions.composition(sample, "derived").log_gamma
    return bound.evaluate(sample).value, math.exp(gamma)


@pytest.mark.parametrize(
    ("constant", "value", "gamma"),
    [(2.0, "37434167.337", "17.626311084"), (1.0, "14006525.6608", "12.8305994873")],
)
def test_one_head(make_head, sample, constant, value, gamma):
    bound = HeadCovering(make_head(norm_lipschitz=constant), resolution=0.3)
    found = log_covering_and_gamma(bound, sample)
    assert [f"{found[0]:.12g}", f"{found[1]:.12g}"] == [value, gamma]


def test_one_head_gamma_cubed(make_head, sample):
    composition = make_head(norm_lipschitz=2.0).composition(sample, "derived")
    assert f"{math.exp(3 * composition.log_gamma):.12g}" == "5476.26293439"


def test_sharp_constant_is_the_default(make_head, sample):
    derived, sharp = (
        HeadCovering(head, 0.3).evaluate(sample).log_value
        for head in (make_head(), make_head(norm_lipschitz=1.0))
    )
    assert derived == sharp


def test_heads(make_heads, sample):
    found = log_covering_and_gamma(MultiHeadCovering(make_heads(norm_lipschitz=2.0), 0.3), sample)
    assert [f"{found[0]:.12g}", f"{found[1]:.12g}"] == ["314357142.239", "35.4840947056"]


@pytest.mark.parametrize(
    ("fields", "input_norm", "value", "gamma"),
    [
        ({}, 1.0, "100528543.081", "24.5896088378"),
        ({}, 1.5, "408583083.981", "38.635130485"),
        ({"activation_lipschitz": 1.3}, 1.0, "337474167.347", "36.3711337981"),
    ],
)
def test_deep_network(make_network, fields, input_norm, value, gamma):
    sample = Sample(n_samples=1000, context_length=49, input_norm=input_norm)
    bound = ProjectedTransformerCovering(make_network(norm_lipschitz=2.0, **fields), resolution=0.3)
    found = log_covering_and_gamma(bound, sample)
    assert [f"{found[0]:.12g}", f"{found[1]:.12g}"] == [value, gamma]


def test_linear_functions(sample):
    values = [
        LinearMapCovering(0.7, 0.1, outputs=8).evaluate(sample).value,
        VectorCovering(1.0, 0.1).evaluate(Sample(n_samples=10**4, context_length=1)).value,
    ]
    assert [f"{value:.12g}" for value in values] == [
        "4142674.82713",
        "49108.1701007",
    ]


def test_printed_closed_form_of_dudley_is_negative_erratum_12():
    # Spectral norms 1 spread over all 64 columns: every column has length 1/8.
    head = HeadClass(width=64, value_column_norm=1 / 8, score_row_norm=1 / 8)
    layer = MultiHeadClass(heads=(head,), width=64)
    sample = Sample(n_samples=200, context_length=400)
    composition = layer.composition(sample, "printed")
    log_constant = composition.log_scaling(0.0, math.log(math.log(200 * 400)))
    assert round(dudley_printed(log_constant, 0.0, math.log(200)), 2) == -8.45

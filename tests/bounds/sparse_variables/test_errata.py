"""What print and proof give differently, in numbers."""

import math
from dataclasses import replace

import pytest

from finetti.bounds import BoundSettings, Sample
from finetti.bounds.sparse_variables import (
    HeadClass,
    HeadCovering,
    MultiHeadClass,
    ProjectedLayerNorms,
    SoftmaxHeadNorms,
    TransformerClass,
    UniformTransformer,
)


def costs(network, sample, form):
    """c_j by matrix and layer."""
    matrices = network.composition(sample, form).matrices
    return {(m.name, m.layer): math.exp(m.log_cost) for m in matrices}


def test_erratum_1_lengths_of_token_and_query():
    head, sample = HeadClass(width=1), Sample(1, 1, input_norm=3.0)
    layer = MultiHeadClass(heads=(SoftmaxHeadNorms(),), width=1)
    found = [
        math.exp(described.log_costs(head, sample, form)[1])
        for described, form in ((head, "derived"), (head, "printed"), (layer, "printed"))
    ]
    assert found == pytest.approx([27, 3, 6])


def test_erratum_2_layers_after_and_the_readout():
    layers = (
        ProjectedLayerNorms(score_norm=0.0),
        ProjectedLayerNorms(score_norm=0.0, value_norm=5.0),
    )
    network, sample = TransformerClass(layers=layers, width=1, readout_norm=7.0), Sample(1, 1)
    derived, printed = (costs(network, sample, form) for form in ("derived", "printed"))
    assert derived["W_C", 1] == pytest.approx(7 * 5)  # amplified by layer 2, and by w
    assert derived["W_C", 2] == pytest.approx(7)
    assert printed["W_C", 1] == pytest.approx(1)
    assert printed["W_C", 2] == pytest.approx(1)  # amplified by layer 1, which has norm 1


def test_erratum_10_steepness_and_length():
    network = TransformerClass(layers=(ProjectedLayerNorms(),), width=1, activation_lipschitz=3.0)
    sample = Sample(1, 1, input_norm=2.0)
    derived, printed = (costs(network, sample, form) for form in ("derived", "printed"))
    assert derived["W_C", 1] == pytest.approx(3)
    assert printed["W_C", 1] == pytest.approx(1)
    assert derived["W_QK", 1] == pytest.approx(3 * 2**3)
    assert printed["W_QK", 1] == pytest.approx(2 * 3)
    assert derived["W_V", 1] == pytest.approx(3 * 2)


def test_depth_costs_even_with_unit_norms():
    def log_cost(depth, form):
        network = TransformerClass(layers=(ProjectedLayerNorms(),) * depth, width=1)
        return math.log(
            costs(network, Sample(1, 1), form)["W_C", depth if form == "printed" else 1]
        )

    for form, factor in (("derived", 3), ("printed", 5)):
        assert log_cost(6, form) - log_cost(5, form) == pytest.approx(math.log(factor))
    shallow, deep = (
        UniformTransformer(n_layers=depth, width=4, form="printed").evaluate(Sample(10, 10))
        for depth in (1, 100)
    )
    assert shallow.log_value == deep.log_value  # what print promises
    shallow, deep = (
        UniformTransformer(n_layers=depth, width=4).evaluate(Sample(10, 10)) for depth in (1, 100)
    )
    assert deep.log_value - shallow.log_value > 2 * 99 * math.log(3)


def test_norms_that_multiply_beyond_any_float():
    """P = L_σC₂²(1 + 2C₂) at 10^150 is 2·10^450, and log N = 36(3L+1)³c²/ε² log(…), c = P^L C_∞."""
    log_p = math.log(2) + 450 * math.log(10)
    uniform = UniformTransformer(n_layers=2, width=1, spectral_norm=1e150, column_norm=1.0)
    value = uniform.evaluate(Sample(1, 1))
    inside = math.log(8 * 7 / 0.1 * 2) + 2 * log_p  # log of 2⌈4·7c/ε + 2⌉N, N = 2
    wanted = math.log(36 * 7**3 / 0.01) + 4 * log_p + math.log(inside)
    assert value.log_value == pytest.approx(wanted, rel=1e-12)
    layer = ProjectedLayerNorms(output_norm=1e150, value_norm=1e150, score_norm=1e150)
    network = TransformerClass(layers=(layer,), width=1)
    assert network.log_factors(Sample(1, 1))[0] == pytest.approx(log_p, rel=1e-12)


def test_softmax_constant_is_the_only_difference_of_c_two():
    sample = Sample(10, 10)
    sharp, printed = (
        HeadClass(width=4, norm_lipschitz=constant).composition(sample, "derived").log_costs
        for constant in (None, 2.0)
    )
    assert (printed - sharp).tolist() == pytest.approx([0.0, math.log(2)])


def test_positions_make_tokens_longer():
    plain = HeadCovering(HeadClass(width=4)).evaluate(Sample(10, 10, input_norm=1.5))
    moved = HeadCovering(HeadClass(width=4, positions="fixed", position_norm=0.5))
    assert moved.evaluate(Sample(10, 10, input_norm=1.0)).log_value == plain.log_value
    settings = BoundSettings(width=4, norms={"position_norm": 0.5})
    named = HeadCovering.from_settings(settings)
    assert named.evaluate(Sample(10, 10, input_norm=1.0)).log_value == plain.log_value
    # A.4 prints (dL_σ(B_X+B_P))²((B_V^∞)^{2/3} + (2B_QK^∞B_V(B_X+B_P))^{2/3})³/ε² log(mT).
    head = replace(moved.functions, value_norm=5.0, value_column_norm=3.0, score_row_norm=7.0)
    printed = HeadCovering(head, 0.1, form="printed").evaluate(Sample(10, 10, input_norm=1.0))
    by_hand = (4 * 1.5) ** 2 * (3 ** (2 / 3) + (2 * 7 * 5 * 1.5) ** (2 / 3)) ** 3 / 0.01
    assert printed.value == pytest.approx(by_hand * math.log(100), rel=1e-12)

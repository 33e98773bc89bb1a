"""What print and proof give differently, in numbers; and the claims that show which one holds."""

import math

import pytest

from finetti.bounds import Sample, Settings
from finetti.bounds.sparse_variables import (
    HeadClass,
    HeadCovering,
    HeadNorms,
    LayerNorms,
    MultiHeadClass,
    PositionCovering,
    TransformerClass,
    UniformTransformer,
)
from finetti.claims import Context, load_ledger
from finetti.core.errors import InputError, UnsupportedError

CLAIMS = (
    "S-app-A.3",
    "S-cor-4.4",
    "S-erratum-1",
    "S-erratum-8",
    "S-erratum-9",
    "S-erratum-11",
    "S-erratum-12",
    "S-erratum-13",
    "S-erratum-14",
    "S-lemma-2.2",
    "S-lemma-4.5",
    "S-lemma-A.8",
    "S-lemma-A.10",
    "S-lemma-A.12",
    "S-thm-4.2",
    "S-thm-4.6",
    "S-thm-A.17",
)


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_claims_turn_out_as_expected(claim_id):
    claim = load_ledger().get(claim_id)
    evidence = claim.run(Context(seed=1))
    assert evidence.verdict == claim.expected, evidence.reason


def costs(network, sample, form):
    """c_j by matrix and layer."""
    matrices = network.composition(sample, form).matrices
    return {(m.name, m.layer): math.exp(m.log_cost) for m in matrices}


def test_erratum_1_lengths_of_token_and_query():
    head, sample = HeadClass(width=1), Sample(1, 1, input_norm=3.0)
    layer = MultiHeadClass(heads=(HeadNorms(),), width=1)
    found = [
        math.exp(described.log_costs(head, sample, form)[1])
        for described, form in ((head, "derived"), (head, "printed"), (layer, "printed"))
    ]
    assert found == pytest.approx([27, 3, 6])


def test_erratum_2_layers_after_and_the_readout():
    layers = (LayerNorms(score_norm=0.0), LayerNorms(score_norm=0.0, value_norm=5.0))
    network, sample = TransformerClass(layers=layers, width=1, readout_norm=7.0), Sample(1, 1)
    derived, printed = (costs(network, sample, form) for form in ("derived", "printed"))
    assert derived["W_C", 1] == pytest.approx(7 * 5)  # amplified by layer 2, and by w
    assert derived["W_C", 2] == pytest.approx(7)
    assert printed["W_C", 1] == pytest.approx(1)
    assert printed["W_C", 2] == pytest.approx(1)  # amplified by layer 1, which has norm 1


def test_erratum_10_steepness_and_length():
    network = TransformerClass(layers=(LayerNorms(),), width=1, activation_lipschitz=3.0)
    sample = Sample(1, 1, input_norm=2.0)
    derived, printed = (costs(network, sample, form) for form in ("derived", "printed"))
    assert derived["W_C", 1] == pytest.approx(3)
    assert printed["W_C", 1] == pytest.approx(1)
    assert derived["W_QK", 1] == pytest.approx(3 * 2**3)
    assert printed["W_QK", 1] == pytest.approx(2 * 3)
    assert derived["W_V", 1] == pytest.approx(3 * 2)


def test_erratum_11_depth_costs_even_with_unit_norms():
    def log_cost(depth, form):
        network = TransformerClass(layers=(LayerNorms(),) * depth, width=1)
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
    named = PositionCovering.from_settings(Settings(width=4, norms={"position_norm": 0.5}))
    assert named.evaluate(Sample(10, 10, input_norm=1.0)).log_value == plain.log_value
    with pytest.raises(InputError, match=r"'fixed'.*S-cor-4\.4 is without"):
        PositionCovering(HeadClass(width=4))
    with pytest.raises(UnsupportedError, match="linear in T"):
        PositionCovering.from_settings(Settings(norms={"positions": "trained"}))

"""Radii after training: weights, rounding, and the term in the gap."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.bounds import GridRadius, RadiusGrid, RoundedClass, Sample
from finetti.bounds.covering.dudley import log_confidence
from finetti.bounds.ours import (
    BlockNetwork,
    BlocksGap,
    LinearPiece,
    MatrixWeights,
    ProjectedLengthFreeGap,
)
from finetti.bounds.sparse_variables import ProjectedLayerNorms, TransformerClass
from finetti.core.errors import InputError


def test_weights_add_up_to_one():
    n = 100_000
    total = math.fsum(math.exp(-GridRadius("", 1.0, 1.0, j).log_cost) for j in range(-n, n + 1))
    tail = 2 / (n + 1) / (math.pi**2 / 3 - 1)  # Σ_{j>n} 1/(j+1)² < 1/(n+1), on both sides
    assert total <= 1 <= total + tail


@given(st.floats(1e-8, 1e300), st.floats(1.01, 10.0), st.floats(1e-3, 1e3))
def test_norms_are_rounded_up_to_the_next_point(norm, ratio, start):
    radius = RadiusGrid(start=start, ratio=ratio).radius(norm)
    assert radius.value >= norm
    assert radius.value == start * ratio**radius.index
    assert radius.index == -200 or radius.value / ratio < norm * (1 + 1e-8)


def test_points_of_the_grid_stay_and_zero_has_a_radius():
    assert RadiusGrid().radius(1.1**5).index == 5
    assert RadiusGrid().radius(1.0).value == 1.0
    assert 0 < RadiusGrid().radius(0.0).value < 1e-8
    with pytest.raises(InputError, match="finite number ≥ 0"):
        RadiusGrid().radius(math.inf)
    with pytest.raises(InputError, match="ratio"):
        RadiusGrid(ratio=1.0)


def test_the_term_by_hand():
    # 1.1^7 = 1.95 < 2 ≤ 1.1^8 = 2.14, and 1.1^{-8} = 0.47 < 0.5 ≤ 1.1^{-7} = 0.51
    indices = {0.95: 0, 1.05: 1, 2.0: 8, 0.5: -7}
    found = RoundedClass(None, tuple(map(RadiusGrid().radius, indices)))
    assert [radius.index for radius in found.radii] == list(indices.values())
    kappa = math.pi**2 / 3 - 1
    term = 4 * math.log(kappa) + 2 * math.log(1 * 2 * 9 * 8)
    assert found.post_hoc == pytest.approx(term, rel=1e-12)
    assert "added to log(3/δ)" in str(found)
    product = math.exp(-term)
    sample = Sample(200, 1, delta=0.05)
    with_term = log_confidence(sample, post_hoc=found.post_hoc)
    by_hand = 3 * math.sqrt((math.log(60) + term) / 400)
    assert math.exp(with_term) == pytest.approx(by_hand, rel=1e-12)
    shrunk = Sample(200, 1, delta=0.05 * product)
    assert with_term == pytest.approx(log_confidence(shrunk), rel=1e-12)


def network(**changes):
    inner = MatrixWeights(**{"rows": 4, "columns": 4, "norm": 1.3, "nuclear_norm": 2.0, **changes})
    readout = MatrixWeights(rows=4, columns=1, norm=0.9, trained=False)
    return BlockNetwork(pieces=(LinearPiece(matrix=inner), LinearPiece(matrix=readout)))


def test_only_trained_norms_of_a_class_have_radii():
    found = RadiusGrid().round_norms(network(base_norm=7.0))
    assert [radius.name for radius in found.radii] == [
        "pieces[1].matrix.norm",
        "pieces[1].matrix.nuclear_norm",
    ]
    matrix = found.rounded.pieces[0].matrix
    assert matrix.norm == 1.1**3
    assert (matrix.rows, matrix.base_norm, matrix.entry_norm) == (4, 7.0, None)
    assert found.rounded.pieces[1] == network().pieces[1]
    layer = TransformerClass(layers=(ProjectedLayerNorms(),), width=4, activation_lipschitz=1.05)
    kept = RadiusGrid().round_norms(layer, ("activation_lipschitz", "position_norm")).rounded
    assert (kept.activation_lipschitz, kept.position_norm) == (1.05, 0.0)


def test_fixed_and_stratified_radii():
    sample = Sample(10**6, 1)
    bounds = [BlocksGap(network(), radii=radii) for radii in ("fixed", "stratified")]
    values = [bound.evaluate(sample) for bound in bounds]
    assert [value.kind for value in values] == ["upper_bound", "upper_bound"]
    assert values[0].value < values[1].value
    rounded = RadiusGrid().round_norms(network())
    by_hand = BlocksGap(rounded.rounded).evaluate(sample)
    confidence = math.exp(log_confidence(sample, post_hoc=rounded.post_hoc))
    expected = by_hand.value - math.exp(log_confidence(sample)) + confidence
    assert values[1].value == pytest.approx(expected, rel=1e-12)
    assert "2 radii chosen after training" in values[1].notes[-1]
    with pytest.raises(InputError, match="radii"):
        BlocksGap(network(), radii="guessed")
    layers = TransformerClass(layers=(ProjectedLayerNorms(),), width=4)
    rounded = ProjectedLengthFreeGap(layers, radii="stratified").rounding
    assert len(rounded.radii) == 7  # three spectral norms, three of columns, the readout

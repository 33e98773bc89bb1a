"""Covers of matrices: the numbers in many digits, and which cover is taken."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.bounds import Sample
from finetti.bounds.ours import (
    CountCovering,
    CoverTable,
    MatrixWeights,
    RowWeights,
    SchattenCovering,
)
from finetti.bounds.ours import spectral_covers as covers
from finetti.core.errors import InputError

ANY = Sample(1, 1)


@pytest.mark.parametrize("log_ratio", [-5.0, 0.0, 3.0, 20.0, 90.0, 250.0])
def test_covers_in_many_digits_at_any_size(log_ratio):
    """k = ⌈e^{2·log_ratio}⌉ up to 10²¹⁷."""
    with mpmath.workdps(250):
        ratio = mpmath.e**log_ratio
        count = 64 * mpmath.log(1 + 2 * ratio)
        assert float(covers.count_cover(64, log_ratio, 0.0)) == pytest.approx(float(count), 1e-12)
        atoms = max(1, int(mpmath.ceil(ratio**2)))
        maurey = mpmath.log(mpmath.binomial(128 + atoms, 128 if atoms > 128 else atoms))
        assert float(covers.maurey_cover(64, log_ratio, 0.0)) == pytest.approx(float(maurey), 1e-9)
        for power in covers.POWERS:
            size = ratio / 10  # of 1000 × 1000 matrices, B = 1 and x = 1
            rank = min(1000, int(mpmath.ceil((2 * size) ** power)) - 1)
            found = SchattenCovering(1000, 1000, 1.0, float(size), power, 1.0).evaluate(ANY)
            low = max(rank, 0) * 2000 * mpmath.log(9)
            counted = 10**6 * mpmath.log(3)
            assert found.value == pytest.approx(float(min(low, counted)), rel=1e-12)


def test_factors_of_any_size_are_no_problem():
    log_x = np.array([[-1e5, -400.0, 0.0, 400.0, 1e5]]).T
    weights = MatrixWeights(
        rows=8, columns=4, entry_norm=2.0, frobenius_norm=1.5, nuclear_norm=2.0,
        half_norm=5.0, quarter_norm=20.0, rank=2,
    )  # fmt: skip
    found = CoverTable((weights,)).all(log_x)
    assert not np.isnan(found).any()
    assert (found[:, 1:, 0] <= found[:, :-1, 0]).all()
    assert np.isfinite(CoverTable((weights,)).best(log_x)).all()


def test_every_matrix_takes_the_smallest_that_its_norms_allow():
    rows = RowWeights(rows=100, columns=8, norm=2.0)
    plain = MatrixWeights(rows=100, columns=8, norm=2.0)
    low = MatrixWeights(rows=100, columns=8, norm=2.0, rank=1)
    sparse = MatrixWeights(rows=100, columns=8, norm=2.0, entry_norm=2.0)
    flat = MatrixWeights(rows=100, columns=8, norm=2.0, nuclear_norm=2.0)
    log_x = np.full((1, 5), math.log(0.5))
    found = CoverTable((rows, plain, low, sparse, flat)).best(log_x)[0]
    counted = 800 * math.log(9)
    by_hand = (
        counted,
        counted,
        108 * math.log(17),
        float(covers.maurey_cover(800, math.log(2.0), math.log(0.25))),  # at x/2: inside
        counted,  # r = 7: 7·108·log 33 is more
    )
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)
    assert found[3] < counted


SIZES = st.floats(-8, 8)


@given(SIZES, SIZES, SIZES, st.sampled_from(range(6)), st.floats(0, 3))
def test_finer_covers_and_larger_classes_cost_more(log_x, log_norm, log_extra, which, more):
    names = ("norm", "entry_norm", "frobenius_norm", "nuclear_norm", "half_norm", "quarter_norm")
    norms = {name: math.exp(log_norm + log_extra * i / 5) for i, name in enumerate(names)}
    larger = norms | {names[which]: norms[names[which]] * math.exp(more)}

    def best(log_x, norms):
        weights = MatrixWeights(rows=6, columns=9, rank=3, **norms)
        return float(CoverTable((weights,)).best(np.array([[log_x]]))[0, 0])

    here = best(log_x, norms)
    assert here <= best(log_x - more, norms) * (1 + 1e-12)
    assert here <= best(log_x, larger) * (1 + 1e-12)
    assert here <= float(covers.count_cover(54, log_norm, log_x)) * (1 + 1e-12)


def test_where_all_singular_values_matter_parameters_are_counted():
    bound = SchattenCovering(4, 6, 1.0, 3.0, 2.0, 0.1)
    assert bound.evaluate(ANY).value == CountCovering(4, 6, 1.0, 0.1).evaluate(ANY).value
    assert "counted" in bound.evaluate(ANY).notes[0]


def test_a_head_product_costs_no_more_than_two_factors_at_half_the_resolution():
    """W = UVᵀ, ‖U‖, ‖V‖ ≤ √B, each at x/(2√B): the product moves by at most x."""
    weights = MatrixWeights(rows=768, columns=512, norm=2.0, rank=64)
    for x in (1e-1, 1e-4, 1e-8):
        found = float(CoverTable((weights,)).best(np.log([[x]]))[0, 0])
        factor = math.sqrt(2.0) / (x / (2 * math.sqrt(2.0)))
        assert found == pytest.approx(64 * (768 + 512) * math.log(1 + 2 * factor), rel=1e-12)


def test_bad_norms_are_refused_by_name():
    with pytest.raises(InputError, match="power"):
        SchattenCovering(4, 4, 1.0, 1.0, 3.0, 0.1)
    with pytest.raises(InputError, match="`norm` argument of MatrixWeights"):
        MatrixWeights(rows=4, columns=4, norm=-1.0)
    with pytest.raises(InputError, match="`rank` argument of MatrixWeights"):
        MatrixWeights(rows=4, columns=4, rank=0)

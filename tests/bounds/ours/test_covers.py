"""Covers of matrices: the numbers, the constructions, and packings as a floor."""

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
    MaureyCovering,
    RowWeights,
    SchattenCovering,
)
from finetti.bounds.ours import spectral_covers as covers
from finetti.claims.ours.matrix_rounding import round_to_atoms, round_to_rank, separated_members
from finetti.core.errors import InputError

ANY = Sample(1, 1)


def spectral(matrix):
    return np.linalg.norm(matrix, 2)


def schatten(matrix, power):
    return (np.linalg.svd(matrix, compute_uv=False) ** power).sum() ** (1 / power)


@pytest.mark.parametrize(
    ("bound", "value"),
    [
        (CountCovering(8, 8, weight_norm=1.0, resolution=0.1), 194.849436014),
        (MaureyCovering(8, 8, entry_norm=2.0, resolution=0.5), 47.9802004314),
        (SchattenCovering(8, 8, 0.5, 1.0, 1.0, 0.25), 317.319894534),
    ],
)
def test_vectors(bound, value):
    found = bound.evaluate(ANY)
    assert found.value == pytest.approx(value, rel=1e-9)
    assert found.kind == "upper_bound"
    assert found == bound.evaluate(Sample(10**6, 10**9))


def test_inside_and_outside_as_stated():
    assert CountCovering.inside
    assert not MaureyCovering.inside
    assert not SchattenCovering.inside


@pytest.mark.parametrize("log_ratio", [-5.0, 0.0, 3.0, 20.0, 90.0, 250.0])
def test_count_and_maurey_at_any_size(log_ratio):
    """Against fifty digits; k = ⌈e^{2·log_ratio}⌉ up to 10²¹⁷."""
    with mpmath.workdps(250):
        ratio = mpmath.e**log_ratio
        count = 64 * mpmath.log(1 + 2 * ratio)
        assert float(covers.count_cover(64, log_ratio, 0.0)) == pytest.approx(float(count), 1e-12)
        atoms = max(1, int(mpmath.ceil(ratio**2)))
        maurey = mpmath.log(mpmath.binomial(128 + atoms, 128 if atoms > 128 else atoms))
        assert float(covers.maurey_cover(64, log_ratio, 0.0)) == pytest.approx(float(maurey), 1e-9)


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


@pytest.mark.parametrize("power", covers.POWERS)
def test_a_smaller_schatten_norm_costs_less(power):
    values = [
        SchattenCovering(1000, 1000, 1.0, size, power, 0.5).evaluate(ANY).log_value
        for size in (0.2, 0.5, 1.0, 2.0, 4.0, 100.0)
    ]
    assert values[0] == -math.inf  # one matrix, 0, is enough
    assert (np.diff(values[1:]) >= 0).all()


def test_numbers_that_are_more_than_a_hundredth_apart():
    """200 fit into [−1, 1]; 201 = 1 + 2/x of them would be just x apart, or lie outside."""
    spaced = np.arange(-1, 1, 0.01 * (1 + 1e-9))
    net = separated_members(spaced.reshape(-1, 1, 1), 0.01)
    assert len(net) == 200 < 1 + 2 / 0.01
    assert np.abs(net).max() <= 1


def test_separated_members_cover_and_are_few():
    rng = np.random.default_rng(0)
    for shape, resolution in (((1, 1), 0.15), ((1, 2), 0.4), ((2, 2), 0.9)):
        draws = rng.uniform(-1, 1, size=(1500, *shape))
        members = [each for each in draws if spectral(each) <= 1]
        net = separated_members(members, resolution)
        for each in members:
            assert np.linalg.norm(net - each, 2, axis=(1, 2)).min() <= resolution
        bound = CountCovering(*shape, 1.0, resolution).evaluate(ANY)
        assert math.log(len(net)) <= bound.value


def test_averages_of_atoms_are_near():
    rng = np.random.default_rng(1)
    for trial in range(60):
        matrix = rng.normal(size=(4, 5)) * rng.exponential(size=(4, 5)) ** (trial % 4)
        size = np.abs(matrix).sum() * (1 + rng.uniform() * (trial % 2))
        resolution = size / math.sqrt(rng.uniform(0.5, 60))
        found, count = round_to_atoms(matrix, size, resolution)
        assert np.linalg.norm(found - matrix) <= resolution * (1 + 1e-12)
        assert np.abs(found).sum() <= size * (1 + 1e-12)
        whole = found * count / size
        np.testing.assert_allclose(whole, np.round(whole), atol=1e-9)
        assert count == max(1, math.ceil(size**2 / resolution**2 * (1 - 1e-12)))
    with pytest.raises(InputError, match="entry_norm"):
        round_to_atoms(np.ones((2, 2)), 1.0, 0.5)
    with pytest.raises(InputError, match="entry_norm"):
        round_to_atoms(np.full((2, 2), math.nan), 1.0, 0.5)


@pytest.mark.parametrize("power", covers.POWERS)
def test_products_of_rounded_factors_are_near(power):
    rng = np.random.default_rng(2)
    for _ in range(40):
        matrix = rng.normal(size=(5, 7)) @ np.diag(10.0 ** -rng.uniform(0, 2, 7))
        norm, size = spectral(matrix), schatten(matrix, power)
        resolution = norm * 10.0 ** rng.uniform(-1.5, 0.5)
        rank = float(covers.schatten_rank(math.log(size), math.log(resolution), power))
        if rank >= 5:
            continue
        values = np.linalg.svd(matrix, compute_uv=False)
        assert values[int(rank)] <= resolution / 2 * (1 + 1e-9)
        found = round_to_rank(matrix, norm, int(rank), resolution)
        assert spectral(found - matrix) <= resolution
        assert spectral(found) <= norm * (1 + 1e-12)
        assert np.linalg.matrix_rank(found) <= rank


def test_a_head_product_costs_no_more_than_two_factors_at_half_the_resolution():
    """W = UVᵀ, ‖U‖, ‖V‖ ≤ √B, each at x/(2√B): the product moves by at most x."""
    weights = MatrixWeights(rows=768, columns=512, norm=2.0, rank=64)
    for x in (1e-1, 1e-4, 1e-8):
        found = float(CoverTable((weights,)).best(np.log([[x]]))[0, 0])
        factor = math.sqrt(2.0) / (x / (2 * math.sqrt(2.0)))
        assert found == pytest.approx(64 * (768 + 512) * math.log(1 + 2 * factor), rel=1e-12)


def test_packings_never_exceed_covers_at_half_the_resolution():
    """Two members more than x apart lie in two balls of radius x/2, whatever the cover."""
    axis = np.linspace(-1, 1, 9)
    grid = np.stack(np.meshgrid(*[axis] * 4), -1).reshape(-1, 2, 2)
    rng = np.random.default_rng(3)
    grid = rng.permutation(grid)
    sums, norms = np.abs(grid).sum(axis=(1, 2)), np.linalg.norm(grid, 2, axis=(1, 2))
    nuclear = np.linalg.svd(grid, compute_uv=False).sum(axis=1)
    for x in (0.6, 1.2):
        half = x / 2
        classes = {
            CountCovering(2, 2, 1.0, half): norms <= 1,
            MaureyCovering(2, 2, 1.0, half): sums <= 1,
            SchattenCovering(2, 2, 1.0, 1.0, 1.0, half): nuclear <= 1,
            SchattenCovering(2, 2, 1.0, 1.0, 2.0, half): np.sqrt((grid**2).sum((1, 2))) <= 1,
        }
        for bound, members in classes.items():
            packing = len(separated_members(grid[members][:800], x))
            assert packing > 1
            assert math.log(packing) <= bound.evaluate(ANY).value


def test_bad_norms_are_refused_by_name():
    with pytest.raises(InputError, match="power"):
        SchattenCovering(4, 4, 1.0, 1.0, 3.0, 0.1)
    with pytest.raises(InputError, match="`norm` argument of MatrixWeights"):
        MatrixWeights(rows=4, columns=4, norm=-1.0)
    with pytest.raises(InputError, match="`rank` argument of MatrixWeights"):
        MatrixWeights(rows=4, columns=4, rank=0)

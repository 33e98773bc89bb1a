"""How a network's error is shared between its weights, and what follows for the gap."""

import math

import numpy as np
import pytest
from scipy import optimize

from finetti.bounds import Sample
from finetti.bounds.covering.dudley import dudley_closed, dudley_quadrature, dudley_upper_sum
from finetti.bounds.ours import (
    BlockNetwork,
    BlockNorms,
    BlocksCovering,
    BlocksGap,
    BlockShape,
    LengthFreeComposition,
    LinearPiece,
    MatrixWeights,
    RowWeights,
    WeightError,
)
from finetti.core.errors import InputError


def measured(rng, shape, log_factor, fade):
    """A random matrix with all its norms, times a factor."""
    matrix = rng.normal(size=shape) * np.exp(-fade * np.arange(shape[1]))
    values = np.linalg.svd(matrix, compute_uv=False)
    names = ("frobenius_norm", "nuclear_norm", "half_norm", "quarter_norm")
    powers = zip(names, (2, 1, 0.5, 0.25), strict=True)
    norms = {name: (values**p).sum() ** (1 / p) for name, p in powers}
    entries = np.abs(matrix).sum()
    sizes = {"rows": shape[0], "columns": shape[1], "norm": values[0], "entry_norm": entries}
    return WeightError("W", None, log_factor, MatrixWeights(**sizes, **norms))


def random_composition(seed, spread):
    rng = np.random.default_rng(seed)
    shapes = rng.integers(4, 30, size=(3, 2))
    parts = [
        measured(rng, tuple(map(int, shape)), rng.uniform(-spread, spread), rng.uniform(0, 1))
        for shape in shapes
    ]
    return LengthFreeComposition(tuple(parts))


@pytest.mark.parametrize(
    ("seed", "spread", "below"), [(0, 2.0, 2.0), (1, 2.0, 8.0), (2, 200.0, 2.0)]
)
def test_allocations_are_exact_and_good(seed, spread, below):
    composition = random_composition(seed, spread)
    log_resolution = composition.log_spread - below
    found = math.exp(composition.log_log_cover(log_resolution))
    factors = np.array([each.log_factor for each in composition.parts])
    log_x = composition.resolutions(log_resolution)
    assert np.logaddexp.reduce(log_x + factors) == pytest.approx(log_resolution, abs=1e-12)
    table = composition._table

    def total(free):
        shares = np.r_[free, 0.0] - np.logaddexp.reduce(np.r_[free, 0.0])
        return table.best((shares + log_resolution - factors)[None]).sum()

    assert total(log_x[:2] + factors[:2] - log_x[2] - factors[2]) == pytest.approx(found)
    best = optimize.differential_evolution(total, [(-9, 9)] * 2, seed=0, maxiter=15, popsize=10)
    assert found <= 1.03 * best.fun


def test_alike_weights_share_alike_and_one_gets_all():
    square = MatrixWeights(rows=8, columns=8)
    for count in (1, 5):
        parts = tuple(WeightError("W", i, math.log(2.0), square) for i in range(count))
        found = math.exp(LengthFreeComposition(parts).log_log_cover(math.log(0.2 * count)))
        assert found == pytest.approx(count * 64 * math.log(21), rel=1e-9)


def test_what_is_not_trained_or_does_not_reach_the_output_costs_nothing():
    square = MatrixWeights(rows=8, columns=8)
    idle = (
        WeightError("frozen", None, 5.0, MatrixWeights(rows=8, columns=8, trained=False)),
        WeightError("zero", None, 5.0, MatrixWeights(rows=8, columns=8, norm=0.0)),
        WeightError("lost", None, -math.inf, square),
    )
    assert LengthFreeComposition(idle).log_log_cover(0.0) == -math.inf
    assert LengthFreeComposition(idle).terms(0.0) == (-math.inf, ())
    one = WeightError("W", None, 0.0, square)
    with_idle = LengthFreeComposition((*idle, one)).log_log_cover(-2.0)
    assert with_idle == LengthFreeComposition((one,)).log_log_cover(-2.0)


def test_products_of_any_size_are_finite():
    rng = np.random.default_rng(0)
    shape = (64, 64)
    parts = tuple(measured(rng, shape, 30.0 * i, 0.1) for i in range(40))  # 10^520 in all
    composition = LengthFreeComposition(parts)
    found = composition.log_log_cover(np.linspace(-5, 5, 64))
    assert np.isfinite(found).all()
    assert (np.diff(found) < 1e-3).all()  # a poor allocation may be kept for a unit


@pytest.mark.parametrize("log_samples", [3.0, 12.0, 40.0])
def test_the_upper_sum_is_above_the_integral_and_near(log_samples):
    def count(u):
        return np.log(5 * np.logaddexp(0, math.log(2) - np.asarray(u)))

    for cover in (lambda u: 2.0 - 2 * u, count):
        above = dudley_upper_sum(cover, 0.3, log_samples).log_value
        exact = dudley_quadrature(cover, 0.3, log_samples).log_value
        assert exact <= above + 1e-12 <= exact + 0.04


def test_the_upper_sum_of_steps_is_above_their_integral():
    def steps(u):
        return np.log(np.ceil(np.exp(-np.asarray(u))) * 4)

    found = dudley_upper_sum(steps, 0.0, math.log(1e5))
    edges = 1 / np.arange(1, 2000)
    low = math.exp(found.log_resolution)
    inside = np.sort(np.r_[low, edges[edges > low]])
    heights = np.sqrt(4 * np.ceil(1 / ((inside[1:] + inside[:-1]) / 2)))
    integral = (np.diff(inside) * heights).sum()
    exact = 4 * low + 12 / math.sqrt(1e5) * integral
    assert exact <= math.exp(found.log_value) <= 1.06 * exact


def test_the_upper_sum_at_its_limits():
    assert dudley_upper_sum(lambda u: 10 - 2 * np.asarray(u), 0.3, 0.0).trivial
    assert dudley_upper_sum(lambda u: 0 * u - math.inf, 0.0, 10.0).log_value < -13
    assert dudley_upper_sum(lambda u: -2 * np.asarray(u), -math.inf, 5.0).log_value == -math.inf
    far = dudley_upper_sum(lambda u: -2 * np.asarray(u), 0.0, 400.0).log_value
    assert far == pytest.approx(dudley_closed(0.0, 0.0, 400.0), abs=0.04)


def test_fine_tuning_covers_what_moved():
    """A small Δ beside a large base: its own norm in the cover, both in the chain."""
    full = MatrixWeights(rows=16, columns=16, norm=10.0)
    moved = MatrixWeights(rows=16, columns=16, norm=0.1, base_norm=9.9, rank=2)
    frozen = MatrixWeights(rows=16, columns=16, norm=10.0, trained=False)
    readout = MatrixWeights(rows=16, columns=1)

    def network(first, second):
        pieces = (LinearPiece(matrix=first), LinearPiece(matrix=second))
        return BlockNetwork(pieces=(*pieces, LinearPiece(matrix=readout, name="w")))

    sample = Sample(10**6, 1)
    values = {
        name: BlocksCovering(network(*pair), 0.1).evaluate(sample)
        for name, pair in {"all": (full, full), "moved": (moved, frozen)}.items()
    }
    chains = [network(*pair).propagate_tokens(sample) for pair in ((full, full), (moved, frozen))]
    assert chains[0].log_lipschitz == pytest.approx(chains[1].log_lipschitz)
    assert [term.matrix for term in values["moved"].terms] == ["W", "w"]
    assert values["moved"].value < values["all"].value / 4
    # LoRA alone, by hand: x = ε, r(d₁ + d₂)·log(1 + 4B/x)
    still = MatrixWeights(rows=16, columns=1, trained=False)
    alone = BlockNetwork(pieces=(LinearPiece(matrix=moved), LinearPiece(matrix=still)))
    found = BlocksCovering(alone, 0.01).evaluate(sample).value
    assert found == pytest.approx(2 * 32 * math.log(1 + 4 * 0.1 / 0.01), rel=1e-12)
    # and the gap: outputs move by 0.1 only
    gaps = [BlocksGap(each).evaluate(sample).value for each in (alone, network(full, full))]
    assert gaps[0] < gaps[1] / 10


def test_nothing_moved_is_one_function():
    still = MatrixWeights(rows=4, columns=1, norm=5.0, trained=False)
    bound = BlocksGap(BlockNetwork(pieces=(LinearPiece(matrix=still),)))
    value = bound.evaluate(Sample(200, 1))
    assert value.value == pytest.approx(3 * math.sqrt(math.log(60) / 400))


def test_networks_are_checked():
    with pytest.raises(InputError, match="one Piece or more"):
        BlockNetwork(pieces=())
    with pytest.raises(InputError, match="a MatrixWeights"):
        LinearPiece(matrix=RowWeights(rows=1, columns=4))


def test_a_loss_counts_in_its_own_units():
    """L times as steep a loss, or L times as large a readout; and no more than the loss's range."""

    def gap(readout, samples=10**9, **loss):
        shape = BlockShape(
            width=4, hidden_dimension=4, n_heads=1, head_dimension=4, readout_norm=readout
        )
        bound = BlocksGap(BlockNetwork(pieces=shape.network((BlockNorms(),))))
        return bound.evaluate(Sample(samples, 1, **loss))

    steep, large = gap(1.0, loss_lipschitz=8.0), gap(8.0)
    assert steep.log_value == pytest.approx(large.log_value, abs=0.02)
    confidence = 3 * math.sqrt(math.log(60) / 20)
    assert gap(1e30, samples=10).value == pytest.approx(1 + confidence)
    assert gap(1e30, samples=10, loss_bound=4.0).value == pytest.approx(4 * (1 + confidence))
    # Outputs a thousand times as large cost a logarithm, no factor.
    assert gap(1e6, samples=10**12).value < 2 * gap(1e3, samples=10**12).value

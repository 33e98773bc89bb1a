"""The minimum over α in Theorem 4.2 against a grid: exact without ceilings, near with them."""

import numpy as np
import pytest

from finetti.bounds import Sample, allocate
from finetti.bounds.sparse_variables import HeadClass, HeadCovering, HeadSplit, UniformTransformer


def on_a_grid(bound, sample):
    """The least value over 4000 shares, evenly in log-odds."""
    center = bound.best_share(sample)
    found = []
    for logit in center + np.linspace(-4, 4, 4000):
        shares = -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)
        found.append(np.logaddexp(*bound.parts(*map(float, shares), sample)))
    return min(found)


@pytest.mark.parametrize("form", ["derived", "printed"])
@pytest.mark.parametrize("seed", range(12))
def test_no_share_on_a_grid_is_better(seed, form):
    """The ceilings of the derived form make steps of 1/(j log N): hundredths for small j."""
    rng = np.random.default_rng(seed)
    norms = (10.0 ** rng.uniform(-1.5, 1.0, size=4)).tolist()
    names = "value_norm", "value_column_norm", "score_row_norm", "out_lipschitz"
    head = HeadClass(
        width=int(rng.integers(1, 20)), norm_lipschitz=2.0, **dict(zip(names, norms, strict=True))
    )
    resolution = 10.0 ** rng.uniform(-1.0, 1.0)
    bound = HeadSplit(head, resolution, form=form)
    sample = Sample(int(rng.integers(2, 1000)), int(rng.integers(1, 100)))
    found, least = bound.evaluate(sample).log_value, on_a_grid(bound, sample)
    assert found <= least + (1e-12 if form == "printed" else 0.03)
    if form == "derived":
        assert found <= HeadCovering(head, resolution).evaluate(sample).log_value + 1e-12


def test_sizes_may_be_whole_floats():
    exact = UniformTransformer(n_layers=2, width=8)
    floats = UniformTransformer(n_layers=2.0, width=8.0)
    sample = Sample(100, 10)
    assert floats.evaluate(sample).log_value == exact.evaluate(sample).log_value


def test_the_allocation_of_lemma_a_8_is_public():
    least, shares = allocate(np.log([1.0, 8.0]), np.zeros(2), np.log(2.0))
    assert np.exp(least) == pytest.approx(27 / 4)
    assert np.exp(shares).sum() == pytest.approx(2.0)

"""Choosing the ridge: against a direct search over criteria written out with matrices."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from finetti.attention import ConditionalMean, choose_ridge, effective_dimension
from finetti.core.errors import InputError
from finetti.kernels import RBF, Exponential, Linear

pytestmark = pytest.mark.rounding

close = partial(np.testing.assert_allclose, rtol=0)
METHODS = ["marginal_likelihood", "gcv"]
methods = pytest.mark.parametrize("method", METHODS)
RNG = np.random.default_rng(0)
KEYS = RNG.normal(size=(3, 20, 2))
VALUES = np.stack([np.sin(KEYS[..., 0]), KEYS[..., 1]], axis=-1) + 0.3 * RNG.normal(size=KEYS.shape)
MASK = RNG.random((3, 20)) < 0.7


GRAMS = {}


def gram_of(kernel, keys):
    """The Gram matrix, computed once: the searches ask for it again and again."""
    name = (repr(kernel), keys.tobytes())
    if name not in GRAMS:
        GRAMS[name] = np.asarray(kernel.gram(keys))
    return GRAMS[name]


def contexts(mask):
    for keys, values, kept in zip(KEYS, VALUES, mask, strict=True):
        if kept.any():
            yield keys[kept], values[kept]


def by_matrices(method, kernel, ridge, per_token, mask):
    """The criterion for one ridge, without a spectrum."""
    density = residual = freedom = count = 0.0
    for keys, values in contexts(mask):
        length, width = values.shape
        level = ridge * (length if per_token else 1)
        gram = gram_of(kernel, keys)
        system = gram + level * np.eye(length)
        density -= multivariate_normal(np.zeros(length), system).logpdf(values.T).sum()
        hat = gram @ np.linalg.inv(system)
        residual += np.sum((values - hat @ values) ** 2)
        freedom += width * np.trace(np.eye(length) - hat)
        count += width * length
    return density if method == "marginal_likelihood" else count * residual / freedom**2


@methods
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_minimizes_the_criterion_computed_directly(method, per_token, masked):
    kernel, mask = RBF(1.5), MASK if masked else np.ones_like(MASK)
    choice = choose_ridge(
        KEYS, VALUES, MASK if masked else None, kernel=kernel, method=method, per_token=per_token
    )

    def direct(log_ridge):
        return by_matrices(method, kernel, np.exp(log_ridge), per_token, mask)

    coarse = np.linspace(-9, 2, 23)
    start = coarse[np.argmin([direct(point) for point in coarse])]
    found = minimize_scalar(direct, bounds=(start - 0.5, start + 0.5), options={"xatol": 1e-6})
    # A minimum is flat: √ε of its curvature is all that two searches can agree on.
    assert np.log(choice.ridge) == pytest.approx(found.x, abs=1e-4)
    assert choice.criterion == pytest.approx(found.fun, rel=1e-9)
    assert choice.criterion <= choice.curve.min()
    assert not choice.at_edge
    assert choice.per_token == per_token


@methods
def test_the_curve_is_the_criterion_on_the_grid(method):
    kernel = RBF(1.5)
    choice = choose_ridge(KEYS, VALUES, MASK, kernel=kernel, method=method)
    for index in (60, 80, 100):  # away from 1e-10, where the matrices themselves are singular
        expected = by_matrices(method, kernel, choice.grid[index], False, MASK)
        assert choice.curve[index] == pytest.approx(expected, rel=1e-8)


def test_criterion_is_the_negative_log_marginal_likelihood():
    choice = choose_ridge(KEYS, VALUES, MASK, kernel=RBF(1.5))
    module = choice.module(RBF(1.5))
    total = jnp.sum(module.log_marginal_likelihood(KEYS, VALUES, MASK))
    close(choice.criterion, -total, atol=1e-8)


@methods
def test_finds_the_noise(method):
    """The world of the model: GP values with noise 0.1; ML and GCV both see it within a factor."""
    rng = np.random.default_rng(5)
    keys = rng.normal(size=(8, 60, 2))
    covariance = [np.asarray(RBF().gram(k)) + 0.1 * np.eye(60) for k in keys]
    roots = [np.linalg.cholesky(matrix) for matrix in covariance]
    values = np.stack([root @ rng.normal(size=(60, 3)) for root in roots])
    choice = choose_ridge(keys, values, method=method)
    # 1440 numbers: log λ̂ has a standard error near √(2/1440)·√(1 + signal) ≈ 0.06; 4 of them.
    assert abs(np.log(choice.ridge / 0.1)) < 0.25


def test_gcv_ignores_the_scale_of_the_kernel_up_to_the_ridge():
    plain = choose_ridge(KEYS, VALUES, kernel=RBF(), method="gcv")
    scaled = choose_ridge(KEYS, VALUES, kernel=7.0 * RBF(), method="gcv")
    assert scaled.ridge == pytest.approx(7.0 * plain.ridge, rel=1e-3)
    assert scaled.criterion == pytest.approx(plain.criterion, rel=1e-8)


@methods
def test_noiseless_values_push_to_the_edge_and_say_so(method):
    keys = np.linspace(-2, 2, 12)[None, :, None]
    choice = choose_ridge(keys, np.zeros((1, 12, 1)) + keys, kernel=Linear(), method=method)
    assert choice.at_edge
    assert "edge" in str(choice)
    assert "edge" not in str(choose_ridge(KEYS, VALUES, method=method))


def test_masked_garbage_and_empty_contexts_do_not_count():
    mask = MASK.copy()
    mask[1] = False
    dirty = np.where(mask[..., None], VALUES, np.nan)
    expected = choose_ridge(KEYS[[0, 2]], VALUES[[0, 2]], mask[[0, 2]])
    assert choose_ridge(KEYS, dirty, mask).ridge == pytest.approx(expected.ridge, rel=1e-6)


def test_module_of_a_choice():
    choice = choose_ridge(KEYS[0], VALUES[0], per_token=True)
    module = choice.module(RBF())
    assert isinstance(module, ConditionalMean)
    assert module.per_token
    assert float(module.ridge) == pytest.approx(choice.ridge)


def test_effective_dimension_is_the_trace():
    """tr(G(G + LλI)⁻¹), masked keys left out of G and of L."""
    for mask in (None, MASK):
        found = effective_dimension(KEYS, 0.01, mask, kernel=RBF())
        for index, (keys, _) in enumerate(contexts(np.ones_like(MASK) if mask is None else mask)):
            gram, length = np.asarray(RBF().gram(keys)), len(keys)
            expected = np.trace(gram @ np.linalg.inv(gram + 0.01 * length * np.eye(length)))
            assert found[index] == pytest.approx(expected, rel=1e-10)
        assert found.shape == (3,)


def test_effective_dimension_between_its_limits():
    levels = [float(effective_dimension(KEYS[0], level)) for level in (1e-15, 1e-3, 1.0, 1e6)]
    assert levels == sorted(levels, reverse=True)
    assert 10 < levels[0] <= 20
    assert levels[-1] < 1e-5
    assert float(effective_dimension(KEYS[0], 1e-8, kernel=Linear())) == pytest.approx(2.0)


def test_effective_dimension_is_the_sum_of_the_weights_at_the_keys():
    keys = KEYS[0]
    weights = ConditionalMean(RBF(), ridge_per_token=0.02).weights(keys, keys)
    close(effective_dimension(keys, 0.02), jnp.trace(weights), atol=1e-10)


def test_an_empty_context_has_dimension_zero():
    mask = MASK.copy()
    mask[1] = False
    dimensions = effective_dimension(KEYS, 0.01, mask)
    assert dimensions.shape == (3,)
    assert dimensions[1] == 0.0


BAD = {
    "keys-rank": ("keys", (KEYS[0, 0], VALUES[0]), {}),
    "keys-empty": ("keys", (KEYS[0, :0], VALUES[0, :0]), {}),
    "keys-nan": ("keys", (np.full((4, 2), np.nan), np.ones((4, 1))), {}),
    "values-length": ("values", (KEYS[0], VALUES[0, :5]), {}),
    "values-inf": ("values", (np.ones((4, 2)), np.full((4, 1), np.inf)), {}),
    "mask-float": ("mask", (KEYS[0], VALUES[0], np.ones(20)), {}),
    "mask-shape": ("mask", (KEYS[0], VALUES[0], np.ones(19, bool)), {}),
    "mask-per-query": ("mask", (KEYS[0], VALUES[0], np.ones((1, 20), bool)), {}),
    "mask-all-false": ("mask", (KEYS[0], VALUES[0], np.zeros(20, bool)), {}),
    "method": ("method", (KEYS[0], VALUES[0]), {"method": "aic"}),
    "kernel": ("kernel", (1e3 * KEYS[0], VALUES[0]), {"kernel": Exponential()}),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_named(case):
    argument, arrays, options = BAD[case]
    with pytest.raises(InputError, match=f"`{argument}` argument of choose_ridge") as refusal:
        choose_ridge(*arrays, **options)
    assert "per query" not in str(refusal.value)  # there are no queries


@pytest.mark.parametrize("level", [0.0, -1.0, np.nan])
def test_bad_levels_are_named(level):
    with pytest.raises(InputError, match="`ridge_per_token` argument of effective_dimension"):
        effective_dimension(KEYS[0], level)

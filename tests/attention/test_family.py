"""Attention as regression: each member against the regression that it is, and its limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import (
    ConditionalMean,
    DeltaRule,
    KernelSmoother,
    LinearAttention,
    LocalLinear,
    PerQueryMaskWarning,
)
from finetti.core.errors import InputError, UnsupportedError
from finetti.kernels import RBF, Exponential, Linear, Polynomial

pytestmark = pytest.mark.rounding

STEP, DECAY = 1.3, 0.85
RNG = np.random.default_rng(0)
QUERY, KEYS, VALUES = (RNG.normal(size=size) for size in ((4, 3), (6, 3), (6, 2)))


def close(left, right, atol=1e-10):
    np.testing.assert_allclose(left, right, rtol=0, atol=atol)


def online(keys, values, step, decay):
    """S after gradient descent, pair by pair, as it is defined."""
    state = np.zeros((values.shape[1], keys.shape[1]))
    for key, value in zip(keys, values, strict=True):
        state = decay * state
        if key @ key > 0:
            gradient = np.outer(state @ key - value, key)  # of ½‖v − Sk‖²
            state = state - step / (key @ key) * gradient
    return state


def line(query, keys, values, scores, ridge):
    """The intercept of the weighted least squares with a ridge on the slope, by rows."""
    root = np.sqrt(scores / scores.sum())[:, None]
    design = root * np.hstack([np.ones((len(keys), 1)), keys - query])
    penalty = np.sqrt(ridge) * np.eye(len(query) + 1)[1:]
    targets = np.vstack([root * values, np.zeros((len(query), values.shape[1]))])
    return np.linalg.lstsq(np.vstack([design, penalty]), targets, rcond=None)[0][0]


def rbf(xs, ys, lengthscale=1.0):
    squares = np.sum((xs[:, None] - ys[None]) ** 2, axis=-1)
    return np.exp(-squares / (2 * lengthscale**2))


def test_linear_attention_is_one_gradient_step():
    def objective(state):
        return 0.5 * jnp.sum((VALUES - KEYS @ state.T) ** 2)

    state = -jax.grad(objective)(jnp.zeros((2, 3)))
    close(LinearAttention()(QUERY, KEYS, VALUES), QUERY @ state.T)


def test_linear_attention_reads_by_its_kernel():
    kernel = Polynomial(2, scale=0.7)
    weights = (0.7 * QUERY @ KEYS.T + 1) ** 2
    close(LinearAttention(kernel).weights(QUERY, KEYS), weights)
    close(LinearAttention(kernel)(QUERY, KEYS, VALUES), weights @ VALUES)


def test_the_delta_rule_is_online_gradient_descent():
    keys = KEYS.copy()
    keys[2] = 0.0  # changes nothing but the decay
    exact = QUERY @ online(keys, VALUES, STEP, DECAY).T
    close(DeltaRule(STEP, DECAY)(QUERY, keys, VALUES), exact)
    without = online(np.delete(keys, 2, axis=0), np.delete(VALUES, 2, axis=0), STEP, DECAY)
    assert np.abs(exact - QUERY @ without.T).max() > 0.01


def test_a_common_factor_of_queries_and_keys_cancels_in_the_delta_rule():
    module = DeltaRule(STEP, DECAY)
    for factor in (1e-150, 1e150):  # whose squares are no numbers
        close(module(factor * QUERY, factor * KEYS, VALUES), module(QUERY, KEYS, VALUES))


def test_local_linear_attention_is_the_intercept_of_a_weighted_line():
    for ridge in (1e-3, 0.3):
        module = LocalLinear(RBF(0.9), ridge)
        exact = [line(q, KEYS, VALUES, rbf(q[None], KEYS, 0.9)[0], ridge) for q in QUERY]
        close(module(QUERY, KEYS, VALUES), exact)
    close(module.weights(QUERY, KEYS).sum(axis=1), np.ones(4), 1e-13)
    scores = np.exp(QUERY @ KEYS.T)
    exact = [line(q, KEYS, VALUES, s, 0.3) for q, s in zip(QUERY, scores, strict=True)]
    close(LocalLinear(Exponential(), 0.3)(QUERY, KEYS, VALUES), exact)


def test_a_stiff_line_is_the_smoother():
    smooth = KernelSmoother(RBF(0.9))(QUERY, KEYS, VALUES)
    found = [LocalLinear(RBF(0.9), ridge)(QUERY, KEYS, VALUES) for ridge in (1e3, 1e14)]
    errors = [float(jnp.abs(each - smooth).max()) for each in found]
    assert errors[0] > 1e-5  # the limit is not reached before it is
    assert errors[1] < 1e-12


def test_a_free_line_reads_affine_functions_without_error():
    affine = KEYS @ RNG.normal(size=(3, 2)) + 0.7
    at_query = np.linalg.lstsq(np.hstack([KEYS, np.ones((6, 1))]), affine, rcond=None)[0]
    expected = np.hstack([QUERY, np.ones((4, 1))]) @ at_query
    close(LocalLinear(RBF(2.0), 1e-13)(QUERY, KEYS, affine), expected, 1e-8)


def test_far_from_all_keys_the_line_is_level_and_the_nearest_key_answers():
    module = LocalLinear(RBF(0.9), 0.3)
    direction = np.array([1e3, 0.0, 0.0])  # every K(q, k) is 0 in float64
    nearest = np.argmin(np.sum((KEYS - direction) ** 2, axis=1))
    close(module(direction, KEYS, VALUES), VALUES[nearest], 1e-12)
    gradient = jax.grad(lambda q: module(q, KEYS, VALUES).sum())(jnp.asarray(direction))
    assert jnp.isfinite(gradient).all()


def test_fewer_keys_than_dimensions_and_equal_keys_have_a_line():
    module = LocalLinear(RBF(0.9), 1e-12)
    twins = np.repeat(KEYS[:2], 3, axis=0)
    exact = [line(q, twins, VALUES, rbf(q[None], twins, 0.9)[0], 1e-12) for q in QUERY]
    close(module(QUERY, twins, VALUES), exact, 1e-3)
    close(module(QUERY, np.zeros((6, 3)), VALUES), np.tile(VALUES.mean(axis=0), (4, 1)))


def test_orthonormal_keys_are_met_by_one_full_step():
    """With step 1 the delta rule is linear attention there, and both interpolate."""
    keys = np.linalg.qr(RNG.normal(size=(6, 6)))[0]
    query = np.vstack([keys, RNG.normal(size=(2, 6))])
    written = DeltaRule(1.0)(query, keys, VALUES)
    close(written, LinearAttention()(query, keys, VALUES))
    close(written[:6], VALUES)


def test_the_delta_rule_repeated_is_least_squares():
    """Many passes over the pairs end where ridge regression with a vanishing ridge is (mesa)."""
    keys, values = np.eye(3) + 0.2 * KEYS[:3], VALUES[:3]
    many = DeltaRule(1.0)(QUERY, np.tile(keys, (100, 1)), np.tile(values, (100, 1)))
    mesa = ConditionalMean(Linear(), ridge=1e-9)(QUERY, keys, values)
    close(many, mesa, 1e-6)


def test_mesa_is_ridge_regression_on_the_keys():
    mesa = ConditionalMean(Linear(), ridge=0.2)(QUERY, KEYS, VALUES)
    slopes = np.linalg.solve(KEYS.T @ KEYS + 0.2 * np.eye(3), KEYS.T @ VALUES)
    close(mesa, QUERY @ slopes)


FAMILY = {
    "linear": LinearAttention(chunk_length=4),
    "delta": DeltaRule(STEP, DECAY, chunk_length=4),
    "local": LocalLinear(RBF(0.9), 0.3),
}
MASK = np.array([True, False, True, True, False, True])


@pytest.mark.parametrize("module", FAMILY.values(), ids=FAMILY)
@pytest.mark.parametrize("positions", [4, 9])  # fewer and more than the 6 keys
def test_a_causal_query_reads_its_prefix(module, positions):
    query = np.random.default_rng(1).normal(size=(2, positions, 3))  # two heads of positions
    visible = np.arange(6)[None] <= np.arange(positions)[:, None]
    for mask in (None, MASK):
        prefixes = np.broadcast_to(visible if mask is None else visible & mask, (2, positions, 6))
        expected = module(query, KEYS, VALUES, prefixes)
        close(module(query, KEYS, VALUES, mask, is_causal=True), expected, 1e-12)
    weights = module.weights(query, KEYS, MASK, is_causal=True)
    assert (weights[~prefixes] == 0).all()
    close(weights @ VALUES, expected, 1e-12)


def test_a_mask_per_query_of_the_delta_rule_says_what_it_costs():
    masks = np.ones((4, 6), bool)
    masks[1, 3] = False
    with pytest.warns(PerQueryMaskWarning, match="one state per query"):
        DeltaRule()(QUERY, KEYS, VALUES, masks)


def central(function, array, size=1e-6):
    """Central differences of a number, entry by entry."""
    array = np.asarray(array, float)
    found = np.zeros(array.shape)
    for place in np.ndindex(*array.shape):
        moved = [array.copy() for _ in range(2)]
        moved[0][place] += size
        moved[1][place] -= size
        found[place] = (float(function(moved[0])) - float(function(moved[1]))) / (2 * size)
    return found


def test_gradients_of_the_line_are_differences():
    module = LocalLinear(RBF(0.9), 0.3)

    def loss(module, query, keys, values):
        return jnp.sum(jnp.sin(module(query, keys, values)))

    arguments = QUERY, KEYS, VALUES
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(module, *arguments)
    value = jax.jit(loss)
    for place, gradient in enumerate(gradients[1:]):

        def moved(array, place=place):
            return value(module, *arguments[:place], array, *arguments[place + 1 :])

        close(gradient, central(moved, arguments[place]), 1e-7)

    def of_ridge(log_ridge):
        return value(LocalLinear(RBF(0.9), float(np.exp(log_ridge))), *arguments)

    close(gradients[0].log_ridge, central(of_ridge, np.log(0.3)), 1e-7)


def test_float32_data_loses_no_more_than_their_rounding_in_the_line():
    with jax.enable_x64(False):
        single = [jnp.asarray(array, jnp.float32) for array in (QUERY, KEYS, VALUES)]
        out = LocalLinear(RBF(0.9), 0.3)(*single)
        assert out.dtype == jnp.float32
        rounded = [np.asarray(array, np.float64) for array in single]
        found = np.asarray(out)
    close(found, LocalLinear(RBF(0.9), 0.3)(*rounded), 1e-6)


def test_what_cannot_be_is_refused_by_name():
    for step in (0.0, 2.0, -1.0, float("nan"), np.ones(2)):
        with pytest.raises(InputError, match="`step` argument of DeltaRule"):
            DeltaRule(step)
    for decay in (0.0, 1.1, float("nan")):
        with pytest.raises(InputError, match="`decay` argument of DeltaRule"):
            DeltaRule(decay=decay)
    for make in (LinearAttention, DeltaRule):
        with pytest.raises(InputError, match="`chunk_length` argument"):
            make(chunk_length=0)
    with pytest.raises(UnsupportedError, match="no finite feature map"):
        LinearAttention(RBF())
    with pytest.raises(UnsupportedError, match="both signs"):
        LocalLinear(Linear())
    with pytest.raises(InputError, match="`ridge` argument of LocalLinear"):
        LocalLinear(RBF(), 0.0)
    with pytest.raises(InputError, match="`kernel` argument of LinearAttention"):
        LinearAttention("linear")  # pyright: ignore[reportArgumentType]


def test_modules_say_what_they_are():
    assert str(DeltaRule(0.5, 0.9)) == "DeltaRule(step=0.5, decay=0.9)"
    assert str(LocalLinear(RBF(), 0.3)) == "LocalLinear(RBF(lengthscale=1), ridge=0.3)"
    assert DeltaRule(0.5).logit_decay is None  # forgetting nothing is not trained

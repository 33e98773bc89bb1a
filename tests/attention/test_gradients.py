"""Gradients of CME attention: against a slow reference, finite differences, and once more."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ConditionalMean, KernelSmoother, Softmax, cme_attention
from finetti.attention.cme.conditional_mean import ROUTES
from finetti.attention.cme.routes import Call
from finetti.kernels import RBF, Exponential, Linear, Matern, Polynomial

close = partial(np.testing.assert_allclose, rtol=0)
MASK = jnp.array([True, True, False, True, True, True])
KERNELS = {
    "rbf": RBF(0.9),
    "exponential": Exponential(0.5),
    "linear": Linear(),
    "polynomial": Polynomial(3, scale=0.5),
    "matern": Matern(1.5, 1.2),
}
COMPOSED = {
    "scaled": 2.0 * RBF(0.9),
    "sum": RBF(1.2) + 0.3 * Polynomial(2),
    "product": (3.0 * Matern(2.5)) * RBF(1.7),
}


def gram(kernel, xs, ys):
    """K(x_i, y_j) entry by entry, from the kernel's own formula."""
    return jax.vmap(lambda x: jax.vmap(lambda y: kernel(x, y))(ys))(xs)


def reference(module, query, keys, values):
    """(4.5) and B.1 as printed: slow, and obvious."""
    ridge = jnp.exp(module.log_ridge) * (len(keys) if module.per_token else 1)
    system = gram(module.kernel, keys, keys) + ridge * jnp.eye(len(keys))
    cross = gram(module.kernel, keys, query)
    solved = jnp.linalg.solve(system, cross)
    prior = jax.vmap(lambda q: module.kernel(q, q))(query)
    return solved.T @ values, prior - jnp.sum(cross * solved, axis=0)


def readout(mean, variance):
    return jnp.sum(jnp.sin(mean)) + jnp.sum(jnp.cos(variance))


def ours_of(module, query, keys, values):
    return readout(*module.posterior(query, keys, values))


def theirs_of(module, query, keys, values):
    return readout(*reference(module, query, keys, values))


@pytest.mark.parametrize(
    ("name", "option"), [*((name, "ridge") for name in KERNELS), ("rbf", "ridge_per_token")]
)
def test_values_and_gradients_equal_the_slow_reference(name, option, context):
    module = ConditionalMean(KERNELS[name], **{option: 0.3})
    arguments = (module, *context)
    ours, theirs = (
        jax.jit(jax.value_and_grad(function, argnums=(0, 1, 2, 3)))(*arguments)
        for function in (ours_of, theirs_of)
    )
    leaves = jax.tree.leaves(theirs)
    assert all(jnp.abs(leaf).max() > 1e-4 for leaf in leaves)  # zeros would prove nothing
    for mine, slow in zip(jax.tree.leaves(ours), leaves, strict=True):
        close(mine, slow, atol=1e-10 * max(1.0, float(jnp.abs(slow).max())))


@pytest.mark.parametrize("name", ["rbf", "exponential", "polynomial"])
def test_gradients_by_finite_differences(name, context):
    """Through the mean alone, which takes another route than the posterior."""
    module = ConditionalMean(KERNELS[name], ridge=0.3)

    def function(module, query, keys, values):
        return jnp.sum(jnp.sin(module(query, keys, values, MASK)))

    arguments = (module, *context)
    leaves, structure = jax.tree.flatten(arguments)
    rng = np.random.default_rng(3)
    direction = structure.unflatten([jnp.asarray(rng.normal(size=leaf.shape)) for leaf in leaves])
    gradient = jax.jit(jax.grad(function, argnums=(0, 1, 2, 3)))(*arguments)
    step = 1e-5
    for index in range(4):  # the module, then each array on its own
        total = sum(
            jax.tree.leaves(
                jax.tree.map(lambda g, d: jnp.sum(g * d), gradient[index], direction[index])
            )
        )
        ends = []
        for sign in (1, -1):
            moved = jax.tree.map(
                lambda leaf, d, sign=sign: leaf + sign * step * d,
                arguments[index],
                direction[index],
            )
            ends.append(function(*arguments[:index], moved, *arguments[index + 1 :]))
        # Truncation h²/6·f''' and rounding 1e-16/h are both near 1e-10.
        close(total, (ends[0] - ends[1]) / (2 * step), atol=2e-8)
    assert (gradient[2][2] == 0).all()  # a masked key moves nothing
    assert (gradient[3][2] == 0).all()


def test_gradients_through_a_mask_per_query(context):
    query, keys, values = context
    masks = jnp.tril(jnp.ones((4, 6), bool), k=1)
    module = ConditionalMean(RBF(), ridge=0.3)

    def by_deletion(keys):
        rows = [
            reference(module, query[i][None], keys[: i + 2], values[: i + 2])[0] for i in range(4)
        ]
        return jnp.sum(jnp.sin(jnp.concatenate(rows)))

    def ours(keys):
        return jnp.sum(jnp.sin(module(query, keys, values, masks)))

    close(jax.jit(jax.grad(ours))(keys), jax.jit(jax.grad(by_deletion))(keys), atol=1e-12)


@pytest.mark.parametrize("name", ["rbf", "exponential"])
def test_hessian_equals_that_of_the_slow_reference(name, context):
    query, keys, values = context
    module = ConditionalMean(KERNELS[name], ridge=0.3)

    def hessian(function):
        def scalar(keys, log_ridge):
            moved = eqx.tree_at(lambda module: module.log_ridge, module, log_ridge)
            return function(moved, query, keys, values)

        twice = jax.jacrev(jax.grad(scalar, argnums=(0, 1)), argnums=(0, 1))
        return jax.jit(twice)(keys, module.log_ridge)

    ours, theirs = (jax.tree.leaves(hessian(function)) for function in (ours_of, theirs_of))
    for mine, slow in zip(ours, theirs, strict=True):
        assert jnp.abs(slow).max() > 1e-3
        close(mine, slow, atol=1e-9)


def test_smoothers_have_the_gradients_of_their_formula(context):
    query, keys, values = context

    def formula(kernel, keys):
        scores = gram(kernel, query, keys)
        return jnp.sum(jnp.sin((scores @ values) / jnp.sum(scores, axis=1, keepdims=True)))

    def smoothed(kernel, keys):
        return jnp.sum(jnp.sin(KernelSmoother(kernel)(query, keys, values)))

    for kernel in (Exponential(0.7), RBF(0.8)):
        ours, theirs = (
            jax.jit(jax.grad(function, argnums=(0, 1)))(kernel, keys)
            for function in (smoothed, formula)
        )
        for mine, slow in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            close(mine, slow, atol=1e-12)


@pytest.mark.parametrize("attention", [Softmax(), ConditionalMean(RBF(), ridge=0.1)])
def test_masked_garbage_does_not_poison_gradients(attention, context):
    query, keys, values = context
    dirty = [jnp.where(MASK[:, None], array, jnp.nan) for array in (keys, values)]

    def function(keys, values):
        return jnp.sum(jnp.sin(attention(query, keys, values, MASK)))

    # NaN inside a transformation cannot be looked at, only masked.
    clean = jax.jit(jax.grad(function, argnums=(0, 1)))(keys, values)
    for mine, expected in zip(
        jax.jit(jax.grad(function, argnums=(0, 1)))(*dirty), clean, strict=True
    ):
        np.testing.assert_array_equal(mine, expected)


def test_gradients_are_finite_at_duplicates_without_much_ridge():
    keys = jnp.zeros((6, 3)) + jnp.array([[1.0, -2.0, 0.5]])
    values, query = jnp.arange(12.0).reshape(6, 2), keys[:4]
    for name in ("rbf", "exponential", "matern"):
        module = ConditionalMean(KERNELS[name], ridge=1e-12)
        gradient = jax.jit(jax.grad(ours_of, argnums=(0, 1, 2, 3)))(module, query, keys, values)
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_gradients_of_the_functional_form(context):
    query, keys, values = (array[None, :, None] for array in context)
    module = ConditionalMean(RBF(0.9), ridge=0.3)
    root = 3**-0.25  # √scale on either side

    def functional(query, kernel, ridge):
        return jnp.sum(jnp.sin(cme_attention(query, keys, values, kernel=kernel, ridge=ridge)))

    def slow(query, kernel, ridge):
        moved = eqx.tree_at(
            lambda module: (module.kernel, module.log_ridge), module, (kernel, jnp.log(ridge))
        )
        return jnp.sum(
            jnp.sin(reference(moved, root * query[0, :, 0], root * context.keys, context.values)[0])
        )

    arguments = query, RBF(0.9), jnp.asarray(0.3)
    ours, theirs = (jax.jit(jax.grad(f, argnums=(0, 1, 2)))(*arguments) for f in (functional, slow))
    for mine, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        close(mine, expected, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "route"),
    [
        (name, route)
        for name, kernel in {**KERNELS, **COMPOSED}.items()
        for route in ROUTES
        if not ROUTES[route].refusal(Call(kernel, length=30, queries=30, d_k=3, d_v=2))
    ],
)
def test_every_kernel_has_gradients_on_every_route(name, route):
    """Traced only: parameters that reach a loop over factorizations cannot be differentiated."""
    tokens = [jax.ShapeDtypeStruct((30, width), jnp.float32) for width in (3, 3, 2)]

    def loss(module, *tokens):
        return jnp.sum(module(*tokens))

    with jax.enable_x64(False):
        kernel = {**KERNELS, **COMPOSED}[name]
        kernel = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), kernel)
        module = ConditionalMean(kernel, ridge=0.1, route=route)
        found = jax.eval_shape(jax.grad(loss, argnums=(0, 1, 2, 3)), module, *tokens)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, (module, *tokens))

"""Float64 inside a float32 program, under every transformation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core.numerics.float64 import float64, float64_inside, widest_float

close = partial(np.testing.assert_allclose, rtol=0)
ROUNDING = 2**-22  # of float32, with one bit to spare


@pytest.fixture(autouse=True)
def float32_world():
    with jax.enable_x64(False):
        yield


def delicate(x):
    """x in exact arithmetic; in float32 the sum swallows it."""
    return (x + 1e6) - 1e6


def curved(x, weights):
    """A product, a solve and a loop: what batching and transposition find hard."""
    matrix = jnp.outer(jnp.sin(x), x) @ weights + 3 * jnp.eye(3)
    solved = jnp.linalg.solve(matrix, jnp.exp(x)[:, None])[:, 0]
    return jax.lax.fori_loop(0, 3, lambda _, value: jnp.sin(value) * x, solved) + delicate(x)


def inputs():
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=3), jnp.float32), jnp.asarray(
        rng.normal(size=(3, 3)), jnp.float32
    )


def exactly(function, *arguments):
    """``function`` in a float64 world, as a NumPy array."""
    with float64():
        return np.asarray(function(*(jnp.asarray(np.asarray(a, np.float64)) for a in arguments)))


def compare(transform, tolerance=ROUNDING, eager=False):
    x, weights = inputs()
    inside = transform(float64_inside(curved))
    expected = exactly(jax.jit(transform(curved)), x, weights)
    for run in (inside, jax.jit(inside)) if eager else (jax.jit(inside),):
        result = run(x, weights)
        assert result.dtype == jnp.float32
        close(result, expected, atol=tolerance * max(1.0, np.abs(expected).max()))


def total(function):
    return lambda *arguments: jnp.sum(jnp.sin(function(*arguments)))


def test_the_tests_can_fail():
    x = jnp.float32(1e-3)
    assert abs(float(delicate(x)) - 1e-3) > 1e-4
    assert float(float64_inside(delicate)(x)) == pytest.approx(1e-3, rel=1e-6)


def test_value():
    compare(lambda function: function, eager=True)


@pytest.mark.parametrize("argument", [0, 1])
def test_gradient(argument):
    compare(lambda function: jax.grad(total(function), argument), eager=True)


def test_jacobian():
    compare(jax.jacrev)


def test_hessian():
    compare(lambda function: jax.jacrev(jax.grad(total(function))))


def test_mixed_second_derivative():
    compare(lambda function: jax.jacrev(jax.grad(total(function), argnums=1), argnums=0))


def test_third_derivative():
    def slope(function):
        return lambda *arguments: jnp.sum(jax.grad(function)(*arguments))

    compare(lambda function: jax.grad(slope(slope(total(function)))))


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 2)])
def test_vmap(axes):
    def mapped(function):
        def run(x, weights):
            pairs = ((x, 2 * x), axes[0]), ((weights, -weights), axes[1])
            stacks = [pair[0] if axis is None else jnp.stack(pair, axis) for pair, axis in pairs]
            return jax.vmap(function, in_axes=axes)(*stacks)

        return run

    compare(mapped)


def test_vmap_of_the_gradient_and_gradient_of_the_vmap():
    def stacked(function):
        return lambda x, weights: jax.vmap(function, in_axes=(0, None))(jnp.stack([x, -x]), weights)

    compare(lambda function: stacked(jax.grad(total(function))))
    compare(lambda function: jax.grad(total(stacked(function))))


def test_vmap_of_vmap():
    def twice(function):
        grid = jax.vmap(jax.vmap(function, (0, None)), (None, 0))
        return lambda x, weights: grid(jnp.stack([x, -x]), jnp.stack([weights, weights + 1]))

    compare(twice)


def test_inside_loops_and_checkpoints():
    def scanned(function):
        def run(x, weights):
            def step(carry, _):
                return 0.5 * function(carry, weights), None

            return jax.lax.scan(step, x, None, length=2)[0]

        return run

    compare(lambda function: jax.grad(total(jax.checkpoint(function))))
    # The carry is rounded to float32 between the steps.
    compare(scanned, 10 * ROUNDING)
    compare(lambda function: jax.grad(total(scanned(function))), 50 * ROUNDING)


def test_jit_inside_and_outside():
    compare(lambda function: jax.vmap(jax.jit(function), (None, None), axis_size=2))
    compare(lambda function: jax.grad(total(jax.jit(function))))


def test_pytrees_integers_and_booleans_pass():
    def function(tree, count, flags):
        kept = jnp.where(flags, tree["a"], 0.0)
        return {"sum": jnp.sum(kept) * count.astype(float) + tree["b"][0], "count": count + 1}

    tree = {"a": jnp.arange(3, dtype=jnp.float32), "b": (jnp.float32(0.5),)}
    count, flags = jnp.int32(2), jnp.array([True, False, True])
    result = float64_inside(function)(tree, count, flags)
    assert float(result["sum"]) == 4.5
    assert result["count"].dtype == jnp.int32
    gradient = jax.grad(lambda tree: float64_inside(function)(tree, count, flags)["sum"])(tree)
    assert gradient["a"].tolist() == [2.0, 0.0, 2.0]
    assert gradient["b"][0].dtype == jnp.float32
    batched = jax.vmap(float64_inside(function), (None, 0, None))(
        tree, jnp.arange(3, dtype=jnp.int32), flags
    )
    assert batched["sum"].tolist() == [0.5, 2.5, 4.5]


def test_results_take_the_widest_precision_of_the_arguments():
    half, single = jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.float32)
    inside = float64_inside(lambda x, y: x + y)
    assert inside(half, half).dtype == jnp.bfloat16
    assert inside(half, single).dtype == jnp.float32
    gradient = jax.grad(lambda x, y: jnp.sum(inside(x, y)), argnums=(0, 1))(half, single)
    assert [leaf.dtype for leaf in gradient] == [jnp.bfloat16, jnp.float32]
    with float64():
        assert inside(half, np.ones(2)).dtype == jnp.float64


def test_leaves_the_world_as_it_was():
    def fails(x):
        assert x.dtype == jnp.float64
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        float64_inside(fails)(jnp.float32(1))
    assert jnp.asarray(1.0).dtype == jnp.float32
    with float64():
        assert jnp.asarray(1.0).dtype == jnp.float64
    assert jnp.asarray(1.0).dtype == jnp.float32


def test_forward_mode_is_refused_not_wrong():
    x, weights = inputs()
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda x: float64_inside(curved)(x, weights), (x,), (x,))


def test_widest_float():
    assert widest_float(jnp.ones(1, jnp.bfloat16)) == jnp.bfloat16
    assert widest_float(jnp.ones(1, jnp.bfloat16), jnp.ones(1, jnp.float16)) == jnp.float32
    assert widest_float(jnp.arange(3)) == jnp.float32
    assert widest_float(jnp.arange(3), jnp.ones(1, jnp.bfloat16)) == jnp.bfloat16
    with float64():
        assert widest_float(jnp.arange(3)) == jnp.float64
        assert widest_float(np.ones(1), jnp.ones(1, jnp.float32)) == jnp.float64

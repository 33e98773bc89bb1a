"""Positive-definite solves: values, gradients, conditions, and what the status says."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import hilbert
from scipy.stats import multivariate_normal

from finetti.core.linalg.positive_definite import (
    Status,
    condition_number,
    diagonal_floor,
    gaussian_log_density,
    posdef_factor,
    posdef_solve,
    safe_cholesky,
    solve_status,
)
from finetti.core.numerics.float64 import float64_inside

close = partial(np.testing.assert_allclose, rtol=0)


def posdef(seed=0, size=5, ridge=0.5):
    root = np.random.default_rng(seed).normal(size=(size, size))
    return jnp.asarray(root @ root.T / size + ridge * np.eye(size))


def right(seed=1, size=5, columns=2):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(size, columns)))


@jax.jit
def solved(matrix, b):
    value, factor, shift = posdef_solve(matrix, b)
    condition = condition_number(matrix, factor)
    return value, solve_status(condition, shift, jnp.zeros((), bool)), condition, shift


def test_solves_and_says_so():
    matrix, b = posdef(), right()
    value, status, _, shift = solved(matrix, b)
    close(value, np.linalg.solve(matrix, b), atol=1e-13)
    assert Status(int(status)) is Status.SOLVED
    assert shift == 0


@pytest.mark.parametrize(
    ("matrix", "status"),
    [
        (np.diag([1.0, 1e-9]), Status.SOLVED),
        (np.diag([1.0, 1e-11]), Status.ILL_CONDITIONED),
        (np.ones((3, 3)), Status.REPAIRED),  # singular: a zero pivot
        (np.ones((3, 3)) - 1e-9 * np.eye(3), Status.REPAIRED),  # indefinite by a little
        (np.array([[1.0, 10.0], [10.0, 1.0]]), Status.FAILED),  # indefinite by far
        (np.array([[0.0, 1.0], [1.0, 0.0]]), Status.FAILED),  # no diagonal to raise
    ],
)
def test_status(matrix, status):
    b = np.ones((len(matrix), 1))
    value, found, condition, shift = solved(matrix, b)
    assert Status(int(found)) is status
    assert (shift > 0) == (status >= Status.REPAIRED)
    if status is Status.FAILED:
        assert condition == np.inf
    else:
        repaired = matrix + float(shift) * np.diag(np.diag(matrix))
        residual = np.abs(repaired @ np.asarray(value) - b).max()
        assert residual <= 1e-10 * max(1.0, np.abs(value).max())


def test_repair_is_the_smallest_of_its_ladder():
    """The shift is the floor times a power of a thousand, and the step before it did not do."""
    defect = 1e-6
    matrix = jnp.ones((3, 3)) - defect * jnp.eye(3)
    _, shift = safe_cholesky(matrix)
    # λ_min of A + s·diag A is −defect + s(1 − defect).
    assert defect < float(shift) <= 1.01 * defect * 1e3


def test_every_status_has_advice():
    sentences = {status.advice for status in Status}
    assert len(sentences) == len(Status)
    assert all(sentence.endswith(".") for sentence in sentences)


@jax.jit
def estimated(matrix):
    return condition_number(matrix, jnp.linalg.cholesky(matrix))


@pytest.mark.parametrize("ridge", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_condition_number(size, ridge):
    """Never above the truth, and Hager's estimate is within a factor of 3 in practice."""
    for seed in range(5):
        matrix = posdef(seed, size, ridge)
        estimate = float(estimated(matrix))
        exact = np.linalg.cond(np.asarray(matrix), 1)
        assert exact / 3 <= estimate <= exact * (1 + 1e-6)


def test_condition_number_of_known_matrices():
    diagonal = jnp.diag(jnp.array([8.0, 2.0, 0.5]))
    assert float(estimated(diagonal)) == pytest.approx(16.0)
    assert float(estimated(jnp.asarray(hilbert(6)))) == pytest.approx(
        np.linalg.cond(hilbert(6), 1), rel=1e-6
    )


@pytest.mark.parametrize("size", [2, 17, 130])
def test_the_floor_suffices_for_the_worst_gram_matrix(size):
    """Equal tokens: a matrix of ones, as singular as can be."""
    rng = np.random.default_rng(size)
    for tokens in (np.ones((size, 3)), np.repeat(rng.normal(size=(1, 3)), size, axis=0)):
        gram = tokens @ tokens.T
        matrix = gram + diagonal_floor(size, 3) * np.diag(np.diag(gram))
        factor, shift = safe_cholesky(jnp.asarray(matrix))
        assert shift == 0
        assert jnp.isfinite(factor).all()


def test_floor_grows_with_the_matrix():
    assert diagonal_floor(10) < diagonal_floor(100) < diagonal_floor(100, 50) < 1e-11


@pytest.mark.parametrize("order", [1, 2, 3])
def test_gradients_of_every_order_are_those_of_a_plain_solve(order):
    matrix, b = posdef(), right()

    def ours(matrix, b):
        return jnp.sum(jnp.sin(posdef_solve(matrix, b)[0]))

    def plain(matrix, b):
        return jnp.sum(jnp.sin(jnp.linalg.solve(matrix, b)))

    def derivative(function):
        for _ in range(order):
            function = along(function)
        return jax.jit(function)(matrix, b)

    def along(function):  # the slope along one fixed symmetric direction
        return lambda *point: sum(
            jnp.sum(g * d) for g, d in zip(jax.grad(function, (0, 1))(*point), step, strict=True)
        )

    step = (posdef(2), right(3))
    expected = derivative(plain)
    assert abs(expected) > 1e-3
    close(derivative(ours), expected, atol=1e-11 * max(1.0, abs(float(expected))))


def test_gradient_of_the_factor_is_that_of_cholesky():
    matrix = posdef()

    def readout(factor):
        return jnp.sum(jnp.sin(factor @ right()))

    ours = jax.grad(lambda matrix: readout(posdef_factor(matrix)))(matrix)
    theirs = jax.grad(lambda matrix: readout(jnp.linalg.cholesky(matrix)))(matrix)
    close(ours, 0.5 * (theirs + theirs.T), atol=1e-12)


def test_log_density_and_its_gradient():
    matrix, samples = posdef(), right()
    expected = sum(
        multivariate_normal(np.zeros(5), matrix).logpdf(column) for column in np.asarray(samples).T
    )
    close(gaussian_log_density(matrix, samples), expected, atol=1e-12)

    def plain(matrix, samples):
        quadratic = jnp.sum(samples * jnp.linalg.solve(matrix, samples))
        return -0.5 * quadratic - jnp.linalg.slogdet(matrix)[1]

    ours = jax.grad(gaussian_log_density, argnums=(0, 1))(matrix, samples)
    for mine, slow in zip(ours, jax.grad(plain, argnums=(0, 1))(matrix, samples), strict=True):
        close(mine, slow, atol=1e-12)


def test_vmap_is_the_loop_even_if_one_matrix_needs_repair():
    matrices = jnp.stack([posdef(0), jnp.ones((5, 5)), posdef(1)])
    bs = jnp.stack([right(0), right(1), right(2)])
    value, _, shift = jax.vmap(posdef_solve)(matrices, bs)
    for index in range(3):
        single, _, single_shift = posdef_solve(matrices[index], bs[index])
        np.testing.assert_array_equal(shift[index], single_shift)
        close(value[index], single, atol=1e-12 * float(jnp.abs(single).max()))
    assert (shift > 0).tolist() == [False, True, False]


def test_works_in_float64_under_float32():
    """κ = 1e6: a float32 solve would keep one digit."""
    matrix64, b64 = np.diag(np.logspace(0, -6, 5)) + 1e-8, np.ones((5, 1))
    with jax.enable_x64(False):
        matrix = jnp.asarray(matrix64, jnp.float32)
        value = float64_inside(posdef_solve)(matrix, jnp.asarray(b64, jnp.float32))[0]
        assert value.dtype == jnp.float32
        value, rounded = np.asarray(value), np.asarray(matrix, np.float64)
    expected = np.linalg.solve(rounded, b64)
    np.testing.assert_allclose(value, expected, rtol=2**-23)

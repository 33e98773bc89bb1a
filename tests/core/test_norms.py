"""Norms: definitions, invariances, gradients, and what is refused."""

import itertools
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from finetti.core.errors import InputError
from finetti.core.linalg import norms

EXPONENTS = [1.0, 1.3, 2.0, 3.5, math.inf]
PAIRS = list(itertools.product(EXPONENTS, EXPONENTS))
untimed = settings(deadline=None)  # a busy machine is no failure

exponents = st.one_of(st.sampled_from([1.0, 2.0, math.inf]), st.floats(1.0, 60.0))
matrices = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    elements=st.floats(-1e3, 1e3).map(lambda value: value if abs(value) > 1e-3 else 0.0),
)


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_norm_pq_is_its_definition(p, q):
    matrix = gaussian(5, 7)
    columns = [np.linalg.norm(matrix[:, j], ord=p) for j in range(7)]
    assert norms.norm_pq(matrix, p, q) == pytest.approx(np.linalg.norm(columns, ord=q), rel=1e-14)
    assert norms.column_norms(matrix, p) == pytest.approx(np.array(columns), rel=1e-14)


def test_special_cases_agree():
    matrix = gaussian(2, 4, 6)
    transpose = matrix.swapaxes(-1, -2)
    assert norms.norm_pq(matrix, 2, 2) == pytest.approx(norms.frobenius(matrix), rel=1e-14)
    assert norms.max_column_norm(matrix) == pytest.approx(norms.norm_pq(matrix, 2, math.inf))
    assert norms.max_row_norm(matrix, 3) == pytest.approx(norms.norm_pq(transpose, 3, math.inf))
    assert norms.sequence_norm(matrix, 3) == pytest.approx(norms.norm_pq(transpose, 3, math.inf))
    left, _, right = np.linalg.svd(gaussian(4, 4, seed=1))
    assert norms.spectral(left @ np.diag([7.0, 3.0, 1.0, 0.5]) @ right) == pytest.approx(7.0)


def test_orientation_of_erratum_9():
    matrix = np.array([[3.0, 4.0], [0.0, 0.0]])
    assert (norms.max_column_norm(matrix), norms.max_row_norm(matrix)) == (4.0, 5.0)


def test_leading_axes_are_a_batch():
    batch = gaussian(3, 2, 4, 5)
    for norm in (lambda m: norms.norm_pq(m, 3, 1.5), norms.spectral, norms.frobenius):
        assert norm(batch) == pytest.approx(np.array([[norm(m) for m in row] for row in batch]))


@untimed
@given(matrices, exponents, exponents, st.floats(-50, 50))
def test_norm_pq_is_homogeneous(matrix, p, q, factor):
    expected = abs(factor) * norms.norm_pq(matrix, p, q)
    assert norms.norm_pq(factor * matrix, p, q) == pytest.approx(expected, rel=1e-12, abs=1e-280)


@untimed
@given(matrices, exponents, exponents, st.integers(0, 2**32))
def test_norm_pq_obeys_the_triangle_inequality(matrix, p, q, seed):
    other = 100 * gaussian(*matrix.shape, seed=seed)
    total = norms.norm_pq(matrix, p, q) + norms.norm_pq(other, p, q)
    assert norms.norm_pq(matrix + other, p, q) <= total * (1 + 1e-12)


def test_no_overflow_or_underflow():
    matrix = np.array([[3e200, 4e200]])
    assert norms.frobenius(matrix) == pytest.approx(5e200, rel=1e-14)
    assert norms.norm_pq(np.full((2, 1), 1e-200), 400, 1) == pytest.approx(1e-200 * 2 ** (1 / 400))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_jax_and_numpy_agree(p, q, dtype):
    matrix = gaussian(4, 6).astype(dtype)
    value = norms.norm_pq(jnp.asarray(matrix), np.float64(p), q)  # must not widen float32
    assert isinstance(value, jax.Array)
    assert value.dtype == dtype
    tolerance = 8 * float(np.finfo(dtype).eps)
    assert float(value) == pytest.approx(float(norms.norm_pq(matrix, p, q)), rel=tolerance)


def test_jax_and_numpy_agree_elsewhere():
    matrix = gaussian(2, 4, 6)
    for norm in (norms.frobenius, norms.spectral, norms.max_row_norm, norms.sequence_norm):
        value = np.asarray(jax.jit(norm)(jnp.asarray(matrix)))
        assert value == pytest.approx(norm(matrix), rel=1e-13)
    half = jnp.asarray(matrix, jnp.bfloat16)
    assert norms.spectral(half) == pytest.approx(norms.spectral(np.asarray(half)), rel=1e-12)


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_gradient_by_finite_differences(p, q):
    matrix, direction, step = gaussian(3, 4), gaussian(3, 4, seed=1), 1e-6
    gradient = jax.grad(lambda m: norms.norm_pq(m, p, q))(jnp.asarray(matrix))
    ahead = norms.norm_pq(matrix + step * direction, p, q)
    behind = norms.norm_pq(matrix - step * direction, p, q)
    slope = (ahead - behind) / (2 * step)
    assert float((np.asarray(gradient) * direction).sum()) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_gradient_at_zero_is_a_subgradient(p, q):
    zero_column = jnp.asarray(gaussian(3, 4)).at[:, 1].set(0.0)
    for matrix in (zero_column, jnp.zeros((3, 4))):
        gradient = np.asarray(jax.grad(lambda m: norms.norm_pq(m, p, q))(matrix))
        other = gaussian(3, 4, seed=2)
        base = float(norms.norm_pq(matrix, p, q))
        linear = base + (gradient * (other - np.asarray(matrix))).sum()
        assert norms.norm_pq(other, p, q) >= linear - 1e-12


@pytest.mark.parametrize(
    "bad", [np.ones(3), np.ones((0, 3)), np.array([[math.nan, 1.0]]), np.array([[1j, 1.0]])]
)
def test_bad_matrices_are_refused(bad):
    for norm in (norms.frobenius, norms.spectral, norms.max_row_norm, norms.column_norms):
        with pytest.raises(InputError, match="`matrix`"):
            norm(bad)
    with pytest.raises(InputError, match="`tokens`"):
        norms.sequence_norm(bad)


@pytest.mark.parametrize("bad", [0.99, -1, math.nan])
def test_exponents_below_one_are_refused(bad):
    with pytest.raises(InputError, match="`q` argument of norm_pq"):
        norms.norm_pq(np.eye(2), 2, bad)


def test_import_needs_no_jax():
    code = "import sys, finetti.core.linalg.norms; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""LAPACK, one matrix at a time: the only door to it from a JAX program.

On CPU a *batched* LAPACK call of jaxlib (0.10.2) hands its matrices to XLA's threads and waits for
them, itself on one of these threads. Two such calls that run at the same time can hold all the
threads there are and wait for each other for ever: training with causal attention stopped like
that in half of the runs on two cores. No order inside one of our functions would help, because a
user's program may hold two of them. So under `vmap` each function here is a loop over matrices; for
8 to 256 matrices of 32 to 400 rows on two cores that took 0.5 to 1.4 times as long as the batch.

A second trap: OpenBLAS (0.3.30) with two threads writes beyond its buffers, and the process dies,
when it factors 16 000 rows and more (`numpy.linalg.cholesky` does so too). Such matrices are
factored in parts.

`tests/core/test_lapack.py` keeps LAPACK out of the rest of the package, and
`tests/attention/test_lapack_calls.py` looks at the programs.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float

# Rows that one call may factor.
MAX_ROWS = 8192


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower factor, from the lower triangle; NaN on the diagonal if there is none."""
    size = matrix.shape[0]
    if size <= MAX_ROWS:
        return _cholesky(matrix)
    middle = size // 2
    first = cholesky(matrix[:middle, :middle])
    below = solve_lower(first, matrix[middle:, :middle].T).T
    second = cholesky(matrix[middle:, middle:] - below @ below.T)
    right = jnp.zeros((middle, size - middle), matrix.dtype)
    return jnp.block([[first, right], [below, second]])


@sequential_vmap
def _cholesky(matrix: Array) -> Array:
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


@sequential_vmap
def solve_lower(factor: Float[Array, "n n"], right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """G⁻¹B for a lower triangular G."""
    return jax.scipy.linalg.solve_triangular(factor, right, lower=True)


@sequential_vmap
def solve_lower_transposed(
    factor: Float[Array, "n n"], right: Float[Array, "n k"]
) -> Float[Array, "n k"]:
    """G⁻ᵀB for a lower triangular G."""
    return jax.scipy.linalg.solve_triangular(factor, right, lower=True, trans="T")


@sequential_vmap
def eigh(matrix: Float[Array, "n n"]) -> tuple[Float[Array, "n"], Float[Array, "n n"]]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


def singular_values(matrix: Float[Array, "*batch m n"]) -> Float[Array, "*batch r"]:
    """Singular values, descending."""
    return _vectorized(_singular_values, matrix)


def qr(matrix: Float[Array, "*batch n n"]) -> tuple[Array, Array]:
    """Q and R of the QR decomposition."""
    return _vectorized(_qr, matrix)


@sequential_vmap
def _singular_values(matrix: Array) -> Array:
    return jnp.linalg.svd(matrix, compute_uv=False)


@sequential_vmap
def _qr(matrix: Array) -> tuple[Array, Array]:
    basis, triangle = jnp.linalg.qr(matrix)
    return basis, triangle


def _vectorized(function: Any, matrix: Array) -> Any:
    for _ in range(matrix.ndim - 2):
        function = jax.vmap(function)
    return function(matrix)

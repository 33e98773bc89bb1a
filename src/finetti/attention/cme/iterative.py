"""CME attention for long contexts: preconditioned block conjugate gradients that never hold
the Gram matrix.

The kernel matrix is evaluated block by block inside every product, so memory is linear in L. The
work is L²·(d_k + d_v) per iteration, in the precision of the data (float32 as a rule); gradients
solve one more system of the same kind (implicit differentiation).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.cme.gram_product import gram_product
from finetti.core import block_tree
from finetti.core.block_cg import Iterations, Operator, conjugate_gradients
from finetti.kernels.base import Kernel

RANK = 1024


def default_tolerance(dtype: jnp.dtype) -> float:
    """Relative residual asked of conjugate gradients: 1e-5 in float32, 1e-12 in float64."""
    return 1e-5 if dtype == jnp.float32 else 1e-12


def iterative_mean(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    query: Float[Array, "Q d_k"],
    mask: Bool[Array, "L"] | None,
    ridge: Float[Array, ""] | Float[Array, "L"],
    tolerance: float | None = None,
    precondition: Operator | None = None,
) -> tuple[Float[Array, "Q d_v"], Iterations]:
    """Vᵀ(K + λI)⁻¹K(K, q) and how the iteration went. Masked values must be zero.

    ``precondition`` applies about (K + λI)⁻¹; without one, a Nyström approximation is made, and
    λ is one number for all keys.
    """
    dtype = keys.dtype
    weights = jnp.ones(keys.shape[:1], dtype) if mask is None else mask.astype(dtype)
    ridge = ridge.astype(dtype)
    tolerance = default_tolerance(dtype) if tolerance is None else tolerance
    if precondition is None:
        precondition = _preconditioner(
            *jax.lax.stop_gradient((kernel, keys, weights, ridge)), rank=min(RANK, keys.shape[0])
        )

    noise = jnp.broadcast_to(ridge, keys.shape[:1])[:, None]

    def apply(vectors: Float[Array, "L k"]) -> Float[Array, "L k"]:
        # A masked key keeps only its ridge: the kernel's rows and columns are switched off.
        product = gram_product(kernel, keys, keys, weights[:, None] * vectors)
        return weights[:, None] * product + noise * vectors

    def solve(matvec: Callable[[Array], Array], right: Array) -> tuple[Array, Iterations]:
        return conjugate_gradients(matvec, right, precondition, tolerance)

    coefficients, iterations = jax.lax.custom_linear_solve(
        apply, values, solve, symmetric=True, has_aux=True
    )
    return gram_product(kernel, query, keys, coefficients), iterations


def _preconditioner(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    weights: Float[Array, "L"],
    ridge: Float[Array, ""],
    rank: int,
) -> Operator:
    """(RRᵀ + λI)⁻¹ with RRᵀ ≈ K by `nystrom`, applied through Woodbury's identity."""
    # What lies a hundred times below the ridge need not be resolved.
    root = nystrom(kernel, keys, weights, rank, nugget=0.01 * ridge)
    inner = root.T @ root + ridge * jnp.eye(rank, dtype=root.dtype)
    tree = block_tree.factor(block_tree.blocks_of(inner), rank, refined=False)
    # Where rounding spoils the small factor, no preconditioner is better than a wrong one.
    usable = jnp.all(jnp.isfinite(block_tree.solve(tree, jnp.ones((rank, 1), root.dtype))))
    root = jnp.where(usable, root, 0.0)

    def apply(residual: Array) -> Array:
        correction = block_tree.solve(tree, root.T @ residual)
        return (residual - root @ jnp.where(usable, correction, 0.0)) / ridge

    return apply


def nystrom(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    weights: Float[Array, "L"],
    rank: int,
    nugget: Float[Array, ""] | float = 0.0,
) -> Float[Array, "L rank"]:
    """R = K(K, C)G⁻ᵀ, GGᵀ = K(C, C) + nugget·I, for ``rank`` keys C over the context: RRᵀ ≈ K.

    The nugget is at least what keeps the small factor numerically positive definite.

    Reference: Williams and Seeger (2001); Frangella, Tropp and Udell (2023) as a preconditioner.
    """
    length = keys.shape[0]
    chosen = jnp.arange(rank) * length // rank
    centers, kept = keys[chosen], weights[chosen]
    cross = weights[:, None] * kernel.gram(keys, centers) * kept[None, :]
    gram = kept[:, None] * kernel.gram(centers) * kept[None, :]
    least = 10 * rank * jnp.finfo(keys.dtype).eps * jnp.max(kernel.diagonal(keys))
    gram = gram + jnp.diag(jnp.maximum(nugget, least) + (1 - kept))
    tree = block_tree.factor(block_tree.blocks_of(gram), rank, refined=False)
    return block_tree.divide(cross, tree)

"""CME attention by one factorization of blocks: the Gram matrix is evaluated where it is needed.

All in the precision of the data. The noise Λ is one number per key; a masked key keeps only that.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.cme.gram_product import gram_product
from finetti.core import block_tree
from finetti.core.solves import diagonal_floor, first_that_factors
from finetti.kernels.base import Kernel


def factor(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    noise: Float[Array, "L"],
    mask: Bool[Array, "L"] | None,
    *,
    refined: bool = False,
) -> block_tree.Tree:
    """The factor of K + diag(noise), without a gradient."""
    kernel, keys, noise = jax.lax.stop_gradient((kernel, keys, noise))

    def entries(rows: slice, columns: slice) -> Array:
        on_diagonal = rows == columns
        gram = kernel.gram(keys[rows], None if on_diagonal else keys[columns])
        if mask is not None:
            gram = jnp.where(mask[rows, None] & mask[None, columns], gram, 0.0)
        return gram + jnp.diag(noise[rows]) if on_diagonal else gram

    return block_tree.factor(entries, len(keys), refined=refined)


def repaired_factor(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    noise: Float[Array, "L"],
    mask: Bool[Array, "L"] | None,
) -> tuple[block_tree.Tree, Float[Array, ""]]:
    """The factor with the diagonal raised until there is one, refined in float64; and the shift."""
    kernel, keys, noise = jax.lax.stop_gradient((kernel, keys, noise))
    diagonal = noise + kernel.diagonal(keys)
    length, double = len(keys), keys.dtype == jnp.float64
    # The provable floor of float32 would hide half of the spectrum: it is felt for instead.
    floor, escalation = (diagonal_floor(length), 1e3) if double else (length * 2.0**-23, 8.0)
    return first_that_factors(
        lambda shift: factor(kernel, keys, noise + shift * diagonal, mask, refined=double),
        block_tree.exists,
        floor,
        keys.dtype,
        escalation,
    )


def solve(
    tree: block_tree.Tree,
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    mask: Bool[Array, "L"] | None,
    noise: Float[Array, "L"],
) -> Float[Array, "L d_v"]:
    """(K + diag(noise))⁻¹V, 0 where there is no factor; gradients by implicit differentiation."""

    def matvec(vectors: Array) -> Array:
        if mask is None:
            return gram_product(kernel, keys, keys, vectors) + noise[:, None] * vectors
        kept = mask.astype(keys.dtype)[:, None]
        return kept * gram_product(kernel, keys, keys, kept * vectors) + noise[:, None] * vectors

    def solved(_: Callable[[Array], Array], right: Array) -> Array:
        solution = block_tree.solve(tree, right)
        return jnp.where(jnp.isfinite(solution), solution, 0.0)

    return jax.lax.custom_linear_solve(matvec, values, solved, symmetric=True)

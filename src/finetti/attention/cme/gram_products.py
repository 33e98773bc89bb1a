"""Products with a kernel matrix that is never held: one block of rows at a time, in the cache."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.context_batch import split_rows
from finetti.core.linalg.matrix_products import transposed_product
from finetti.core.linalg.positive_definite import at_least_floor
from finetti.kernels.kernel import Kernel

# Entries of a block: 8 MB in float32, about what stays near the cores. In float64 2 MB: it
# is the rare branch, and a program that allocates more than 32 MB pays for fresh pages every time.
BLOCK_ENTRIES = 2**21
_BLOCK_ENTRIES_64 = 2**18


class KeySystem(NamedTuple):
    """K + Λ among the keys of one context, never held; a masked key keeps only its noise."""

    kernel: Kernel
    keys: Float[Array, "L d_k"]
    noise: Float[Array, "L"]
    mask: Bool[Array, "L"] | None

    @property
    def kept(self) -> Float[Array, "L"]:
        """1 for the keys that count, 0 for the others."""
        if self.mask is None:
            return jnp.ones_like(self.noise)
        return self.mask.astype(self.noise.dtype)

    def apply(self, vectors: Float[Array, "L k"]) -> Float[Array, "L k"]:
        """(K + Λ)x."""
        if self.mask is None:
            product = gram_product(self.kernel, self.keys, self.keys, vectors)
        else:
            kept = self.kept[:, None]
            product = kept * gram_product(self.kernel, self.keys, self.keys, kept * vectors)
        return product + self.noise[:, None] * vectors


def key_noise(
    kernel: Kernel, ridge: Float[Array, ""], keys: Float[Array, "L d_k"]
) -> Float[Array, "L"]:
    """λ, or its floor, for every key."""
    return at_least_floor(ridge, kernel.diagonal(keys), keys.shape[1])


class CachedGram(NamedTuple):
    """K(rows, keys), evaluated once for values and gradients, and its pullback."""

    gram: Float[Array, "n L"]
    pull: Any


def cache_gram(
    kernel: Kernel, rows: Float[Array, "n d_k"], keys: Float[Array, "L d_k"]
) -> CachedGram | None:
    """K(rows, keys), or None where it is evaluated block by block, and again for a gradient."""
    return None if _n_blocks(rows, keys) else _evaluated(kernel, rows, keys)


def _evaluated(kernel: Kernel, rows: Array, keys: Array) -> CachedGram:
    return CachedGram(*jax.vjp(lambda *args: args[0].gram(*args[1:]), kernel, rows, keys))


class ProductGradients(NamedTuple):
    """Cotangents of K(rows, keys)·vectors."""

    kernel: Kernel
    rows: Float[Array, "n d_k"]
    keys: Float[Array, "L d_k"]
    vectors: Float[Array, "L k"]


@jax.custom_vjp
def gram_product(
    kernel: Kernel,
    rows: Float[Array, "n d_k"],
    keys: Float[Array, "L d_k"],
    vectors: Float[Array, "L k"],
) -> Float[Array, "n k"]:
    """K(rows, keys)·vectors. The backward pass evaluates each block once more for all gradients."""
    if not _n_blocks(rows, keys):
        return kernel.gram(rows, keys) @ vectors
    products = jax.lax.map(lambda block: kernel.gram(block, keys) @ vectors, _blocks(rows, keys))
    return _joined(products, rows.shape[0])


def product_gradients(
    kernel: Kernel,
    rows: Float[Array, "n d_k"],
    keys: Float[Array, "L d_k"],
    vectors: Float[Array, "L k"],
    cotangent: Float[Array, "n k"],
    held: CachedGram | None = None,
) -> tuple[ProductGradients, Float[Array, "n k"]]:
    """All cotangents of `gram_product`, and the product itself, from one evaluation of K."""

    def one(held: CachedGram, cotangent: Array) -> Any:
        of_kernel, of_rows, of_keys = held.pull(cotangent @ vectors.T)
        total = of_kernel, of_keys, transposed_product(held.gram, cotangent)
        return total, (of_rows, held.gram @ vectors)

    held = held or cache_gram(kernel, rows, keys)
    if held is not None:
        (of_kernel, of_keys, of_vectors), (of_rows, product) = one(held, cotangent)
        return ProductGradients(of_kernel, of_rows, of_keys, of_vectors), product

    def step(total: Any, pair: Any) -> Any:
        part, of_block = one(_evaluated(kernel, pair[0], keys), pair[1])
        return jax.tree.map(jnp.add, total, part), of_block

    zero = jax.tree.map(jnp.zeros_like, (kernel, keys, vectors))
    blocks = _blocks(rows, keys), _blocks_of(cotangent, _n_blocks(rows, keys))
    (of_kernel, of_keys, of_vectors), of_blocks = jax.lax.scan(step, zero, blocks)
    of_rows, product = (_joined(parts, rows.shape[0]) for parts in of_blocks)
    return ProductGradients(of_kernel, of_rows, of_keys, of_vectors), product


def _forward(kernel: Kernel, rows: Array, keys: Array, vectors: Array) -> Any:
    return gram_product(kernel, rows, keys, vectors), (kernel, rows, keys, vectors)


def _backward(residuals: Any, cotangent: Array) -> Any:
    kernel, rows, keys, vectors = residuals
    return tuple(product_gradients(kernel, rows, keys, vectors, cotangent)[0])


gram_product.defvjp(_forward, _backward)


def _n_blocks(rows: Array, keys: Array) -> int:
    """0 where one block holds everything."""
    entries = BLOCK_ENTRIES if keys.dtype.itemsize < 8 else _BLOCK_ENTRIES_64
    blocks = -(-rows.shape[0] * keys.shape[0] // entries)
    return 0 if blocks <= 1 else blocks


def _blocks(rows: Array, keys: Array) -> Array:
    return _blocks_of(rows, _n_blocks(rows, keys))


def _blocks_of(rows: Array, count: int) -> Array:
    """About ``count`` blocks; padded rows are zero and their cotangents too."""
    return split_rows(rows, -(-rows.shape[0] // count))


def _joined(blocks: Array, count: int) -> Array:
    return blocks.reshape(-1, blocks.shape[-1])[:count]

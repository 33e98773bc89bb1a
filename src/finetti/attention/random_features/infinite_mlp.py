"""The kernel of a random-feature network with infinitely many neurons."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.random_features.context_kernel import ContextKernel, Input
from finetti.attention.random_features.rectified import arc_cosine
from finetti.core.arguments import as_whole
from finetti.core.errors import UnsupportedError, bad_argument


class InfiniteMLPKernel(ContextKernel):
    """lim Φ(x)·Φ(x') of `RandomFeatureMLP` as the number of neurons grows, exactly.

    K(x, x') = s s' κ₁(⟨vec, vec'⟩ / ((N + 2) s s')),   vec = [x₀; x₁; …; x_N; 1]

    with s² = ‖vec‖²/(N + 2), which is 1 for tokens on the unit sphere. No masks: the network has
    one weight for each position.

    Args:
        dimension: d of query and keys.
        context_length: N, the number of keys on either side.

    >>> import jax.numpy as jnp
    >>> x = jnp.array([1.0, 0.0]), jnp.array([[0.0, 1.0], [1.0, 0.0]])
    >>> round(float(InfiniteMLPKernel(dimension=2, context_length=2)(*x, *x)), 4)
    0.5

    Reference: derived from the comparison model of fu2023 (stated from knowledge of the paper).
    """

    dimension: int = eqx.field(static=True)
    context_length: int = eqx.field(static=True)

    def __init__(self, dimension: int, context_length: int):
        self.dimension = as_whole(dimension, "dimension", type(self).__name__)
        self.context_length = as_whole(context_length, "context_length", type(self).__name__)

    def _value(self, x: Input, y: Input) -> Float[Array, ""]:
        vectors = [_flat(each) for each in (x, y)]
        sizes = jnp.linalg.norm(vectors[0]) * jnp.linalg.norm(vectors[1])
        correlation = jnp.dot(*vectors) / sizes
        return sizes / (self.context_length + 2) * arc_cosine(correlation)

    def _check(self, owner: str, prefix: str, keys: Array, mask: Any) -> None:
        check_positions(owner, prefix, keys, mask, self.dimension, self.context_length)


def check_positions(
    owner: str, prefix: str, keys: Array, mask: Any, dimension: int, context_length: int
) -> None:
    """Refuse masks, and keys of another number or dimension than the network was made for."""
    if mask is not None:
        raise UnsupportedError(
            f"{owner} takes no `{prefix}mask`: the network has weights for each position, so that "
            "deleting a key has no meaning. Use a network of another context_length, or "
            "RandomFeatureAttention."
        )
    if keys.shape[-2:] != (context_length, dimension):
        requirement = f"of shape (..., N = {context_length}, d = {dimension})"
        raise bad_argument(f"{prefix}keys", owner, requirement, f"shape {keys.shape}")


def _flat(x: Input) -> Float[Array, " D"]:
    return jnp.concatenate([x.query, x.keys.ravel(), jnp.ones_like(x.query[:1])])

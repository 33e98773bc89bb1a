"""The inner product."""

import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.errors import UnsupportedError
from finetti.core.numbers import as_whole
from finetti.kernels.base import Kernel, Scaled
from finetti.kernels.finite import FiniteKernel
from finetti.kernels.geometry import inner_products


class Linear(FiniteKernel):
    """The linear kernel, K(x, y) = x·y; its feature map is the identity.

    >>> import jax.numpy as jnp
    >>> float(Linear()(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])))
    11.0
    """

    @property
    def is_positive(self) -> bool:
        """False: an inner product has either sign."""
        return False

    def feature_dimension(self, d: int) -> int:
        """D = d."""
        return as_whole(d, "d", "Linear.feature_dimension")

    def _value(self, x: Array, y: Array) -> Array:
        return jnp.sum(x * y)

    def _gram(self, xs: Array, ys: Array | None) -> Array:
        return inner_products(xs, ys)

    def _diagonal(self, xs: Array) -> Array:
        return jnp.sum(xs * xs, axis=1)

    def _log_gram(self, xs: Array, ys: Array | None) -> Array:
        raise UnsupportedError("Linear has no logarithm. Use `gram` instead.")

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return Scaled(self, jnp.exp(log_scale))

    def _features(self, xs: Array) -> Array:
        return xs

"""The inner product."""

import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.arguments import as_whole
from finetti.kernels.kernel import Kernel, Scaled
from finetti.kernels.token_geometry import inner_products


class Linear(Kernel):
    """The linear kernel, K(x, y) = x·y; its feature map is the identity.

    >>> import jax.numpy as jnp
    >>> float(Linear()(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])))
    11.0
    """

    def feature_dimension(self, d: int) -> int:
        """D = d."""
        return as_whole(d, "d", "Linear.feature_dimension")

    def _gram(self, xs: Array, ys: Array) -> Array:
        return inner_products(xs, ys)

    def _own_gram(self, xs: Array) -> Array:
        return inner_products(xs, None)

    def _diagonal(self, xs: Array) -> Array:
        return jnp.sum(xs * xs, axis=1)

    def _features(self, xs: Array) -> Array:
        return xs

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return Scaled(self, jnp.exp(log_scale))

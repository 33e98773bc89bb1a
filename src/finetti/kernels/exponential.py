"""The exponential kernel, whose normalized sum is softmax attention."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from finetti.kernels.feature_draws import Draw, RandomFeatures, normal_frequencies
from finetti.kernels.kernel import Kernel, with_added_log
from finetti.kernels.token_geometry import inner_products, log_parameter, positive


class Exponential(Kernel):
    """The exponential kernel, K(x, y) = exp(s x·y).

    It overflows for long tokens; `log_gram` does not.

    Args:
        scale: s > 0, learned through its logarithm.

    >>> import jax.numpy as jnp
    >>> round(float(Exponential()(jnp.array([1.0, 0.0]), jnp.array([1.0, 2.0]))), 4)
    2.7183

    Reference: (4.10), paper E, where s = 1.
    """

    log_scale: Array

    def __init__(self, scale: Any = 1.0):
        self.log_scale = log_parameter(scale, "scale", self._name)

    @property
    def scale(self) -> Array:
        """s."""
        return jnp.exp(self.log_scale)

    @property
    def is_positive(self) -> bool:
        """True."""
        return True

    @property
    def grows(self) -> bool:
        """True."""
        return True

    def _gram(self, xs: Array, ys: Array) -> Array:
        return jnp.exp(self._log_gram(xs, ys))

    def _own_gram(self, xs: Array) -> Array:
        return jnp.exp(positive(self.log_scale, xs.dtype) * inner_products(xs, None))

    def _diagonal(self, xs: Array) -> Array:
        return jnp.exp(positive(self.log_scale, xs.dtype) * jnp.sum(xs * xs, axis=1))

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        return positive(self.log_scale, xs.dtype) * inner_products(xs, ys)

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return with_added_log(self, "log_scale", log_scale)

    @property
    def random_feature_methods(self) -> tuple[str, ...]:
        """Both."""
        return ("positive", "fourier")

    def _draw(self, draw: Draw) -> RandomFeatures:
        # z = √s x, and z·z' = ‖z‖²/2 + ‖z'‖²/2 − ‖z − z'‖²/2 = ‖z + z'‖²/2 − ‖z‖²/2 − ‖z'‖²/2
        exponent = 0.5 if draw.method == "fourier" else -0.5
        return RandomFeatures(normal_frequencies(draw), self.log_scale / 2, exponent, draw.method)

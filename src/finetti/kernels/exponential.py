"""The exponential kernel, whose normalized sum is softmax attention."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from finetti.kernels.base import Kernel, with_added_log
from finetti.kernels.finite import InfiniteKernel
from finetti.kernels.geometry import inner_products, log_parameter, positive
from finetti.kernels.random_features import Draw, RandomFeatures, gaussian_features


class Exponential(InfiniteKernel):
    """The exponential kernel, K(x, y) = exp(s x·y).

    It overflows for long tokens; `log_gram` and `scaled_gram` do not.

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

    def _value(self, x: Array, y: Array) -> Array:
        return jnp.exp(positive(self.log_scale, x.dtype) * jnp.sum(x * y))

    def _gram(self, xs: Array, ys: Array | None) -> Array:
        return jnp.exp(self._growth(xs, ys))

    def _diagonal(self, xs: Array) -> Array:
        return jnp.exp(positive(self.log_scale, xs.dtype) * jnp.sum(xs * xs, axis=1))

    def _log_gram(self, xs: Array, ys: Array | None) -> Array:
        return self._growth(xs, ys)

    def _growth(self, xs: Array, ys: Array | None) -> Array:
        return positive(self.log_scale, xs.dtype) * inner_products(xs, ys)

    def _remainder(self, xs: Array, ys: Array | None) -> Array:
        return jnp.ones_like(xs, shape=(len(xs), len(xs if ys is None else ys)))

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return with_added_log(self, "log_scale", log_scale)

    @property
    def _methods(self) -> tuple[str, ...]:
        return ("positive", "fourier")

    def _draw(self, draw: Draw) -> RandomFeatures:
        # z = √s x, and z·z' = ‖z‖²/2 + ‖z'‖²/2 − ‖z − z'‖²/2 = ‖z + z'‖²/2 − ‖z‖²/2 − ‖z'‖²/2
        exponent = 0.5 if draw.method == "fourier" else -0.5
        return gaussian_features(draw, self.log_scale / 2, exponent)

"""Kernels that do not look at the tokens: an offset, and noise."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.arguments import as_whole
from finetti.kernels.kernel import Kernel
from finetti.kernels.token_geometry import log_parameter, positive


class TokenFreeKernel(Kernel):
    """Abstract: a kernel of one number c that does not look at the tokens."""

    log_value: Array

    def __init__(self, value: Any = 1.0):
        self.log_value = log_parameter(value, "value", self._name)

    @property
    def value(self) -> Array:
        """c."""
        return jnp.exp(self.log_value)

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return self


class Constant(TokenFreeKernel):
    """K(x, y) = c for all tokens: an unknown offset of variance c.

    Args:
        value: c > 0, learned through its logarithm.

    >>> import jax.numpy as jnp
    >>> round(float(Constant(2.0)(jnp.array([1.0]), jnp.array([-5.0]))), 4)
    2.0
    """

    @property
    def is_positive(self) -> bool:
        """True."""
        return True

    def feature_dimension(self, d: int) -> int:
        """D = 1."""
        as_whole(d, "d", "Constant.feature_dimension")
        return 1

    def _gram(self, xs: Array, ys: Array) -> Array:
        return jnp.broadcast_to(positive(self.log_value, xs.dtype), (len(xs), len(ys)))

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        return jnp.broadcast_to(self.log_value.astype(xs.dtype), (len(xs), len(ys)))

    def _features(self, xs: Array) -> Array:
        return jnp.broadcast_to(positive(self.log_value, xs.dtype, power=0.5), (len(xs), 1))


class White(TokenFreeKernel):
    """White noise: c between a token and itself, 0 between any two, also where they are equal.

    ``gram(xs)`` is c times the identity and ``gram(xs, ys)`` is 0. In CME attention
    ``RBF() + White(c)`` is RBF() with c added to the ridge and to the variances; a ridge alone is
    solved faster.

    Args:
        value: c > 0, learned through its logarithm.

    >>> import jax.numpy as jnp
    >>> White(2.0).gram(jnp.array([[1.0], [1.0]])).round(4).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    @property
    def has_noise(self) -> bool:
        """True."""
        return True

    def _gram(self, xs: Array, ys: Array) -> Array:
        return jnp.zeros((len(xs), len(ys)), xs.dtype)

    def _own_gram(self, xs: Array) -> Array:
        return positive(self.log_value, xs.dtype) * jnp.eye(len(xs), dtype=xs.dtype)

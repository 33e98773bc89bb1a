"""The rational quadratic kernel."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from finetti.kernels.stationary_kernel import StationaryKernel, squares_of_differences
from finetti.kernels.token_geometry import log_parameter, positive


class RationalQuadratic(StationaryKernel):
    """The rational quadratic kernel, K(x, y) = (1 + r²/(2α))^(−α) at r = ‖x − y‖/ℓ.

    A mixture of RBF kernels of many lengthscales; RBF is its limit α → ∞.

    Args:
        alpha: α > 0, learned through its logarithm: the smaller, the more the lengthscales differ.
        lengthscale: ℓ > 0, one number or one per coordinate; learned through its logarithm.

    >>> import jax.numpy as jnp
    >>> round(float(RationalQuadratic(alpha=1.0)(jnp.array([0.0]), jnp.array([2.0]))), 4)  # 1/3
    0.3333

    Reference: Rasmussen and Williams (2006), Gaussian processes for machine learning, (4.19).
    """

    log_alpha: Array

    def __init__(self, alpha: Any = 1.0, lengthscale: Any = 1.0):
        self.log_alpha = log_parameter(alpha, "alpha", self._name)
        self.log_lengthscale = log_parameter(lengthscale, "lengthscale", self._name, ranks=(0, 1))

    @property
    def alpha(self) -> Array:
        """α."""
        return jnp.exp(self.log_alpha)

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        alpha = positive(self.log_alpha, xs.dtype)
        return -alpha * jnp.log1p(squares_of_differences(self, xs, ys) / (2 * alpha))

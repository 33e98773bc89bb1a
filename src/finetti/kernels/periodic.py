"""The periodic kernel."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.errors import InputError
from finetti.kernels.kernel import Kernel, with_added_log
from finetti.kernels.stationary_kernel import StationaryKernel
from finetti.kernels.token_geometry import log_parameter, positive


class Periodic(StationaryKernel):
    """The periodic kernel, K(x, y) = exp(−2 Σ_i sin²(π(x_i − y_i)/p)/ℓ_i²).

    On tokens of one dimension it is scikit-learn's ExpSineSquared. In more dimensions that takes
    the sine of the distance, which is not positive semi-definite; this is a product over the
    coordinates. For a period in one coordinate only, let the lengthscales of the others be large.

    Args:
        period: p > 0, one number or one per coordinate; learned through its logarithm.
        lengthscale: ℓ > 0, in units of a period's circle, one number or one per coordinate; learned
            through its logarithm.

    >>> import jax.numpy as jnp
    >>> round(float(Periodic(period=7.0)(jnp.array([1.0]), jnp.array([15.0]))), 4)
    1.0

    Reference: Rasmussen and Williams (2006), Gaussian processes for machine learning, (4.31).
    """

    log_period: Array

    def __init__(self, period: Any = 1.0, lengthscale: Any = 1.0):
        self.log_period = log_parameter(period, "period", self._name, ranks=(0, 1))
        self.log_lengthscale = log_parameter(lengthscale, "lengthscale", self._name, ranks=(0, 1))

    @property
    def period(self) -> Array:
        """p, one number or one per coordinate."""
        return jnp.exp(self.log_period)

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        if self.log_period.ndim and len(self.log_period) != xs.shape[1]:
            raise InputError(
                f"The `period` argument of Periodic must have one entry per coordinate of the "
                f"tokens, {xs.shape[1]}. Got {len(self.log_period)} entries instead."
            )
        return _log_periodic(self, xs, ys)

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return with_added_log(self, "log_period", -0.5 * log_scale)


@jax.jit  # fuses the sum, so that the (L, M, d) differences never exist in memory
def _log_periodic(kernel: Periodic, xs: Array, ys: Array) -> Array:
    turns = (xs[:, None, :] - ys[None, :, :]) / positive(kernel.log_period, xs.dtype)
    return -2 * jnp.sum(kernel._scaled(jnp.sin(jnp.pi * turns)) ** 2, axis=-1)

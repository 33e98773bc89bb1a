"""The Gaussian kernel."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.numerics.float64 import float64_inside
from finetti.kernels.feature_draws import Draw, RandomFeatures, normal_frequencies
from finetti.kernels.stationary_kernel import StationaryKernel
from finetti.kernels.token_geometry import log_parameter, squared_distances


class RBF(StationaryKernel):
    """The Gaussian kernel, K(x, y) = exp(−‖x − y‖² / (2ℓ²)).

    Args:
        lengthscale: ℓ > 0, one number or one per coordinate; learned through its logarithm.

    >>> import jax.numpy as jnp
    >>> similarity = RBF(lengthscale=2.0)(jnp.array([0.0, 0.0]), jnp.array([0.0, 2.0]))
    >>> round(float(similarity), 4)  # exp(−1/2)
    0.6065

    Reference: K_RBF below (4.2), paper E, where ℓ = 1.
    """

    def __init__(self, lengthscale: Any = 1.0):
        self.log_lengthscale = log_parameter(lengthscale, "lengthscale", self._name, ranks=(0, 1))

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        # In float32 the distance of near tokens far from the center would be lost, and so would
        # its gradient: 6e-8·(spread/ℓ)². One product in float64 costs little beside what follows.
        return _half_squares(self, xs, ys).astype(xs.dtype)

    def _own_gram(self, xs: Array) -> Array:
        return jnp.exp(_half_squares(self, xs, None).astype(xs.dtype))

    @property
    def random_feature_methods(self) -> tuple[str, ...]:
        """Both."""
        return ("fourier", "positive")

    def _draw(self, draw: Draw) -> RandomFeatures:
        # ‖z + z'‖²/2 − ‖z‖² − ‖z'‖² = −‖z − z'‖²/2
        exponent = 0.0 if draw.method == "fourier" else -1.0
        log_scale = self._log_token_scale(draw.dimension)
        return RandomFeatures(normal_frequencies(draw), log_scale, exponent, draw.method)


@float64_inside
@jax.jit
def _half_squares(kernel: RBF, xs: Array, ys: Array | None) -> Array:
    """−‖x − y‖² / (2ℓ²)."""
    return -squared_distances(xs, ys, kernel._scaled) / 2

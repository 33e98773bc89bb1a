"""What the kernels of the distance ‖x − y‖ share."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.errors import InputError
from finetti.kernels.kernel import Kernel, with_added_log
from finetti.kernels.token_geometry import positive


class StationaryKernel(Kernel):
    """Abstract: a positive kernel of (x − y)/ℓ with K(x, x) = 1; its formula is `_log_gram`."""

    log_lengthscale: Array

    @property
    def lengthscale(self) -> Array:
        """ℓ, one number or one per coordinate."""
        return jnp.exp(self.log_lengthscale)

    @property
    def is_positive(self) -> bool:
        """True."""
        return True

    def _gram(self, xs: Array, ys: Array) -> Array:
        return jnp.exp(self._log_gram(xs, ys))

    def _diagonal(self, xs: Array) -> Array:
        return jnp.ones_like(xs, shape=xs.shape[:1])

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return with_added_log(self, "log_lengthscale", -0.5 * log_scale)

    def _log_token_scale(self, dimension: int) -> Array:
        """−log ℓ, checked against the dimension of the tokens."""
        if self.log_lengthscale.ndim and len(self.log_lengthscale) != dimension:
            raise InputError(
                f"The `lengthscale` argument of {self._name} must have one entry per coordinate of "
                f"the tokens, {dimension}. Got {len(self.log_lengthscale)} entries instead."
            )
        return -self.log_lengthscale

    def _scaled(self, tokens: Array) -> Array:
        """Tokens, or differences of tokens, in units of ℓ."""
        factor = positive(self._log_token_scale(tokens.shape[-1]), tokens.dtype)
        return tokens * jnp.broadcast_to(factor, tokens.shape)


@jax.jit  # fuses the sum, so that the (L, M, d) differences never exist in memory
def squares_of_differences(kernel: StationaryKernel, xs: Array, ys: Array) -> Array:
    """r² = ‖x − y‖²/ℓ², from differences that are taken before they are scaled.

    A kernel that is linear in r near 0 makes √ε of a rounding error ε in r².
    """
    return jnp.sum(kernel._scaled(xs[:, None, :] - ys[None, :, :]) ** 2, axis=-1)

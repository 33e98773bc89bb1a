"""What the kernels of the distance ‖x − y‖ share."""

import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.errors import InputError
from finetti.kernels.base import Kernel, with_added_log
from finetti.kernels.finite import InfiniteKernel
from finetti.kernels.geometry import positive


class StationaryKernel(InfiniteKernel):
    """Abstract: K(x, y) depends on (x − y)/ℓ only, and K(x, x) = 1."""

    log_lengthscale: Array

    @property
    def lengthscale(self) -> Array:
        """ℓ, one number or one per coordinate."""
        return jnp.exp(self.log_lengthscale)

    def _diagonal(self, xs: Array) -> Array:
        return jnp.ones_like(xs, shape=xs.shape[:1])

    def _growth(self, xs: Array, ys: Array | None) -> None:
        return None

    def _remainder(self, xs: Array, ys: Array | None) -> Array:
        return self._gram(xs, ys)

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

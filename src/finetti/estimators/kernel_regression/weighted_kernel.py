"""Weights of rows as a part of the kernel, for fits that know one noise for all rows."""

import jax.numpy as jnp
from jaxtyping import Array

from finetti.kernels.kernel import Kernel, Scaled, WrappedKernel


class WeightedKernel(WrappedKernel):
    """K((x, r), (y, s)) = r s K₁(x, y), with r and s > 0 the last coordinate of the tokens.

    N(v; 0, K₁ + λ/r²) = N(r v; 0, r K₁ r + λ) Π r: values multiplied by r have the same noise.
    """

    def feature_dimension(self, d: int) -> int | None:
        """That of the part."""
        return self.part.feature_dimension(d - 1)

    def _gram(self, xs: Array, ys: Array) -> Array:
        return _products(xs, ys) * self.part._gram(xs[:, :-1], ys[:, :-1])

    def _own_gram(self, xs: Array) -> Array:
        return _products(xs, xs) * self.part._own_gram(xs[:, :-1])

    def _diagonal(self, xs: Array) -> Array:
        return xs[:, -1] ** 2 * self.part._diagonal(xs[:, :-1])

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        return jnp.log(_products(xs, ys)) + self.part._log_gram(xs[:, :-1], ys[:, :-1])

    def _features(self, xs: Array) -> Array:
        return xs[:, -1:] * self.part._features(xs[:, :-1])

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return Scaled(WeightedKernel(self.part._on_scaled_tokens(log_scale)), jnp.exp(log_scale))


def _products(xs: Array, ys: Array) -> Array:
    return xs[:, -1:] * ys[None, :, -1]

"""Weights of rows as a part of the kernel, for fits that know one noise for all rows."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.errors import UnsupportedError
from finetti.kernels.base import Kernel, Scaled
from finetti.kernels.random_features import Draw, RandomFeatures


class WeightedKernel(Kernel):
    """K((x, r), (y, s)) = r s K₁(x, y), with r and s > 0 the last coordinate of the tokens.

    N(v; 0, K₁ + λ/r²) = N(r v; 0, r K₁ r + λ) Π r: values multiplied by r have the same noise.
    """

    part: Kernel

    @property
    def is_positive(self) -> bool:
        """Whether the part is."""
        return self.part.is_positive

    def feature_dimension(self, d: int) -> int | None:
        """That of the part."""
        return self.part.feature_dimension(d - 1)

    def _value(self, x: Array, y: Array) -> Array:
        return x[-1] * y[-1] * self.part._value(x[:-1], y[:-1])

    def _gram(self, xs: Array, ys: Array | None) -> Array:
        return _products(xs, ys) * self.part._gram(*_tokens(xs, ys))

    def _diagonal(self, xs: Array) -> Array:
        return xs[:, -1] ** 2 * self.part._diagonal(xs[:, :-1])

    def _log_gram(self, xs: Array, ys: Array | None) -> Array:
        return jnp.log(_products(xs, ys)) + self.part._log_gram(*_tokens(xs, ys))

    def _growth(self, xs: Array, ys: Array | None) -> Array | None:
        return self.part._growth(*_tokens(xs, ys))

    def _remainder(self, xs: Array, ys: Array | None) -> Array:
        return _products(xs, ys) * self.part._remainder(*_tokens(xs, ys))

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return Scaled(WeightedKernel(self.part._on_scaled_tokens(log_scale)), jnp.exp(log_scale))

    def _features(self, xs: Array) -> Array:
        return xs[:, -1:] * self.part._features(xs[:, :-1])

    @property
    def _methods(self) -> tuple[str, ...]:
        return ()

    def _features_per_draw(self, method: str) -> int:
        raise UnsupportedError("WeightedKernel has no random features. Use those of its part.")

    def _draw(self, draw: Draw) -> RandomFeatures:
        raise UnsupportedError("WeightedKernel has no random features. Use those of its part.")


def _tokens(xs: Array, ys: Array | None) -> tuple[Array, Array | None]:
    return xs[:, :-1], None if ys is None else ys[:, :-1]


def _products(xs: Array, ys: Any) -> Array:
    return xs[:, -1:] * (xs if ys is None else ys)[None, :, -1]

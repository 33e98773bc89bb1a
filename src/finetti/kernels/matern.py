"""The Matérn kernels with a closed form."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.errors import bad_argument
from finetti.kernels.geometry import log_parameter
from finetti.kernels.random_features import (
    Draw,
    FourierFeatures,
    RandomFeatures,
    normal_frequencies,
)
from finetti.kernels.stationary import StationaryKernel


class Matern(StationaryKernel):
    """The Matérn kernel of smoothness ν at r = ‖x − y‖/ℓ.

    ν = 1/2: exp(−r);  ν = 3/2: (1 + √3 r) exp(−√3 r);  ν = 5/2: (1 + √5 r + 5r²/3) exp(−√5 r).

    Args:
        nu: ν, one of 0.5, 1.5, 2.5; the Gaussian process is differentiable ⌈ν⌉ − 1 times.
        lengthscale: ℓ > 0, one number or one per coordinate; learned through its logarithm.

    >>> import jax.numpy as jnp
    >>> round(float(Matern(nu=0.5)(jnp.array([0.0]), jnp.array([1.0]))), 4)  # exp(−1)
    0.3679

    Reference: Rasmussen and Williams (2006), Gaussian processes for machine learning, (4.17).
    """

    nu: float = eqx.field(static=True)

    def __init__(self, nu: float = 1.5, lengthscale: Any = 1.0):
        if nu not in (0.5, 1.5, 2.5):
            advice = "Its limit ν → ∞ is the kernel RBF."
            raise bad_argument("nu", self._name, "0.5, 1.5 or 2.5", nu, advice)
        self.nu = float(nu)
        self.log_lengthscale = log_parameter(lengthscale, "lengthscale", self._name, ranks=(0, 1))

    def _value(self, x: Array, y: Array) -> Array:
        return jnp.exp(_log_matern(self.nu, jnp.sum(self._scaled(x - y) ** 2)))

    def _gram(self, xs: Array, ys: Array | None) -> Array:
        return jnp.exp(self._log_gram(xs, ys))

    def _log_gram(self, xs: Array, ys: Array | None) -> Array:
        return _log_matern(self.nu, _squares(self, xs, xs if ys is None else ys))

    @property
    def _methods(self) -> tuple[str, ...]:
        return ("fourier",)

    def _draw(self, draw: Draw) -> RandomFeatures:
        key_normal, key_chi = jax.random.split(draw.key)
        normal = normal_frequencies(draw._replace(key=key_normal))
        # The spectral density is Student's t with 2ν degrees of freedom.
        freedom = 2 * self.nu
        chi_square = jax.random.chisquare(key_chi, freedom, (draw.n_draws, 1))
        frequencies = normal * jnp.sqrt(freedom / chi_square)
        return FourierFeatures(frequencies, self._log_token_scale(draw.dimension), exponent=0.0)


@jax.jit  # fuses the sum, so that the (L, M, d) differences never exist in memory
def _squares(kernel: Matern, xs: Array, ys: Array) -> Array:
    """r², from differences that are taken before they are scaled.

    The kernel is linear in r near 0: a rounding error of ε in r² would become √ε.
    """
    return jnp.sum(kernel._scaled(xs[:, None, :] - ys[None, :, :]) ** 2, axis=-1)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_matern(nu: float, square: Array) -> Array:
    """log K_ν as a function of s = r²."""
    t = _root(2 * nu * square)
    if nu == 0.5:
        return -t
    return jnp.log1p(t if nu == 1.5 else t + t * t / 3) - t


@_log_matern.defjvp
def _log_matern_slope(nu: float, primals: tuple[Array], tangents: tuple[Array]) -> Any:
    # Written out, because 1/r cancels: for ν > 1/2 the slope in r² exists at r = 0 too, and with it
    # the second derivatives of K there, −3/ℓ² and −5/(3ℓ²).
    (square,), (change,) = primals, tangents
    t = _root(2 * nu * square)
    if nu == 0.5:
        slope = -jnp.where(t > 0, 0.5 / jnp.where(t > 0, t, 1), 0)
    elif nu == 1.5:
        slope = -1.5 / (1 + t)
    else:
        slope = -5 / 6 * (1 + t) / (1 + t + t * t / 3)
    return _log_matern(nu, square), slope * change


def _root(square: Array) -> Array:
    """√s; the inner `where` keeps its infinite slope at 0 out of gradients."""
    equal = square <= 0  # NaN is not
    return jnp.where(equal, 0, jnp.sqrt(jnp.where(equal, 1, square)))

"""The Matérn kernels."""

import functools
import math
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.arguments import check_positive
from finetti.core.errors import bad_argument
from finetti.core.numerics.bessel import log_bessel_k
from finetti.kernels.feature_draws import Draw, RandomFeatures, normal_frequencies
from finetti.kernels.stationary_kernel import StationaryKernel, squares_of_differences
from finetti.kernels.token_geometry import log_parameter

# Larger ones are hardly told from the limit, RBF, and their polynomials leave float64.
MAX_NU = 50.0
_MOST_TERMS = 10
_LEAST_ROOT = 1e-15


class Matern(StationaryKernel):
    """The Matérn kernel of smoothness ν at r = ‖x − y‖/ℓ.

    K = 2^(1−ν)/Γ(ν)·t^ν K_ν(t) with t = √(2ν) r and the Bessel function K_ν. In closed form:
    ν = 1/2: exp(−t);  ν = 3/2: (1 + t) exp(−t);  ν = 5/2: (1 + t + t²/3) exp(−t), and so on up to
    ν = 19/2. Any other ν takes a hundred times as long.

    Args:
        nu: 0 < ν ≤ 50, not learned; the Gaussian process is differentiable ⌈ν⌉ − 1 times.
        lengthscale: ℓ > 0, one number or one per coordinate; learned through its logarithm.

    >>> import jax.numpy as jnp
    >>> round(float(Matern(nu=0.5)(jnp.array([0.0]), jnp.array([1.0]))), 4)  # exp(−1)
    0.3679

    Reference: Rasmussen and Williams (2006), Gaussian processes for machine learning, (4.14).
    """

    nu: float = eqx.field(static=True)

    def __init__(self, nu: float = 1.5, lengthscale: Any = 1.0):
        check_positive(nu, "nu", self._name)
        if nu > MAX_NU:
            advice = "Its limit ν → ∞ is the kernel RBF."
            raise bad_argument("nu", self._name, f"at most {MAX_NU:g}", nu, advice)
        self.nu = float(nu)
        self.log_lengthscale = log_parameter(lengthscale, "lengthscale", self._name, ranks=(0, 1))

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        return log_matern(self.nu, squares_of_differences(self, xs, ys))

    @property
    def random_feature_methods(self) -> tuple[str, ...]:
        """Fourier."""
        return ("fourier",)

    def _draw(self, draw: Draw) -> RandomFeatures:
        key_normal, key_chi = jax.random.split(draw.key)
        normal = normal_frequencies(draw._replace(key=key_normal))
        # The spectral density is Student's t with 2ν degrees of freedom.
        freedom = 2 * self.nu
        chi_square = jax.random.chisquare(key_chi, freedom, (draw.n_draws, 1))
        frequencies = normal * jnp.sqrt(freedom / chi_square)
        log_scale = self._log_token_scale(draw.dimension)
        return RandomFeatures(frequencies, log_scale, 0.0, draw.method)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_matern(nu: float, square: Array) -> Array:
    """log K_ν as a function of s = r²."""
    return _log_of_root(nu, _root(2 * nu * square))


@log_matern.defjvp
def _log_matern_slope(nu: float, primals: tuple[Array], tangents: tuple[Array]) -> Any:
    # Written out, because 1/r cancels: for ν > 1 the slope in r² exists at r = 0 too, and with it
    # the second derivatives of K there, −ν/((ν − 1)ℓ²).
    (square,), (change,) = primals, tangents
    t = _root(2 * nu * square)
    here = _log_of_root(nu, t)
    if nu > 1:
        slope = -nu / (2 * (nu - 1)) * jnp.exp(_log_of_root(nu - 1, t) - here)
    else:
        apart = jnp.maximum(t, _LEAST_ROOT)
        # K_{ν−1}/K_ν at t, and K_{−ν} = K_ν.
        log_ratio = 0 if nu == 0.5 else log_bessel_k(1 - nu, apart) - log_bessel_k(nu, apart)
        # Infinite where tokens are equal. There it is taken as 0, for both are as near.
        slope = jnp.where(t > 0, -nu / apart * jnp.exp(log_ratio), 0)
    return here, slope * change


def _log_of_root(nu: float, t: Array) -> Array:
    """log K_ν as a function of t = √(2ν) r."""
    terms = nu - 0.5
    if terms == int(terms) and terms < _MOST_TERMS:
        return jnp.log(jnp.polyval(jnp.asarray(_coefficients(int(terms)), t.dtype), t)) - t
    # Nearer tokens are equal to rounding, or their kernel has the first two terms of its series.
    least = _LEAST_ROOT if nu < 1 else 1e-9
    apart = jnp.where(t > least, t, 1)
    constant = (1 - nu) * math.log(2) - math.lgamma(nu)
    far = constant + nu * jnp.log(apart) + log_bessel_k(nu, apart)
    near = jnp.zeros_like(t)
    if nu < 1:
        small = jnp.where((t > 0) & (t <= least), t, least)
        slope = -math.gamma(1 - nu) / math.gamma(1 + nu)
        near = jnp.where(t > 0, jnp.log1p(slope * (small / 2) ** (2 * nu)), 0)
    return jnp.where(t <= least, near, jnp.where(jnp.isnan(t), t, far))


@functools.cache
def _coefficients(n: int) -> tuple[float, ...]:
    """Those of Σ_i n!/(2n)! (2n−i)!/(i!(n−i)!) (2t)^i, highest power first (GPML, (4.16))."""
    f = math.factorial
    every = (Fraction(f(n) * f(2 * n - i) * 2**i, f(2 * n) * f(i) * f(n - i)) for i in range(n + 1))
    return tuple(float(each) for each in every)[::-1]


def _root(square: Array) -> Array:
    """√s; the inner `where` keeps its infinite slope at 0 out of gradients."""
    equal = square <= 0  # NaN is not
    return jnp.where(equal, 0, jnp.sqrt(jnp.where(equal, 1, square)))

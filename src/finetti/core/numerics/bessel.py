"""The modified Bessel function K_ν of real order, which JAX does not have."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

_NODES = 128


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_bessel_k(nu: float, t: Array) -> Array:
    """log K_ν(t) for 0 ≤ ν ≤ 50 and t ≥ 1e-15, in float64 to 1e-13 of the larger of it and 1.

    K_ν(t) = ∫₀^∞ exp(−t cosh u) cosh(νu) du by the trapezoidal rule, which converges like e^(−c/h)
    since the integrand is even and analytic. The range ends where it has fallen by e^(−40).
    """
    peak = jnp.arcsinh(nu / t)
    end = jnp.arccosh(1 + (40 + nu * (peak + 9)) / t)
    start = jnp.maximum(0.0, peak - 1 - 40 / max(nu, 0.1))
    step = (end - start) / _NODES
    # Relative to the height of the largest term; e^(−t) of the integrand is taken out of all.
    highest = nu * peak - t * _cosh_minus_1(peak)

    def add(total: Array, node: Array) -> tuple[Array, None]:
        u = start + node * step
        exponent = nu * u - t * _cosh_minus_1(u) - highest
        weight = jnp.where(node == 0, 0.5, 1.0)
        return total + weight * jnp.exp(exponent) * (1 + jnp.exp(-2 * nu * u)) / 2, None

    total, _ = jax.lax.scan(add, jnp.zeros_like(t), jnp.arange(_NODES, dtype=t.dtype))
    return jnp.log(total * step) + highest - t


@log_bessel_k.defjvp
def _log_bessel_k_slope(nu: float, primals: tuple[Array], tangents: tuple[Array]) -> Any:
    (t,), (change,) = primals, tangents
    here = log_bessel_k(nu, t)
    # K_ν' = −K_{ν−1} − (ν/t) K_ν, and K_{−ν} = K_ν.
    slope = -jnp.exp(log_bessel_k(abs(nu - 1), t) - here) - nu / t
    return here, slope * change


def _cosh_minus_1(u: Array) -> Array:
    return 2 * jnp.sinh(u / 2) ** 2

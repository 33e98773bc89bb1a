"""E[σ(a + g) σ(b + g')] of two correlated normals, σ the ReLU: the heart of every limit kernel."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

# Owen's integrand on [0, 1] has its poles at ±i: 12 Gauss–Legendre nodes leave 1e-16.
_NODES, _WEIGHTS = (array / 2 for array in np.polynomial.legendre.leggauss(12))
_NODES = _NODES + 0.5


@jax.custom_jvp
def arc_cosine(correlation: Float[Array, "..."]) -> Float[Array, "..."]:
    """κ₁(u) = E[σ(g) σ(g')] of standard normals with correlation u.

    κ₁(u) = (√(1 − u²) + u(π − arccos u)) / (2π)

    A u that rounding put outside [−1, 1] counts as ±1. The derivative (π − arccos u)/(2π) is
    finite there; the second one is not.

    >>> import jax.numpy as jnp
    >>> [round(float(arc_cosine(jnp.array(u))), 4) for u in (-1.0, 0.0, 1.0)]
    [0.0, 0.1592, 0.5]

    Reference: Cho and Saul (2009), Kernel methods for deep learning, arc-cosine kernel of degree 1.
    """
    u = jnp.clip(correlation, -1, 1)
    return (jnp.sqrt((1 - u) * (1 + u)) + u * jnp.arccos(-u)) / (2 * math.pi)


@arc_cosine.defjvp
def _arc_cosine_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (u,), (du,) = primals, tangents
    return arc_cosine(u), jnp.arccos(-jnp.clip(u, -1, 1)) / (2 * math.pi) * du


@jax.custom_jvp
@jax.jit
def rectified_product(
    a: Float[Array, "*shape"], b: Float[Array, "*shape"], correlation: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """E[σ(a + g) σ(b + g')] of standard normals with correlation u, elementwise.

    (ab + u) Φ₂(a, b; u) + a φ(b) Φ((a − ub)/r) + b φ(a) Φ((b − ua)/r) + r² φ₂(a, b; u),
    r² = 1 − u²

    The moments of a truncated bivariate normal; Φ₂ is `bivariate_normal_cdf`. The absolute error is
    a few units of rounding of (1 + |a|)(1 + |b|), for every u in [−1, 1].

    >>> import jax.numpy as jnp
    >>> zero, u = jnp.array(0.0), jnp.array(0.3)
    >>> bool(jnp.isclose(rectified_product(zero, zero, u), arc_cosine(u)))
    True

    Reference: Rosenbaum (1961), Moments of a truncated bivariate normal distribution.
    """
    u, r = _split(correlation)
    given_a, given_b = _conditional(a, b, u, r), _conditional(b, a, u, r)
    return (
        (a * b + u) * bivariate_normal_cdf(a, b, u)
        + a * _density(b) * ndtr(given_b)
        + b * _density(a) * ndtr(given_a)
        # r²φ₂(a, b; u), since (a² − 2uab + b²)/r² = a² + ((b − ua)/r)²
        + r * _density(a) * _density(given_a)
    )


@rectified_product.defjvp
def _rectified_product_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    (a, b, correlation), (da, db, du) = primals, tangents
    u, r = _split(correlation)
    from_a = _density(a) * ndtr(_conditional(a, b, u, r))
    from_b = _density(b) * ndtr(_conditional(b, a, u, r))
    # Price's theorem: the derivative in u is E[σ'(a + g) σ'(b + g')].
    mass = bivariate_normal_cdf(a, b, u)
    slope_a, slope_b = b * mass + from_b + u * from_a, a * mass + from_a + u * from_b
    return rectified_product(a, b, correlation), slope_a * da + slope_b * db + mass * du


@jax.custom_jvp
@jax.jit
def bivariate_normal_cdf(
    a: Float[Array, "*shape"], b: Float[Array, "*shape"], correlation: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Φ₂(a, b; u) = P(g ≤ a, g' ≤ b) by Owen's T function; absolute error about 1e-16.

    Reference: Owen (1956), Tables for computing bivariate normal probabilities, (2.1).
    """
    u, r = _split(correlation)
    # T sees the ratio of a and b, and 0/0 is none: take the limit along a = b.
    origin = (a == 0) & (b == 0)
    a, b = jnp.where(origin, 1e-15, a), jnp.where(origin, 1e-15, b)
    sectors = _owens_t(a, _conditional(a, b, u, r)) + _owens_t(b, _conditional(b, a, u, r))
    opposite = jnp.where((a < 0) ^ (b < 0), 0.5, 0.0).astype(a.dtype)
    return jnp.clip((ndtr(a) + ndtr(b)) / 2 - sectors - opposite, 0, 1)


@bivariate_normal_cdf.defjvp
def _bivariate_normal_cdf_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    (a, b, correlation), (da, db, du) = primals, tangents
    u, r = _split(correlation)
    given_a, given_b = _conditional(a, b, u, r), _conditional(b, a, u, r)
    slope = _density(a) * _density(given_a) / r  # φ₂(a, b; u)
    tangent = _density(a) * ndtr(given_a) * da + _density(b) * ndtr(given_b) * db + slope * du
    return bivariate_normal_cdf(a, b, correlation), tangent


def _split(correlation: Array) -> tuple[Array, Array]:
    """u in [−1, 1] and r = √(1 − u²), at least one unit of rounding so that it can divide."""
    u = jnp.clip(correlation, -1, 1)
    epsilon = jnp.finfo(u.dtype).eps
    return u, jnp.sqrt(jnp.maximum((1 - u) * (1 + u), epsilon**2))


def _conditional(a: Array, b: Array, u: Array, r: Array) -> Array:
    """(b − ua)/r without cancellation where u is near ±1 and a near ±b."""
    return jnp.where(u < 0, (b + a) - (1 + u) * a, (b - a) + (1 - u) * a) / r


def _density(x: Array) -> Array:
    return jnp.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _owens_t(h: Array, opposite: Array) -> Array:
    """Owen's T(h, opposite/h); a zero counts as positive, the limit from the right."""
    x, y = jnp.abs(h), jnp.abs(opposite)
    longer = jnp.maximum(x, y)
    slope = jnp.minimum(x, y) / jnp.where(longer > 0, longer, 1)  # ≤ 1, where few nodes suffice
    nodes, weights = (
        jnp.asarray(array.reshape(-1, *(1,) * h.ndim), h.dtype) for array in (_NODES, _WEIGHTS)
    )
    squares = 1 + (nodes * slope[None]) ** 2
    # Elementwise work under one sum: the compiler fuses it, the node axis is never stored.
    terms = weights * jnp.exp(-((longer * longer)[None]) * squares / 2) / squares
    inner = jnp.sum(terms, axis=0) * slope / (2 * math.pi)
    # T(h, α) + T(αh, 1/α) = (Φ(h) + Φ(αh))/2 − Φ(h)Φ(αh) for h, α ≥ 0
    both = (ndtr(x) * ndtr(-y) + ndtr(y) * ndtr(-x)) / 2
    sector = jnp.where(y <= x, inner, both - inner)
    return jnp.where((h < 0) ^ (opposite < 0), -sector, sector)

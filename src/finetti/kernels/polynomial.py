"""Powers of the inner product."""

import itertools
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from finetti.core.arguments import as_whole
from finetti.core.arrays import is_concrete
from finetti.core.errors import bad_argument
from finetti.kernels.kernel import Kernel, with_added_log
from finetti.kernels.token_geometry import inner_products, log_parameter, positive


class Polynomial(Kernel):
    """The polynomial kernel, K(x, y) = (s x·y + b)^p.

    Its features are the monomials of degree ≤ p (= p if b = 0) of x, weighted by the roots of
    the multinomial coefficients: C(d + p, p) of them (C(d + p − 1, p) if b = 0).

    Args:
        degree: p ≥ 1.
        scale: s > 0, learned through its logarithm.
        bias: b ≥ 0; learned through its logarithm if > 0, and fixed if 0.

    >>> import jax.numpy as jnp
    >>> round(float(Polynomial(degree=2)(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))), 4)
    144.0
    >>> Polynomial(degree=2).feature_dimension(2)
    6
    """

    log_scale: Array
    log_bias: Array | None
    degree: int = eqx.field(static=True)

    def __init__(self, degree: int, scale: Any = 1.0, bias: Any = 1.0):
        self.degree = as_whole(degree, "degree", self._name)
        self.log_scale = log_parameter(scale, "scale", self._name)
        if is_concrete(bias) and np.any(np.asarray(bias) < 0):
            raise bad_argument("bias", self._name, "a finite number ≥ 0", bias)
        absent = is_concrete(bias) and np.ndim(bias) == 0 and float(bias) == 0
        self.log_bias = None if absent else log_parameter(bias, "bias", self._name)

    @property
    def scale(self) -> Array:
        """s."""
        return jnp.exp(self.log_scale)

    @property
    def bias(self) -> Array:
        """b."""
        return jnp.zeros_like(self.log_scale) if self.log_bias is None else jnp.exp(self.log_bias)

    @property
    def is_positive(self) -> bool:
        """Whether p is even."""
        return self.degree % 2 == 0

    def feature_dimension(self, d: int) -> int:
        """The number of monomials."""
        variables = as_whole(d, "d", "Polynomial.feature_dimension") + (self.log_bias is not None)
        return math.comb(variables + self.degree - 1, self.degree)

    def _gram(self, xs: Array, ys: Array) -> Array:
        return self._affine(inner_products(xs, ys)) ** self.degree

    def _own_gram(self, xs: Array) -> Array:
        return self._affine(inner_products(xs, None)) ** self.degree

    def _diagonal(self, xs: Array) -> Array:
        return self._affine(jnp.sum(xs * xs, axis=1)) ** self.degree

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        size = jnp.abs(self._affine(inner_products(xs, ys)))
        # The logarithm of 0 has no slope; its kernel is 0 there, and so is that slope.
        return self.degree * jnp.where(size == 0, -jnp.inf, jnp.log(jnp.where(size == 0, 1, size)))

    def _affine(self, products: Array) -> Array:
        """s x·y + b."""
        scaled = positive(self.log_scale, products.dtype) * products
        return scaled if self.log_bias is None else scaled + positive(self.log_bias, products.dtype)

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return with_added_log(self, "log_scale", log_scale)

    def _features(self, xs: Array) -> Array:
        variables = xs * positive(self.log_scale, xs.dtype, power=0.5)
        if self.log_bias is not None:
            constant = positive(self.log_bias, xs.dtype, power=0.5)
            column = jnp.broadcast_to(constant, (len(xs), 1))
            variables = jnp.concatenate([variables, column], axis=1)
        factors, weights = _monomials(variables.shape[1], self.degree)
        features = jnp.asarray(weights, dtype=xs.dtype)[None, :]
        for variable in factors.T:  # one factor of every monomial at a time
            features = features * variables[:, variable]
        return features


def _monomials(n_variables: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``degree`` variables of each monomial, and √(p! / ∏ α_i!) of its exponents α."""
    factors = np.array(
        list(itertools.combinations_with_replacement(range(n_variables), degree)), dtype=np.int32
    )
    weights = [
        math.sqrt(
            math.factorial(degree)
            / math.prod(math.factorial(n) for n in np.unique(row, return_counts=True)[1].tolist())
        )
        for row in factors
    ]
    return factors, np.array(weights)

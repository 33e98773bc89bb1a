"""Conditional-mean (CME) attention: kernel ridge regression over the context, with an error bar."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention import system as linear
from finetti.attention.base import Attention
from finetti.attention.contexts import Contexts, arrange
from finetti.core.arrays import check_positive
from finetti.core.errors import InputError
from finetti.core.precision import float64_inside
from finetti.core.solves import gaussian_log_density
from finetti.kernels.base import Kernel
from finetti.kernels.rbf import RBF

DEFAULT_RIDGE = 0.1


class ConditionalMean(Attention):
    """CME attention: the Gaussian-process posterior mean of the values at the query.

    attn_CME(q, K, V) = Vᵀ(K(K, K) + λI)⁻¹K(K, q)                             (4.5), zhang2022

    Solved in float64 whatever the precision of the data, with gradients by implicit
    differentiation (reverse mode). The answer is finite for finite input: each key's ridge is at
    least `finetti.core.solves.diagonal_floor` times K(k, k), about 2L²·10⁻¹⁶; `cme_solve` says
    whether that floor was used.

    Args:
        kernel: K, any positive-definite kernel; its parameters are leaves that can be trained.
        ridge: λ, the noise variance of the values in units of the kernel. Kept as ``log_ridge``.
        ridge_per_token: instead of ``ridge``: λ = ridge_per_token × (number of unmasked keys), the
            scale of the empirical conditional mean embedding (A.3).

    >>> import jax.numpy as jnp
    >>> from finetti.kernels import RBF
    >>> attention = ConditionalMean(RBF(), ridge=0.5)
    >>> keys, values = jnp.array([[0.0], [1.0]]), jnp.array([[0.0], [1.0]])
    >>> mean, variance = attention.posterior(jnp.array([1.0]), keys, values)
    >>> print(f"{mean[0]:.3f} ± {variance**0.5:.3f}")
    0.602 ± 0.548
    """

    kernel: Kernel
    log_ridge: Float[Array, ""]
    per_token: bool = eqx.field(static=True)

    def __init__(
        self,
        kernel: Kernel | None = None,
        ridge: ArrayLike | None = None,
        ridge_per_token: ArrayLike | None = None,
    ):
        self.kernel = RBF() if kernel is None else kernel
        value, self.per_token = resolve_ridge("ConditionalMean", ridge, ridge_per_token)
        self.log_ridge = jnp.log(jnp.asarray(value, dtype=float))

    @property
    def ridge(self) -> Float[Array, ""]:
        """λ, or λ per token if ``per_token``."""
        return jnp.exp(self.log_ridge)

    def __call__(
        self, query: ArrayLike, keys: ArrayLike, values: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """The posterior mean of the value at the query; 0 where every key is masked."""
        contexts = arrange("ConditionalMean", query, keys, values, mask)
        return contexts.restore(_mean(self, contexts))

    def weights(
        self, query: ArrayLike, keys: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """(K + λI)⁻¹K(K, q): of either sign, and they need not sum to 1 (4.4)."""
        contexts = arrange("ConditionalMean", query, keys, None, mask)
        return contexts.restore(_weights(self, contexts))

    def posterior(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        mask: ArrayLike | None = None,
        predictive: bool = False,
    ) -> tuple[Float[Array, "... d_v"], Float[Array, "..."]]:
        """Mean and variance of the value at the query: attention with an error bar.

        K_p(q, q) = K(q, q) − K(q, K)(K + λI)⁻¹K(K, q)                          B.1, zhang2022

        The variance is that of each coordinate of the noiseless value f(q); all coordinates share
        it. ``predictive`` adds the noise λ of a newly observed value. Where every key is masked the
        answer is the prior: mean 0, variance K(q, q).
        """
        contexts = arrange("ConditionalMean.posterior", query, keys, values, mask)
        mean, variance, ridge = _posterior(self, contexts)
        if predictive:
            variance = variance + (ridge if contexts.per_query else ridge[:, None])
        return contexts.restore(mean), contexts.restore(variance)

    def log_marginal_likelihood(
        self, keys: ArrayLike, values: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch"]:
        """log p(V | K) = Σ_j log N(v_j; 0, K(K, K) + λI), one number per context.

        Differentiable in the kernel's parameters and ``log_ridge``: maximize it to learn them.
        Masked keys do not count.
        """
        keys = jnp.asarray(keys)
        # The likelihood has no query; a key in its place only carries the shape.
        contexts = arrange("log_marginal_likelihood", keys[..., :1, :], keys, values, mask)
        return _log_likelihood(self, contexts).reshape(keys.shape[:-2])


def resolve_ridge(
    owner: str, ridge: ArrayLike | None, ridge_per_token: ArrayLike | None
) -> tuple[ArrayLike, bool]:
    """The one ridge that was given and whether it is per token."""
    if ridge is not None and ridge_per_token is not None:
        raise InputError(
            f"{owner} takes `ridge` (4.5) or `ridge_per_token` (A.3), not both. Got {ridge} and "
            f"{ridge_per_token}."
        )
    if ridge_per_token is not None:
        check_positive(ridge_per_token, "ridge_per_token", owner)
        return ridge_per_token, True
    value = DEFAULT_RIDGE if ridge is None else ridge
    check_positive(value, "ridge", owner)
    return value, False


def _build(module: ConditionalMean, keys: Array, mask: Array | None) -> linear.System:
    return linear.build(module.kernel, keys, mask, module.ridge, module.per_token)


def _flat(function: Any) -> Any:
    """``function(module, contexts)`` compiled, and run in float64 inside.

    The axes of the caller stay outside: they would be traced as numbers, and mean nothing inside.
    """

    @jax.jit
    @float64_inside
    def run(module: ConditionalMean, query: Any, keys: Any, values: Any, mask: Any) -> Any:
        return function(module, Contexts(query, keys, values, mask, ()))

    return lambda module, contexts: run(module, *contexts[:4])


@_flat
def _mean(module: ConditionalMean, contexts: Contexts) -> Any:
    def read(query: Array, keys: Array, values: Array, mask: Array | None) -> Array:
        system = _build(module, keys, mask)
        if mask is not None:
            values = jnp.where(mask[:, None], values, 0.0)
        return linear.solve_mean(module.kernel, system, keys, values, query)

    return contexts.over(read)


@_flat
def _weights(module: ConditionalMean, contexts: Contexts) -> Any:
    def read(query: Array, keys: Array, _: Array, mask: Array | None) -> Array:
        system = _build(module, keys, mask)
        return linear.solve_weights(system, linear.cross(module.kernel, system, keys, query))[0].T

    return contexts.over(read)


@_flat
def _posterior(module: ConditionalMean, contexts: Contexts) -> Any:
    def read(query: Array, keys: Array, values: Array, mask: Array | None) -> Any:
        system = _build(module, keys, mask)
        right = linear.cross(module.kernel, system, keys, query)
        weights, scaled, _ = linear.solve_weights(system, right)
        variance = linear.solve_variance(module.kernel, query, right, scaled)
        return weights.T @ values, variance, system.ridge

    return contexts.over(read)


@_flat
def _log_likelihood(module: ConditionalMean, contexts: Contexts) -> Any:
    def read(_: Array, keys: Array, values: Array, mask: Array | None) -> Array:
        system = _build(module, keys, mask)
        if mask is not None:
            values = jnp.where(mask[:, None], values, 0.0)
        samples, jacobian = values, 0.0
        if system.log_scale is not None:
            # N(v; 0, DAD) = N(D⁻¹v; 0, A) / |D|
            samples = values * jnp.exp(-system.log_scale)[:, None]
            jacobian = jnp.sum(system.log_scale if mask is None else mask * system.log_scale)
        dimension = values.shape[1]
        density = gaussian_log_density(system.matrix, samples) - dimension * jacobian
        if mask is not None:
            # A masked key contributed N(0; 0, 1) per coordinate; take it out again.
            extra = jnp.sum(~mask).astype(values.dtype)
            density = density + 0.5 * dimension * extra * jnp.log(2 * jnp.pi).astype(values.dtype)
        return density

    return contexts.over(read)

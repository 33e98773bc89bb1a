"""Conditional-mean (CME) attention: kernel ridge regression over the context, with an error bar."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, DTypeLike, Float

from finetti.attention.base import Attention
from finetti.attention.cme import routes
from finetti.attention.cme.plan import ROUTES, Plan, Route, Wants, make_plan, shapes_of
from finetti.attention.contexts import Contexts, arrange
from finetti.core.arrays import check_positive, check_rank, is_concrete
from finetti.core.errors import InputError, bad_argument
from finetti.core.precision import float64_inside
from finetti.kernels.base import Kernel, check_kernel
from finetti.kernels.rbf import RBF

DEFAULT_RIDGE = 0.1
# Routes that are not float64 throughout; they give the mean only.
IN_DATA_PRECISION = {
    "mixed": routes.read_mixed,
    "conjugate_gradients": routes.read_iterative,
}
# Gram matrices of that many entries (128 MB in float64) are in work at once.
TOGETHER = 2**24


class ConditionalMean(Attention):
    """CME attention: the Gaussian-process posterior mean of the values at the query.

    attn_CME(q, K, V) = Vᵀ(K(K, K) + λI)⁻¹K(K, q)                             (4.5), zhang2022

    Solved in float64 whatever the precision of the data, or, for the mean over 256 keys and more,
    in float32 where that is shown to do, for the answer and apart from it for its gradient
    (`finetti.attention.cme.checked`). Gradients are implicit (reverse mode). Each key's ridge is at
    least `finetti.core.solves.diagonal_floor` times K(k, k), about 2L²·10⁻¹⁶, on every route;
    `cme_solve` says whether that floor was used. What cannot be solved is NaN.

    Args:
        kernel: K, any positive-definite kernel; its parameters are leaves that can be trained.
        ridge: λ, the noise variance of the values in units of the kernel. Kept as ``log_ridge``.
        ridge_per_token: instead of ``ridge``: λ = ridge_per_token × (number of unmasked keys), the
            scale of the empirical conditional mean embedding (A.3).
        route: how to solve: "cholesky" (float64), "mixed" (float32 factorization of float32 data,
            mean only; float64 where that is too coarse), "primal" (kernels with a finite feature
            map; linear in L), "conjugate_gradients" (long contexts, mean only; NaN and a warning
            where they do not converge), or "auto"; `plan` explains the choice.

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
    route: str = eqx.field(static=True)

    def __init__(
        self,
        kernel: Kernel | None = None,
        ridge: ArrayLike | None = None,
        ridge_per_token: ArrayLike | None = None,
        *,
        route: Route = "auto",
    ):
        self.kernel = RBF() if kernel is None else kernel
        check_kernel(self.kernel, "ConditionalMean")
        value, self.per_token = resolve_ridge("ConditionalMean", ridge, ridge_per_token)
        self.log_ridge = jnp.log(jnp.asarray(value, dtype=float))
        if route not in ROUTES:
            raise bad_argument("route", "ConditionalMean", f"one of {ROUTES}", repr(route))
        self.route = route

    @property
    def ridge(self) -> Float[Array, ""]:
        """λ, or λ per token if ``per_token``."""
        return jnp.exp(self.log_ridge)

    def __call__(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """The posterior mean of the value at the query; 0 where every key is masked.

        With ``is_causal`` the query at position t of the last query axis reads the keys 0…t: one
        factorization for all prefixes, or chunk by chunk in the primal form.
        """
        contexts = arrange("ConditionalMean", query, keys, values, mask)
        mean = contexts.restore(self.answer(contexts, "mean", is_causal).mean)
        if is_concrete(mean) and bool(jnp.isnan(mean).any()):
            warnings.warn(
                "CME attention found no solution for some queries, and answers NaN there. "
                "`cme_solve` says why; raise the ridge, or in long contexts use route='cholesky'.",
                stacklevel=2,
            )
        return mean

    def weights(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """(K + λI)⁻¹K(K, q): of either sign, and they need not sum to 1 (4.4)."""
        contexts = arrange("ConditionalMean", query, keys, None, mask)
        return contexts.restore(self.answer(contexts, "weights", is_causal).weights)

    def posterior(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        mask: ArrayLike | None = None,
        predictive: bool = False,
        *,
        is_causal: bool = False,
    ) -> tuple[Float[Array, "... d_v"], Float[Array, "..."]]:
        """Mean and variance of the value at the query: attention with an error bar.

        K_p(q, q) = K(q, q) − K(q, K)(K + λI)⁻¹K(K, q)                          B.1, zhang2022

        The variance is that of each coordinate of the noiseless value f(q); all coordinates share
        it. ``predictive`` adds the noise λ of a newly observed value. Where every key is masked the
        answer is the prior: mean 0, variance K(q, q).
        """
        contexts = arrange("ConditionalMean.posterior", query, keys, values, mask)
        answer = self.answer(contexts, "posterior", is_causal)
        variance = answer.variance
        if predictive:
            per_query = answer.ridge.ndim == 2
            variance = variance + (answer.ridge if per_query else answer.ridge[:, None])
        return contexts.restore(answer.mean), contexts.restore(variance)

    def log_marginal_likelihood(
        self, keys: ArrayLike, values: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch"]:
        """log p(V | K) = Σ_j log N(v_j; 0, K(K, K) + λI), one number per context.

        Differentiable in the kernel's parameters and ``log_ridge``: maximize it to learn them.
        Masked keys do not count.
        """
        keys = jnp.asarray(keys)
        check_rank(keys, 2, "(..., L, d_k)", "keys", "log_marginal_likelihood")
        # The likelihood has no query; zeros in its place only carry the shape.
        query = jnp.zeros(keys.shape[:-2] + keys.shape[-1:], keys.dtype)
        contexts = arrange("log_marginal_likelihood", query, keys, values, mask)
        return _log_likelihood(self, *contexts[:4]).reshape(keys.shape[:-2])

    def plan(
        self,
        query_shape: tuple[int, ...],
        keys_shape: tuple[int, ...],
        values_shape: tuple[int, ...],
        *,
        per_query_mask: bool = False,
        is_causal: bool = False,
        wants: Wants = "mean",
        dtype: DTypeLike = jnp.float32,
    ) -> Plan:
        """How a call with these shapes is computed, what it costs, and why.

        ``wants`` is what is asked for: "mean" (a call), "posterior" or "weights"; ``dtype`` that of
        the data.

        >>> print(ConditionalMean().plan((99, 8), (99, 8), (99, 64)).reason)
        One float64 factorization (99 keys).
        """
        length, queries, d_k, d_v = shapes_of(query_shape, keys_shape, values_shape)
        return make_plan(
            self.kernel,
            self.route,
            length,
            queries,
            d_k,
            d_v,
            per_query=per_query_mask,
            is_causal=is_causal,
            wants=wants,
            dtype=dtype,
        )

    def answer(self, contexts: Contexts, wants: Wants, is_causal: bool = False) -> Any:
        """What is asked for, in the layout of ``contexts``, by the route of `plan`."""
        prefix = None
        if is_causal:
            contexts, prefix = self._causal(contexts)
        plan = self.plan(
            contexts.query.shape,
            contexts.keys.shape,
            contexts.values.shape,
            per_query_mask=contexts.per_query,
            is_causal=prefix is not None,
            wants=wants,
            dtype=contexts.query.dtype,
        )
        if plan.route in IN_DATA_PRECISION:
            contexts = contexts.at_least_float32()
        return _compiled(plan.route, wants, prefix)(self, *contexts[:4])

    def _causal(self, contexts: Contexts) -> tuple[Contexts, int | None]:
        """The number of positions; masks that differ between queries take the causal one in."""
        if self.per_token:
            raise InputError(
                "ConditionalMean cannot use `ridge_per_token` with is_causal=True, where every "
                "query reads another number of keys. Use `ridge`."
            )
        if not contexts.has_queries:
            raise InputError(
                "The `query` argument of ConditionalMean must have an axis of positions with "
                "is_causal=True. Got one query per context instead."
            )
        prefix = contexts.lead[-1]
        if contexts.mask is None or not contexts.per_query:
            return contexts, prefix
        positions = jnp.arange(contexts.query.shape[1]) % prefix
        visible = jnp.arange(contexts.keys.shape[1])[None, None, :] <= positions[None, :, None]
        return contexts._replace(mask=contexts.mask & visible), None


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


@functools.cache
def _compiled(route: str, wants: Wants, prefix: int | None) -> Callable[..., Any]:
    """One compiled function per way of answering."""

    def run(module: ConditionalMean, query: Any, keys: Any, values: Any, mask: Any) -> Any:
        def read(query: Array, keys: Array, values: Array, mask: Array | None) -> routes.Answer:
            ridge = routes.Ridge(module.ridge, module.per_token)
            # Causal answers show by themselves what their prefix holds.
            marked = prefix is None
            finite = jnp.all(jnp.isfinite(query), axis=1, keepdims=True)
            # A query that is NaN must not reach the others (distances are taken from a center).
            context = jnp.where(finite, query, 0.0) if marked else query, keys, values, mask
            if route in IN_DATA_PRECISION:
                answer = IN_DATA_PRECISION[route](module.kernel, ridge, *context)
            else:
                reader = routes.read_primal if route == "primal" else routes.read_cholesky
                answer = reader(module.kernel, ridge, wants, prefix, *context)
            if not marked:
                return answer
            return routes.not_a_number_where_read(answer, module, finite, keys, values, mask)

        # A float32 factorization of hundreds of keys keeps all cores busy by itself.
        together = 1 if route == "mixed" else TOGETHER
        return Contexts(query, keys, values, mask, (), True).over(read, together)

    return jax.jit(run if route in IN_DATA_PRECISION else float64_inside(run))


@jax.jit
@float64_inside
def _log_likelihood(
    module: ConditionalMean, query: Any, keys: Any, values: Any, mask: Any
) -> Float[Array, "B"]:
    ridge = routes.Ridge(module.ridge, module.per_token)

    def read(_: Array, keys: Array, values: Array, mask: Array | None) -> Array:
        return routes.log_likelihood(module.kernel, ridge, keys, values, mask)

    return Contexts(query, keys, values, mask, (), True).over(read, TOGETHER)

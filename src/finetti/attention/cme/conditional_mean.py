"""Conditional-mean (CME) attention: kernel ridge regression over the context, with an error bar."""

import functools
import math
from collections.abc import Callable
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import wadler_lindig
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, DTypeLike, Float

from finetti.attention.cme.dense_system import log_likelihood
from finetti.attention.cme.plan import ROUTES, Plan, RouteName, make_plan
from finetti.attention.cme.routes import Answer, Call, Ridge, Wants
from finetti.attention.context_batch import (
    ContextArrays,
    Contexts,
    arrange,
    mark_unknown,
    over_contexts,
    set_aside_spoiled,
    spoiled_rows,
)
from finetti.attention.modules.attention_module import Attention
from finetti.core.arguments import check_positive
from finetti.core.arrays import has_infinity, has_nan
from finetti.core.errors import InputError, bad_argument, warn_user
from finetti.core.numerics.float64 import float64_inside
from finetti.kernels.kernel import Kernel, check_kernel, written_parameter
from finetti.kernels.rbf import RBF

DEFAULT_RIDGE = 0.1
PER_QUERY_COST = (
    "A mask that differs between queries takes one solve per query. If it is causal, say "
    "is_causal=True; if it only hides padding, pass one mask for all queries (of the shape of the "
    "keys, or key_value_seq_lengths; in Flax key_mask=True): one solve for all."
)


class PerQueryMaskWarning(UserWarning):
    """Said once: what a mask per query costs, and which argument avoids it."""


class ConditionalMean(Attention):
    """CME attention: the Gaussian-process posterior mean of the values at the query.

    attn_CME(q, K, V) = Vᵀ(K(K, K) + λI)⁻¹K(K, q)                             (4.5), zhang2022

    Solved in float64 whatever the precision of the data, or, for the mean over 256 keys and more,
    in float32 where that is shown to do, for the answer and apart from it for its gradient
    (`finetti.attention.cme.mixed_precision`). Gradients are implicit (reverse mode). Each key's
    ridge is at least `diagonal_floor` times K(k, k), about 2L²·10⁻¹⁶, on every
    route; `cme_solve` says whether that floor was used. What cannot be solved is NaN.

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
        route: RouteName = "auto",
    ):
        self.kernel = RBF() if kernel is None else kernel
        check_kernel(self.kernel, "ConditionalMean")
        value, self.per_token = resolve_ridge("ConditionalMean", ridge, ridge_per_token)
        self.log_ridge = jnp.log(jnp.asarray(value, dtype=float))
        names = ("auto", *sorted(ROUTES))
        if route not in names:
            raise bad_argument("route", "ConditionalMean", f"one of {names}", repr(route))
        self.route = route

    def __repr__(self) -> str:
        name = "log_ridge_per_token" if self.per_token else "log_ridge"
        route = "" if self.route == "auto" else f", route={self.route!r}"
        ridge = written_parameter(name, self.log_ridge)
        return f"ConditionalMean({self.kernel!r}, {ridge}{route})"

    def __pdoc__(self, **_: Any) -> wadler_lindig.AbstractDoc:
        return wadler_lindig.TextDoc(repr(self))

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
        return self.read(contexts, "mean", is_causal).mean

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
        return self.read(contexts, "weights", is_causal).weights

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
        answer is the prior: mean 0, variance K(q, q). A variance beyond the largest number of the
        data's precision is infinite, with a warning.
        """
        contexts = arrange("ConditionalMean.posterior", query, keys, values, mask)
        answer = self.read(contexts, "posterior", is_causal)
        return answer.mean, answer.variance + (answer.ridge if predictive else 0.0)

    def log_marginal_likelihood(
        self, keys: ArrayLike, values: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch"]:
        """log p(V | K) = Σ_j log N(v_j; 0, K(K, K) + λI), one number per context.

        Differentiable in the kernel's parameters and ``log_ridge``: maximize it to learn them.
        Masked keys do not count.
        """
        contexts = arrange("log_marginal_likelihood", None, keys, values, mask)
        return _log_likelihood(self, contexts.arrays).reshape(contexts.lead[:-1])

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
        if wants not in get_args(Wants):
            wanted = f"one of {get_args(Wants)}"
            raise bad_argument("wants", "ConditionalMean.plan", wanted, repr(wants))
        queries = math.prod(query_shape[len(keys_shape) - 2 : -1])
        sizes = keys_shape[-2], queries, keys_shape[-1], values_shape[-1]
        call = Call(self.kernel, *sizes, per_query_mask, is_causal, wants, dtype)
        return make_plan(call, self.route)

    def read(self, contexts: Contexts, wants: Wants, is_causal: bool = False) -> Any:
        """What is asked for, in the layout of the caller; where it is NaN, with a warning."""
        answer = self.answer(contexts, wants, is_causal)
        for part in (answer.mean, answer.weights):
            if part is not None and has_nan(part):
                warn_user(
                    "CME attention found no solution for some queries, and answers NaN there. "
                    "`cme_solve` says why; raise the ridge, or in long contexts use "
                    "route='cholesky'."
                )
        if wants == "weights":
            return Answer(weights=contexts.restore(answer.weights))
        mean = contexts.restore_values(answer.mean)
        if wants == "mean":
            return Answer(mean=mean)
        ridge = answer.ridge if answer.ridge.ndim == 2 else answer.ridge[:, None]
        ridge = jnp.broadcast_to(ridge, answer.variance.shape)
        variance = restore_variance(contexts, answer.variance)
        return Answer(mean=mean, variance=variance, ridge=contexts.restore(ridge))

    def answer(self, contexts: Contexts, wants: Wants, is_causal: bool = False) -> Any:
        """What is asked for, in the layout of ``contexts``, by the route of `plan`."""
        prefix = None
        if is_causal:
            contexts, prefix = self._causal(contexts)
        if contexts.per_query:
            warn_user(PER_QUERY_COST, PerQueryMaskWarning)
        (size, queries, d_k), (_, length, d_v) = contexts.query.shape, contexts.values.shape
        if not queries:
            shapes = (size, 0, d_v), (size, 0), (size, 0, length), (size,)
            return Answer(*(jnp.zeros(shape, contexts.query.dtype) for shape in shapes))
        asked = contexts.per_query, prefix is not None, wants, contexts.query.dtype
        plan = make_plan(Call(self.kernel, length, queries, d_k, d_v, *asked), self.route)
        if ROUTES[plan.route].in_data_precision:
            contexts = contexts.at_least_float32()
        return _compiled(plan.route, wants, prefix)(self, contexts.arrays)

    def _causal(self, contexts: Contexts) -> tuple[Contexts, int | None]:
        """The number of positions; masks that differ between queries take the causal one in."""
        if self.per_token:
            raise InputError(
                "ConditionalMean cannot use `ridge_per_token` with is_causal=True, where every "
                "query reads another number of keys. Use `ridge`."
            )
        if contexts.per_query:
            return contexts.causal("ConditionalMean"), None
        return contexts, contexts.positions("ConditionalMean")


def restore_variance(contexts: Contexts, variance: Float[Array, "B Q"]) -> Array:
    """The variance in the layout of the caller; where it is infinite, with a warning."""
    restored = contexts.restore_variance(variance)
    if has_infinity(restored):
        warn_user(
            f"The variance of CME attention exceeds the largest {restored.dtype} number for some "
            "queries, and is infinite there: K(q, q) is too large. Scale the tokens down (in a "
            "functional form `scale`), or use float64, where float32 is exceeded."
        )
    return restored


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
def _compiled(name: str, wants: Wants, prefix: int | None) -> Callable[..., Any]:
    """One compiled function per way of answering."""
    route = ROUTES[name]

    def run(module: ConditionalMean, arrays: ContextArrays) -> Answer:
        ridge = Ridge(module.ridge, module.per_token)

        def read(*context: Any) -> Answer:
            return route.read(module.kernel, ridge, ContextArrays(*context), wants, prefix)

        arrays, known = set_aside_spoiled(arrays, prefix)
        known &= ~_has_nan(module)  # a solve that fails would answer with the prior
        answer = over_contexts(read, arrays, route.max_entries)
        mean, variance, weights = (
            None if part is None else mark_unknown(part, known)
            for part in (answer.mean, answer.variance, answer.weights)
        )
        return Answer(mean, variance, weights, answer.ridge)

    return jax.jit(run if route.in_data_precision else float64_inside(run))


def _has_nan(module: ConditionalMean) -> Bool[Array, ""]:
    """Whether a parameter of the kernel, or the ridge, is NaN."""
    return jnp.stack([jnp.isnan(leaf).any() for leaf in jax.tree.leaves(module)]).any()


@jax.jit
@float64_inside
def _log_likelihood(module: ConditionalMean, arrays: ContextArrays) -> Float[Array, "B"]:
    ridge = Ridge(module.ridge, module.per_token)

    def read(*context: Any) -> Array:
        return log_likelihood(module.kernel, ridge, ContextArrays(*context))

    density = over_contexts(read, arrays, ROUTES["cholesky"].max_entries)
    spoiled = spoiled_rows(arrays).any(axis=1) | _has_nan(module)
    return jnp.where(spoiled, jnp.nan, density)

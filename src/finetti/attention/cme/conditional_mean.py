"""Conditional-mean (CME) attention: kernel ridge regression over the context, with an error bar."""

import math
from typing import Any, get_args

import equinox as eqx
import jax.numpy as jnp
import wadler_lindig
from jax.typing import ArrayLike
from jaxtyping import Array, DTypeLike, Float

from finetti.attention.cme.conjugate_gradients import ConjugateGradients
from finetti.attention.cme.dense_system import Cholesky, log_likelihood
from finetti.attention.cme.feature_space import Primal
from finetti.attention.cme.float32_factor import Float32Factor
from finetti.attention.cme.routes import Answer, Call, Output, Plan, Ridge, Route, RouteName
from finetti.attention.context_batch import ContextArrays, Contexts, arrange, over_contexts
from finetti.attention.modules.attention_module import (
    Attention,
    PerQueryMaskWarning,
    per_query_cost,
)
from finetti.core.arrays import has_infinity, has_nan
from finetti.core.errors import InputError, bad_argument, warn_user
from finetti.core.numerics.float64 import float64_inside
from finetti.kernels.kernel import Kernel, check_kernel, written_parameter
from finetti.kernels.rbf import RBF
from finetti.kernels.token_geometry import log_parameter

DEFAULT_RIDGE = 0.1
PER_QUERY_COST = per_query_cost("takes one solve per query", "one solve")
# "auto" takes the first that applies.
ROUTES: dict[str, Route] = {
    route.name: route for route in (Primal(), ConjugateGradients(), Float32Factor(), Cholesky())
}


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
        self.log_ridge, self.per_token = _log_ridge("ConditionalMean", ridge, ridge_per_token)
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
        return contexts.run(_log_likelihood, self)

    def plan(
        self,
        query_shape: tuple[int, ...],
        keys_shape: tuple[int, ...],
        values_shape: tuple[int, ...],
        *,
        per_query_mask: bool = False,
        is_causal: bool = False,
        output: Output = "mean",
        dtype: DTypeLike = jnp.float32,
    ) -> Plan:
        """How a call with these shapes is computed, and why.

        ``output`` is what is asked for: "mean" (a call), "posterior" or "weights"; ``dtype`` that
        of the data.

        >>> print(ConditionalMean().plan((99, 8), (99, 8), (99, 64)).reason)
        One float64 factorization (99 keys).
        """
        if output not in get_args(Output):
            wanted = f"one of {get_args(Output)}"
            raise bad_argument("output", "ConditionalMean.plan", wanted, repr(output))
        queries = math.prod(query_shape[len(keys_shape) - 2 : -1])
        sizes = keys_shape[-2], queries, keys_shape[-1], values_shape[-1]
        call = Call(self.kernel, *sizes, per_query_mask, is_causal, output, dtype)
        return _plan(call, self.route)

    def read(self, contexts: Contexts, output: Output, is_causal: bool = False) -> Any:
        """The requested output in the caller's layout; warns if an entry is NaN or infinite."""
        layout, positions = contexts.layout, None
        if is_causal:
            if self.per_token:
                raise InputError(
                    "ConditionalMean cannot use `ridge_per_token` with is_causal=True, where every "
                    "query reads another number of keys. Use `ridge`."
                )
            positions = contexts.positions("ConditionalMean")
        if layout.per_query:
            warn_user(PER_QUERY_COST, PerQueryMaskWarning)
        sizes = layout.length, layout.queries, layout.d_k, layout.d_v
        is_prefix = is_causal and not layout.per_query
        call = Call(self.kernel, *sizes, layout.per_query, is_prefix, output, layout.dtype)
        route = _plan(call, self.route).route
        answer = contexts.run(cme_answer, self, route=route, output=output, positions=positions)
        for part in (answer.mean, answer.weights):
            if part is not None and has_nan(part):
                warn_user(
                    "CME attention found no solution for some queries, and answers NaN there. "
                    "`cme_solve` says why; raise the ridge, or in long contexts use "
                    "route='cholesky'."
                )
        if answer.variance is not None:
            check_variance(answer.variance)
        return answer

    def on_scaled_tokens(self, scale: Float[Array, ""]) -> "ConditionalMean":
        """With the kernel of scaled tokens."""
        return eqx.tree_at(lambda m: m.kernel, self, self.kernel.on_scaled_tokens(scale))


def cme_answer(
    contexts: Contexts,
    module: ConditionalMean,
    *,
    route: str,
    output: Output,
    positions: int | None,
) -> Answer:
    """What `ConditionalMean.read` compiles."""
    layout, chosen = contexts.layout, ROUTES[route]
    if not layout.queries:
        shapes = (layout.d_v,), (), (layout.length,), ()
        parts = (jnp.zeros((layout.size, 0, *shape), layout.working_dtype) for shape in shapes)
        mean, *others = parts
        return Answer(contexts.restore_values(mean), *map(contexts.restore, others))

    def answer(module: ConditionalMean, arrays: ContextArrays) -> Answer:
        ridge, prefix = Ridge(module.ridge, module.per_token), positions
        if positions is not None and layout.per_query:
            arrays, prefix = arrays.causal(positions), None

        def read(*context: Any) -> Answer:
            return chosen.read(module.kernel, ridge, ContextArrays(*context), output, prefix)

        return over_contexts(read, arrays, chosen.max_entries)

    answer = answer if chosen.in_data_precision else float64_inside(answer)
    parts: Any = answer(contexts.scaled(module), contexts.arrays)
    mean, variance, weights, ridge = parts
    if output == "weights":
        return Answer(weights=contexts.restore(weights))
    if output == "mean":
        return Answer(mean=contexts.restore_values(mean))
    ridge = jnp.broadcast_to(ridge if ridge.ndim == 2 else ridge[:, None], variance.shape)
    return Answer(
        mean=contexts.restore_values(mean),
        variance=contexts.restore_variance(variance),
        ridge=contexts.restore(ridge),
    )


def check_variance(variance: Float[Array, "..."]) -> None:
    """Warn where a variance is infinite."""
    if has_infinity(variance):
        warn_user(
            f"The variance of CME attention exceeds the largest {variance.dtype} number for some "
            "queries, and is infinite there: K(q, q) is too large. Scale the tokens down (in a "
            "functional form `scale`), or use float64, where float32 is exceeded."
        )


def _plan(call: Call, name: str) -> Plan:
    """The plan for one call; refuses a route that cannot answer it."""
    if name == "auto":
        fitting = (route for route in ROUTES.values() if not route.refusal(call))
        route, reason = next((route, why) for route in fitting if (why := route.reason(call)))
    else:
        route, reason = ROUTES[name], "Asked for by `route`."
        if refusal := route.refusal(call):
            raise InputError(f"The route {name!r} of ConditionalMean {refusal} Use route='auto'.")
    return Plan(route.name, call.is_causal, call.per_query, reason)


def _log_ridge(
    owner: str, ridge: ArrayLike | None, ridge_per_token: ArrayLike | None
) -> tuple[Float[Array, ""], bool]:
    """The logarithm of the one ridge that was given, and whether it is per token."""
    if ridge is not None and ridge_per_token is not None:
        raise InputError(
            f"{owner} takes `ridge` (4.5) or `ridge_per_token` (A.3), not both. Got {ridge} and "
            f"{ridge_per_token}."
        )
    if ridge_per_token is not None:
        return log_parameter(ridge_per_token, "ridge_per_token", owner, dtype=float), True
    ridge = DEFAULT_RIDGE if ridge is None else ridge
    return log_parameter(ridge, "ridge", owner, dtype=float), False


def _log_likelihood(contexts: Contexts, module: ConditionalMean) -> Float[Array, "*batch"]:
    def density(module: ConditionalMean, arrays: ContextArrays) -> Array:
        ridge = Ridge(module.ridge, module.per_token)

        def read(*context: Any) -> Array:
            return log_likelihood(module.kernel, ridge, ContextArrays(*context))

        return over_contexts(read, arrays, ROUTES["cholesky"].max_entries)

    found = float64_inside(density)(module, contexts.arrays)
    return found.reshape(contexts.layout.batch)

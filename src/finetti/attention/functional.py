"""Attention functions with the arguments of ``jax.nn.dot_product_attention``.

All take ``query`` (B, T, N, H), ``key`` (B, S, K, H) and ``value`` (B, S, K, D), or the same
without B; K divides N (grouped-query attention). ``mask`` is boolean and broadcastable to
(B, N, T, S), axes that are missing in front included. ``scale`` multiplies query·key and is 1/√H by
default: a kernel sees √scale·query and √scale·key, so that the exponential kernel is
exp(scale·query·key).

With ``is_causal`` query t reads the keys 0…t, as in JAX, also where there are fewer queries than
keys. ``causal_alignment="lower_right"`` counts from the end instead: the last query reads all keys
and query t the keys 0…t + S − T, as a step of decoding over a cache of keys asks for; with
``query_seq_lengths`` or ``key_value_seq_lengths``, T and S are those. With ``local_window_size``,
one number or a pair (before, after), query t reads the keys t − before … t + after; for CME, linear
and delta-rule attention that is a mask per query.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.cme.plan import RouteName
from finetti.attention.layout import CausalAlignment, arrange_heads
from finetti.attention.normalized import masked_logits
from finetti.core.errors import InputError, UnsupportedError
from finetti.core.numerics.float64 import float64_inside
from finetti.kernels.kernel import Kernel, check_kernel
from finetti.kernels.rbf import RBF


def softmax_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: CausalAlignment = "upper_left",
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    return_residual: bool = False,
) -> Any:
    """softmax(scale·query·key + bias) value: the reference member of the family (4.10), zhang2022.

    With ``return_residual`` the answer is a pair, as in JAX: the values, and of shape (B, T, N) the
    logarithm of the sum that divides them, without a gradient.

    >>> import jax.numpy as jnp
    >>> query, key = jnp.zeros((1, 2, 1, 4)), jnp.ones((1, 3, 1, 4))
    >>> value = jnp.arange(12.0).reshape(1, 3, 1, 4)
    >>> [round(float(entry), 3) for entry in softmax_attention(query, key, value)[0, 0, 0]]
    [4.0, 5.0, 6.0, 7.0]
    """
    owner = "softmax_attention"
    heads = arrange_heads(
        owner,
        query,
        key,
        value,
        mask,
        scale,
        is_causal,
        causal_alignment,
        query_seq_lengths,
        key_value_seq_lengths,
        local_window_size,
    )
    heads, known = heads.set_aside_spoiled()
    logits = heads.scale * jnp.einsum("bkgth,bksh->bkgts", heads.query, heads.keys)
    logits = _readable(logits, heads.full_mask, heads.bias(owner, bias))
    out = heads.restore(jnp.where(known[..., None], _weighted(logits, heads.values), jnp.nan))
    if not return_residual:
        return out
    residual = jax.nn.logsumexp(jax.lax.stop_gradient(logits), axis=-1, keepdims=True)
    residual = heads.restore(jnp.where(known[..., None], residual, jnp.nan))
    return out, residual[..., 0]


def kernel_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: CausalAlignment = "upper_left",
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
) -> Float[Array, "..."]:
    """Nadaraya–Watson attention with a nonnegative kernel, RBF() by default; see `KernelSmoother`.

    ``bias`` is added to the log of the kernel. With ``Exponential()`` this is `softmax_attention`.
    """
    owner = "kernel_attention"
    kernel = RBF() if kernel is None else kernel
    check_kernel(kernel, owner)
    if not kernel.is_positive:
        raise UnsupportedError(
            f"kernel_attention divides by the sum of the kernel's values, and {kernel} takes both "
            "signs. Use cme_attention, or a nonnegative kernel such as RBF or Exponential."
        )
    heads = arrange_heads(
        owner,
        query,
        key,
        value,
        mask,
        scale,
        is_causal,
        causal_alignment,
        query_seq_lengths,
        key_value_seq_lengths,
        local_window_size,
    )

    heads, known = heads.set_aside_spoiled()
    kernel = kernel.on_scaled_tokens(heads.scale)
    masks = heads.full_mask, heads.bias(owner, bias)
    out = _kernel_rows(kernel, heads.query, heads.keys, heads.values, *masks)
    return heads.restore(jnp.where(known[..., None], out, jnp.nan))


@float64_inside  # as in `KernelSmoother`
@jax.jit
def _kernel_rows(
    kernel: Kernel, query: Array, keys: Array, values: Array, mask: Any, bias: Any
) -> Array:
    # Query heads of a group share their keys.
    logits = jax.vmap(jax.vmap(jax.vmap(kernel.log_gram, (0, None))))(query, keys)
    return _weighted(_readable(logits, mask, bias), values)


def cme_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: None = None,
    mask: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    ridge: ArrayLike | None = None,
    ridge_per_token: ArrayLike | None = None,
    route: RouteName = "auto",
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: CausalAlignment = "upper_left",
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    return_variance: bool = False,
    predictive: bool = False,
) -> Any:
    """Conditional-mean attention (4.5), zhang2022, RBF() by default; see `ConditionalMean`.

    With ``return_variance`` the answer is a pair: the mean, and the variance (B, T, N) that each of
    its coordinates has; ``predictive`` adds the noise λ of a newly observed value.

    A key mask (``mask`` of shape (B, N, 1, S), ``key_value_seq_lengths``) costs nothing, and
    ``is_causal`` is one factorization for all prefixes. Any other mask that differs between queries
    means one solve per query. Query heads that share their keys share the factorization.

    >>> import jax
    >>> tokens = jax.random.normal(jax.random.key(0), (3, 2, 128, 4, 16))
    >>> cme_attention(*tokens, ridge=0.1, key_value_seq_lengths=[128, 70]).shape
    (2, 128, 4, 16)
    """
    owner = "cme_attention"
    if bias is not None:
        raise InputError(
            "The `bias` argument of cme_attention must be None: a ridge regression has no additive "
            "score. Use `mask` to exclude keys, or change the kernel."
        )
    if is_causal and ridge_per_token is not None:
        raise InputError(
            "The `ridge_per_token` argument of cme_attention must be None with is_causal=True, "
            "where every query reads another number of keys. Use `ridge`."
        )
    # Causality goes to the module, which has a faster way than a mask.
    heads = arrange_heads(
        owner,
        query,
        key,
        value,
        mask,
        scale,
        is_causal,
        causal_alignment,
        query_seq_lengths,
        key_value_seq_lengths,
        local_window_size,
        reads_prefixes=True,
    )
    kernel = RBF() if kernel is None else kernel
    module = ConditionalMean(kernel, ridge, ridge_per_token, route=route)
    module = eqx.tree_at(lambda m: m.kernel, module, kernel.on_scaled_tokens(heads.scale))
    if not return_variance:
        return heads.restore(module.read(heads.contexts, "mean", heads.is_causal).mean)
    answer = module.read(heads.contexts, "posterior", heads.is_causal)
    variance = answer.variance + (answer.ridge if predictive else 0.0)
    return heads.restore(answer.mean), heads.restore(variance[..., None])[..., 0]


def _readable(
    logits: Float[Array, "B K G T S"],
    mask: Bool[Array, "B K G #T S"] | None,
    bias: Float[Array, "*broadcast"] | None,
) -> Float[Array, "B K G T S"]:
    """The logits with their bias, and on masked keys as low as a finite number that has sums."""
    if bias is not None:
        logits = logits + jnp.broadcast_to(bias, logits.shape)
    return masked_logits(logits, mask)


def _weighted(
    logits: Float[Array, "B K G T S"], values: Float[Array, "B K S D"]
) -> Float[Array, "B K G T D"]:
    return jnp.einsum("bkgts,bksd->bkgtd", jax.nn.softmax(logits, axis=-1), values)

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

from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.cme.routes import RouteName
from finetti.attention.fast_weights.delta_rule import DeltaRule, delta_rule_gates
from finetti.attention.fast_weights.linear_attention import LinearAttention
from finetti.attention.head_layout import CausalAlignment, arrange_heads
from finetti.attention.modules.attention_module import check_nonnegative
from finetti.attention.modules.local_linear import LocalLinear
from finetti.attention.modules.smoother import KernelSmoother
from finetti.attention.modules.softmax import Softmax, sum_and_residual
from finetti.core.errors import InputError
from finetti.kernels.kernel import Kernel
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
    lengths = query_seq_lengths, key_value_seq_lengths
    places = is_causal, causal_alignment, *lengths, local_window_size
    owner = "softmax_attention"
    contexts, is_prefix = arrange_heads(owner, query, key, value, bias, mask, scale, *places)
    return Softmax().read(contexts, is_prefix, sum_and_residual if return_residual else None)


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
    lengths = query_seq_lengths, key_value_seq_lengths
    places = is_causal, causal_alignment, *lengths, local_window_size
    owner = "kernel_attention"
    kernel = RBF() if kernel is None else kernel
    instead = "cme_attention, or a nonnegative kernel"
    check_nonnegative(kernel, owner, "divides by the sum of", instead)
    contexts, is_prefix = arrange_heads(owner, query, key, value, bias, mask, scale, *places)
    return KernelSmoother(kernel).read(contexts, is_prefix)


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
    lengths = query_seq_lengths, key_value_seq_lengths
    places = is_causal, causal_alignment, *lengths, local_window_size
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
    module = ConditionalMean(kernel, ridge, ridge_per_token, route=route)
    contexts, is_prefix = arrange_heads(owner, query, key, value, bias, mask, scale, *places)
    if not return_variance:
        return module.read(contexts, "mean", is_prefix).mean
    answer = module.read(contexts, "posterior", is_prefix)
    return answer.mean, answer.variance + (answer.ridge if predictive else 0.0)


def linear_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: None = None,
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
    """Σ K(key, query)·value with a kernel of finite features; see `LinearAttention`.

    By default the kernel is `Linear`, and the weights are scale·query·key.

    >>> import jax
    >>> tokens = jax.random.normal(jax.random.key(0), (3, 2, 128, 4, 16))
    >>> linear_attention(*tokens, is_causal=True).shape
    (2, 128, 4, 16)
    """
    lengths = query_seq_lengths, key_value_seq_lengths
    places = is_causal, causal_alignment, *lengths, local_window_size
    owner = "linear_attention"
    _refuse_bias(owner, bias)
    contexts, is_prefix = arrange_heads(owner, query, key, value, bias, mask, scale, *places)
    return LinearAttention(kernel).read(contexts, is_prefix)


def delta_rule_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: None = None,
    mask: ArrayLike | None = None,
    *,
    step: ArrayLike = 1.0,
    decay: ArrayLike | None = None,
    log_decay: ArrayLike | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: CausalAlignment = "upper_left",
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
) -> Float[Array, "..."]:
    """Online gradient descent over the keys in their order; see `DeltaRule`.

    S ← Sα_i, then S ← S − β_i(Sk_i − v_i)k_iᵀ with β_i = step_i/‖k_i‖²; the answer is S q.

    With keys of length 1 this is DeltaNet; with a ``decay`` per token and head Gated DeltaNet; with
    a ``decay`` per channel too Kimi's delta attention. Its answer does not depend on ``scale``, a
    common factor of queries and keys. A key mask and ``is_causal`` cost nothing; any other mask
    that differs between queries means one state each.

    Args:
        step: in [0, 2], one number or an array that broadcasts to (B, S, K), as the keys.
        decay: α in [0, 1]: a number, an array that broadcasts to (B, S, K), or one per channel with
            as many axes as ``key``, (B, S, K, H); by default nothing decays.
        log_decay: log α ≤ 0 instead, as networks compute it.

    >>> import jax
    >>> tokens = jax.random.normal(jax.random.key(0), (3, 2, 128, 4, 16))
    >>> delta_rule_attention(*tokens, step=0.5, decay=0.99, is_causal=True).shape
    (2, 128, 4, 16)

    Reference: Schlag et al., arXiv 2102.11174; Yang et al., arXiv 2412.06464; arXiv 2510.26692.
    """
    lengths = query_seq_lengths, key_value_seq_lengths
    places = is_causal, causal_alignment, *lengths, local_window_size
    owner = "delta_rule_attention"
    _refuse_bias(owner, bias)
    contexts, is_prefix = arrange_heads(owner, query, key, value, bias, mask, scale, *places)
    gates = delta_rule_gates(contexts.given.keys.shape, step, decay, log_decay)
    return DeltaRule().read(contexts, is_prefix, gates)


def local_linear_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: None = None,
    mask: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    ridge: ArrayLike = 0.1,
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: CausalAlignment = "upper_left",
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
) -> Float[Array, "..."]:
    """A line through the values near each query, RBF() by default; see `LocalLinear`.

    The line is one in √scale·key, as the kernel is.
    """
    lengths = query_seq_lengths, key_value_seq_lengths
    places = is_causal, causal_alignment, *lengths, local_window_size
    owner = "local_linear_attention"
    _refuse_bias(owner, bias)
    module = LocalLinear(RBF() if kernel is None else kernel, ridge)
    contexts, is_prefix = arrange_heads(owner, query, key, value, bias, mask, scale, *places)
    return module.read(contexts, is_prefix)


def _refuse_bias(owner: str, bias: None) -> None:
    if bias is not None:
        raise InputError(
            f"The `bias` argument of {owner} must be None: a regression has no additive score. Use "
            "`mask` to exclude keys, or change the kernel."
        )

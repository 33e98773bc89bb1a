"""Linear, delta-rule and local linear attention, with the arguments of `functional`.

None of them has an additive score, so that ``bias`` must be None.
"""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.fast_weights.delta_rule import DeltaRule
from finetti.attention.fast_weights.linear_attention import LinearAttention
from finetti.attention.layout import CausalAlignment, arrange_heads
from finetti.attention.modules.local_linear import LocalLinear
from finetti.core.errors import InputError
from finetti.kernels.kernel import Kernel
from finetti.kernels.rbf import RBF


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
    owner = "linear_attention"
    _refuse_bias(owner, bias)
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
    scaled = LinearAttention(kernel).kernel.on_scaled_tokens(heads.scale)
    out = LinearAttention(scaled).read(heads.contexts, heads.is_causal)
    return heads.restore(heads.contexts.restore_values(out))


def delta_rule_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: None = None,
    mask: ArrayLike | None = None,
    *,
    step: ArrayLike = 1.0,
    decay: ArrayLike = 1.0,
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: CausalAlignment = "upper_left",
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
) -> Float[Array, "..."]:
    """Online gradient descent over the keys in their order; see `DeltaRule`.

    Its answer does not depend on ``scale``, a common factor of queries and keys. A key mask and
    ``is_causal`` cost nothing; any other mask that differs between queries means one state each.

    >>> import jax
    >>> tokens = jax.random.normal(jax.random.key(0), (3, 2, 128, 4, 16))
    >>> delta_rule_attention(*tokens, step=0.5, decay=0.99, is_causal=True).shape
    (2, 128, 4, 16)
    """
    owner = "delta_rule_attention"
    _refuse_bias(owner, bias)
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
    out = DeltaRule(step, decay).read(heads.contexts, heads.is_causal)
    return heads.restore(heads.contexts.restore_values(out))


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
    owner = "local_linear_attention"
    _refuse_bias(owner, bias)
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
    module = LocalLinear(RBF() if kernel is None else kernel, ridge)
    # A slope in √s·k is one in k over √s: λ in these units is λ/s.
    ridge = module.ridge / heads.scale.astype(module.log_ridge.dtype)
    in_keys = LocalLinear(module.kernel.on_scaled_tokens(heads.scale), ridge)
    out = in_keys.read(heads.contexts, jnp.matmul, heads.is_causal)
    return heads.restore(heads.contexts.restore_values(out))


def _refuse_bias(owner: str, bias: None) -> None:
    if bias is not None:
        raise InputError(
            f"The `bias` argument of {owner} must be None: a regression has no additive score. Use "
            "`mask` to exclude keys, or change the kernel."
        )

"""Softmax, kernel and local linear attention: weights that sum to 1, row by row.

The arguments are those of `finetti.torch.cme_attention`. A query that may read nothing answers 0,
as in `torch.nn.functional.scaled_dot_product_attention`.
"""

import math

import torch
from torch import Tensor

from finetti.torch.kernel import Kernel, Number, check_parameters
from finetti.torch.kernels import check_kernel
from finetti.torch.layout import arrange, check_ridge, without_autocast
from finetti.torch.solve import at_least_floor, solve_posdef

# Numbers of the offsets between queries and keys that are in work at once, 32 MB in float64.
MAX_OFFSETS = 2**22


@without_autocast
def _softmax(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    owner = "softmax_attention"
    contexts = arrange(
        owner,
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        enable_gqa,
        has_bias=True,
    )
    mask, is_prefix = contexts.mask, False
    if contexts.period == contexts.query.shape[-2]:
        is_prefix = mask is None
    if not is_prefix:
        mask = contexts.visible()
    if contexts.bias is not None:
        readable = torch.tensor(True, device=query.device) if mask is None else mask
        mask = torch.where(readable, contexts.bias.to(contexts.keys.dtype), -torch.inf)
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(*contexts[:3], mask, is_causal=is_prefix, scale=contexts.scale)
    return contexts.restore(out)


def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale·query·key + mask) value by PyTorch itself; NaN under a mask does not leak.

    A mask of numbers is added to the scores. Unlike in PyTorch, ``attn_mask`` and ``is_causal`` may
    be given together.
    """
    return _softmax(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _shares(log_scores: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    """Scores over their sum; 0 where nothing may be read."""
    if bias is not None:
        log_scores = log_scores + bias
    if mask is not None:
        log_scores = torch.where(mask, log_scores, -torch.inf)
    top = log_scores.detach().amax(-1, keepdim=True)
    scores = torch.exp(log_scores - torch.where(torch.isfinite(top), top, 0.0))
    total = scores.sum(-1, keepdim=True)
    return scores / torch.where(total > 0, total, 1.0)


@without_autocast
def _smooth(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    kernel: Kernel | None,
) -> Tensor:
    owner = "kernel_attention"
    kernel = check_kernel(kernel, owner, positive=True)
    contexts = arrange(
        owner,
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        enable_gqa,
        has_bias=True,
    )
    check_parameters(kernel, contexts.keys)
    # In float32 the logarithms of scores far from a query do not differ where they should, and a
    # weight near 1 has lost the digits that its gradient is made of.
    asked, keys, values = (each.double() for each in contexts[:3])
    log_scores = kernel.log_gram(asked, keys, scale=contexts.scale)
    weights = _shares(log_scores, contexts.visible(), contexts.bias)
    return contexts.restore(weights @ values)


def kernel_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    kernel: Kernel | None = None,
) -> Tensor:
    """Nadaraya–Watson attention, Σ K(k_ℓ, q) v_ℓ/Σ K(k_ℓ, q) (4.9), zhang2022, in float64.

    A mask of numbers is added to the log of the nonnegative kernel, RBF with ℓ = 1 by default. With
    Exponential it is `softmax_attention`.

    >>> import torch
    >>> keys, values = torch.tensor([[-1.0], [1.0]]), torch.tensor([[2.0], [4.0]])
    >>> kernel_attention(torch.zeros(1, 1), keys, values)
    tensor([[3.]])
    """
    return _smooth(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, kernel)


@without_autocast
def _local(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    kernel: Kernel | None,
    ridge: Number,
) -> Tensor:
    owner = "local_linear_attention"
    kernel = check_kernel(kernel, owner, positive=True)
    contexts = arrange(owner, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    check_parameters(kernel, contexts.keys)
    given = check_ridge(owner, "ridge", ridge, contexts.keys)
    asked, keys, values = (each.double() for each in contexts[:3])
    # A slope in √s·k is one in k over √s: λ in these units is λ/s.
    floor = (given / contexts.scale)[..., None]
    log_scores = kernel.log_gram(asked, keys, scale=contexts.scale)
    shares = _shares(log_scores, contexts.visible(), None)
    size = math.prod(keys.shape)
    together = max(1, MAX_OFFSETS // max(1, size))
    # Empty where nothing is asked.
    parts = [values.new_zeros(*shares.shape[:-2], 0, values.shape[-1])]
    for start in range(0, asked.shape[-2], together):
        rows = slice(start, start + together)
        parts.append(_lines(shares[..., rows, :], asked[..., rows, :], keys, floor) @ values)
    return contexts.restore(torch.cat(parts, -2))


def _lines(shares: Tensor, asked: Tensor, keys: Tensor, ridge: Tensor) -> Tensor:
    """The weights of the intercept, p_i(1 + (k_i − k̄)ᵀ(C + λI)⁻¹(q − k̄)), (..., Q, S)."""
    # The mean is taken from a point near it: the offset of a key that has all the weight is then
    # 0, where rounding would leave what a small ridge magnifies.
    near = (shares @ keys).detach()
    offsets = keys.unsqueeze(-3) - near.unsqueeze(-2)
    rest = (shares.unsqueeze(-1) * offsets).sum(-2)
    offsets, mean = offsets - rest.unsqueeze(-2), near + rest
    covariance = offsets.mT @ (shares.unsqueeze(-1) * offsets)
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    noise = at_least_floor(ridge.expand_as(diagonal), diagonal, keys.shape[-1])
    slope = solve_posdef(covariance, noise, (asked - mean).unsqueeze(-1))
    return shares * (1.0 + (offsets @ slope).squeeze(-1))


def local_linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    kernel: Kernel | None = None,
    ridge: Number = 0.1,
) -> Tensor:
    """A line through the values near each query, read at the query; one solve of E rows for each.

    The intercept a of min_{a,B} Σ_i p_i‖v_i − a − B(k_i − q)‖² + λ‖B‖² with the weights p_i =
    K(q, k_i)/Σ_j K(q, k_j) and a line in √scale·key, as the kernel is; computed in float64. As
    λ → ∞ it is `kernel_attention`; as λ → 0 affine functions are read exactly.

    >>> import torch
    >>> keys = torch.tensor([[0.0], [1.0], [2.0]])
    >>> line = local_linear_attention(torch.tensor([[3.0]]), keys, 2 * keys, ridge=1e-6)
    >>> round(line.item(), 3)                              # a smoother would stay below 4
    6.0

    Reference: Fan and Gijbels, Local Polynomial Modelling (1996).
    """
    return _local(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, kernel, ridge
    )

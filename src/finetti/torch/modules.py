"""Attention as a module, with the arguments and the parameters of `torch.nn.MultiheadAttention`."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from finetti.core.errors import UnsupportedError, bad_argument
from finetti.torch.cme import DEFAULT_RIDGE, cme_attention
from finetti.torch.fast_weights import delta_rule_attention, linear_attention
from finetti.torch.functional import (
    kernel_attention,
    local_linear_attention,
    softmax_attention,
)
from finetti.torch.kernel import Kernel, show_exponential
from finetti.torch.kernels import RBF, check_kernel
from finetti.torch.layout import is_autocast, may_branch

FUNCTIONS: dict[str, Any] = {
    "cme": cme_attention,
    "softmax": softmax_attention,
    "kernel": kernel_attention,
    "local_linear": local_linear_attention,
    "linear": linear_attention,
    "delta_rule": delta_rule_attention,
}
_WITH_RIDGE, _WITH_KERNEL = ("cme", "local_linear"), ("cme", "kernel", "local_linear")
_WITH_BIAS = ("softmax", "kernel")


class Attention(nn.Module):
    """Multi-head attention by any member of the family; ``attention="cme"`` has error bars.

    The parameters of the projections have the names and shapes that `torch.nn.MultiheadAttention`
    gives them, so that its state dict loads with ``strict=False``; with ``attention="softmax"`` the
    outputs are the same. As there, ``key_padding_mask`` and a boolean ``attn_mask`` are True where
    a key may *not* be read (in the functions True means it may).

    Args:
        embed_dim, num_heads, bias, kdim, vdim, batch_first, device, dtype: as in
            `torch.nn.MultiheadAttention`.
        attention: "cme", "softmax", "kernel", "local_linear", "linear" or "delta_rule".
        kernel: of "cme", "kernel" and "local_linear"; by default RBF with one learned lengthscale
            per head. For "linear" one of finite features.
        ridge: of "cme" and "local_linear": the start of λ, which is learned, one per head.
        step: of "delta_rule".

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = Attention(16, 2, batch_first=True)
    >>> tokens = torch.randn(3, 5, 16)
    >>> output, _, variance = layer(tokens, tokens, tokens, return_variance=True)
    >>> output.shape, variance.shape
    (torch.Size([3, 5, 16]), torch.Size([3, 2, 5]))
    """

    log_ridge: Tensor | None
    # What makes torch.nn.TransformerEncoderLayer call this module in evaluation, too, and not its
    # own fused softmax attention with these projections.
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        attention: str = "cme",
        kernel: Kernel | None = None,
        ridge: float = DEFAULT_RIDGE,
        step: float = 1.0,
    ):
        super().__init__()
        owner = type(self).__name__
        if dropout:
            raise UnsupportedError(
                f"{owner} has no dropout of weights (dropout = {dropout}). Use torch.nn.Dropout on "
                "its output."
            )
        if attention not in FUNCTIONS:
            raise bad_argument("attention", owner, f"one of {tuple(FUNCTIONS)}", repr(attention))
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            requirement = f"a divisor of embed_dim = {embed_dim}"
            raise bad_argument("num_heads", owner, requirement, num_heads)
        if isinstance(ridge, (bool, Tensor)) or not isinstance(ridge, (int, float)):
            advice = "It is learned, one per head."
            raise bad_argument("ridge", owner, "a positive number", repr(ridge), advice)
        if not 0 < ridge < math.inf:
            raise bad_argument("ridge", owner, "positive and finite", ridge)
        if kernel is not None:
            if attention not in (*_WITH_KERNEL, "linear"):
                advice = "Use attention='kernel' or 'cme'."
                requirement = f"None with attention={attention!r}, which has no kernel"
                raise bad_argument("kernel", owner, requirement, type(kernel).__name__, advice)
            check_kernel(kernel, owner, positive=attention in ("kernel", "local_linear"))
        self.embed_dim, self.num_heads, self.attention = embed_dim, num_heads, attention
        self.head_dim = embed_dim // num_heads
        self.batch_first, self.step = batch_first, step
        options: Any = {"device": device, "dtype": dtype}
        widths = embed_dim, kdim or embed_dim, vdim or embed_dim
        self.widths: dict[str, int] = dict(zip(("query", "key", "value"), widths, strict=True))
        if widths == (embed_dim,) * 3:
            self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim, **options))
        else:
            for name, width in zip("qkv", widths, strict=True):
                weight = nn.Parameter(torch.empty(embed_dim, width, **options))
                self.register_parameter(f"{name}_proj_weight", weight)
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim, **options)) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **options)
        if kernel is None and attention in _WITH_KERNEL:
            kernel = RBF(torch.ones(num_heads, 1, 1, **options))
        self.kernel = kernel
        self.log_ridge = None
        if attention in _WITH_RIDGE:
            start = torch.full((num_heads,), float(ridge), **options)
            self.log_ridge = nn.Parameter(torch.log(start))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the projections anew, as `torch.nn.MultiheadAttention` does."""
        for name, parameter in self.named_parameters(recurse=False):
            if name.endswith("_weight"):
                nn.init.xavier_uniform_(parameter)
            elif name == "in_proj_bias":
                nn.init.zeros_(parameter)
        if self.out_proj.bias is not None:
            nn.init.zeros_(self.out_proj.bias)

    def extra_repr(self) -> str:
        """What `print` says."""
        text = f"{self.embed_dim}, num_heads={self.num_heads}, attention={self.attention!r}"
        return (
            text if self.log_ridge is None else f"{text}, ridge={show_exponential(self.log_ridge)}"
        )

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        return_variance: bool = False,
    ) -> Any:
        """(output, weights or None); with ``return_variance`` also the variance (B, heads, L).

        Args:
            query, key, value: (L, B, E), or (B, L, E) with ``batch_first``; or without B.
            key_padding_mask: boolean (B, S), True = not read; or of 0 and −∞ = not read.
            need_weights: also return the weights (B, L, S), averaged over heads; without
                ``average_attn_weights`` (B, heads, L, S). Of either sign; they need not sum to 1.
            attn_mask: boolean, True = not read, (L, S) or (B·heads, L, S), or of 0 and −∞; for
                "softmax" and "kernel" also other numbers, added to the scores.
            is_causal: query t reads the keys 0…t; no mask is needed beside it.
            return_variance: of "cme": the posterior variance that each coordinate of a head's
                answer has, before heads are mixed.
        """
        if return_variance and self.attention != "cme":
            raise UnsupportedError(
                f"attention={self.attention!r} has no variance. Use attention='cme'."
            )
        self._check_tokens(query, key, value)
        is_batched = query.ndim == 3
        tokens = query, key, value
        if not is_batched:
            tokens = tuple(each.unsqueeze(0) for each in tokens)
        elif not self.batch_first:
            tokens = tuple(each.transpose(0, 1) for each in tokens)
        heads = self._heads(tokens)
        mask = self._mask(tokens[0].shape, tokens[1].shape[1], key_padding_mask, attn_mask)
        attend = FUNCTIONS[self.attention]
        options = self._options()
        variance = None
        if return_variance:
            out, variance = attend(
                *heads, mask, is_causal=is_causal, return_variance=True, **options
            )
        else:
            out = attend(*heads, mask, is_causal=is_causal, **options)
        output = self.out_proj(out.transpose(1, 2).flatten(2))
        weights = None
        if need_weights:
            # The answer is linear in the values: that to the values e_1, …, e_S.
            span = heads[1].shape[-2]
            unit = torch.eye(span, dtype=heads[2].dtype, device=heads[2].device)
            values = unit.expand(*heads[2].shape[:-2], span, span)
            weights = attend(*heads[:2], values, mask, is_causal=is_causal, **options)
            weights = weights.mean(1) if average_attn_weights else weights
        if not is_batched:
            output = output[0]
            weights, variance = (each if each is None else each[0] for each in (weights, variance))
        elif not self.batch_first:
            output = output.transpose(0, 1)
        return (output, weights, variance) if return_variance else (output, weights)

    def _check_tokens(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        owner, axes = type(self).__name__, "(B, L, E)" if self.batch_first else "(L, B, E)"
        weight = self.out_proj.weight
        if query.ndim not in (2, 3):
            requirement = f"of shape {axes}, or without B"
            raise bad_argument("query", owner, requirement, f"shape {tuple(query.shape)}")
        place = 0 if self.batch_first else 1
        batch = query.shape[place] if query.ndim == 3 else None
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            width, got = self.widths[name], f"shape {tuple(tensor.shape)}"
            if tensor.ndim != query.ndim or tensor.shape[-1] != width:
                requirement = f"of shape {axes} as the query, with E = {width}"
                raise bad_argument(name, owner, requirement, got)
            if batch is not None and tensor.shape[place] != batch:
                raise bad_argument(name, owner, f"of as many sequences as the query, {batch}", got)
            if tensor.dtype != weight.dtype and not is_autocast(weight.device.type):
                requirement = f"of the dtype of the layer's weights, {weight.dtype}"
                advice = f"Convert the layer (layer.to({tensor.dtype})) or the tokens."
                raise bad_argument(name, owner, requirement, tensor.dtype, advice)
        if key.shape[:-1] != value.shape[:-1]:
            requirement = f"one per key, {tuple(key.shape[:-1])}"
            raise bad_argument("value", owner, requirement, f"shape {tuple(value.shape)}")

    def _options(self) -> dict[str, Any]:
        """The arguments of this member of the family."""
        options: dict[str, Any] = {}
        if self.kernel is not None:
            options["kernel"] = self.kernel
        if self.log_ridge is not None:
            ridge = torch.exp(self.log_ridge.double())
            options["ridge"] = ridge
        if self.attention == "delta_rule":
            options["step"] = self.step
        return options

    def _heads(self, tokens: tuple[Tensor, ...]) -> list[Tensor]:
        """Projected query, key and value, (B, heads, L, E/heads)."""
        if hasattr(self, "in_proj_weight"):
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = tuple(getattr(self, f"{name}_proj_weight") for name in "qkv")
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [
            nn.functional.linear(each, weight, bias)
            .unflatten(-1, (self.num_heads, self.head_dim))
            .transpose(1, 2)
            for each, weight, bias in zip(tokens, weights, biases, strict=True)
        ]

    def _mask(
        self, shape: Any, span: int, padding: Tensor | None, attn_mask: Tensor | None
    ) -> Tensor | None:
        """Both masks in one, True = may be read, (B, heads or 1, L or 1, S)."""
        owner, batch, length = type(self).__name__, shape[0], shape[1]
        mask = None
        if padding is not None:
            padding = _as_boolean(padding)
            padding = padding if padding.ndim == 2 else padding.unsqueeze(0)
            if padding.dtype != torch.bool or tuple(padding.shape) != (batch, span):
                got = f"{padding.dtype} of shape {tuple(padding.shape)}"
                raise bad_argument("key_padding_mask", owner, f"boolean, {(batch, span)}", got)
            mask = ~padding[:, None, None, :]
        if attn_mask is None:
            return mask
        if self.attention not in _WITH_BIAS:
            attn_mask = _as_boolean(attn_mask)
        full = (batch * self.num_heads, length, span)
        if tuple(attn_mask.shape) not in (full, full[1:]):
            got = f"shape {tuple(attn_mask.shape)}"
            raise bad_argument("attn_mask", owner, f"of shape {full[1:]} or {full}", got)
        if attn_mask.ndim == 3:
            attn_mask = attn_mask.unflatten(0, (batch, self.num_heads))
        if attn_mask.dtype == torch.bool:
            return ~attn_mask if mask is None else mask & ~attn_mask
        return attn_mask if mask is None else torch.where(mask, attn_mask, -torch.inf)


def _as_boolean(mask: Tensor) -> Tensor:
    """True where a mask of 0 and −∞, as PyTorch's layers make them of boolean ones, is −∞."""
    if not mask.is_floating_point():
        return mask
    blocked = mask == -torch.inf
    if may_branch(mask) and not bool((blocked | (mask == 0)).all()):
        return mask
    return blocked

"""From the arguments of scaled_dot_product_attention to contexts of keys, checked once for all."""

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from finetti.core.errors import InputError, UnsupportedError, bad_argument


class Contexts(NamedTuple):
    """Every key head is a context, read by the positions of all its query heads.

    What no query may read is cleared. ``mask`` is True where a key may be read; with one row it is
    shared by all queries. With ``period`` query t reads the keys 0…t mod period.
    """

    query: Tensor  # (..., Q, E), Q = (query heads per key head)·L
    keys: Tensor  # (..., S, E)
    values: Tensor  # (..., S, Ev)
    mask: Tensor | None  # (..., 1 or Q, S)
    bias: Tensor | None  # (..., 1 or Q, S), added to log scores
    period: int | None
    known: Tensor | None  # (..., Q): False where NaN is read
    scale: float
    lead: tuple[int, ...]  # the query's axes without the last
    dtype: torch.dtype

    @property
    def per_query(self) -> bool:
        """Whether queries have masks of their own."""
        return self.mask is not None and self.mask.shape[-2] > 1

    @property
    def key_mask(self) -> Tensor | None:
        """The mask (..., S) that all queries share."""
        return None if self.mask is None else self.mask[..., 0, :]

    def visible(self) -> Tensor | None:
        """The mask with causality in it, (..., 1 or Q, S)."""
        if self.period is None:
            return self.mask
        causal = prefix_mask(self.query, self.keys, self.period)
        return causal if self.mask is None else causal & self.mask

    def restore(self, out: Tensor) -> Tensor:
        """(..., Q, Ev) in the axes and the precision of the caller, who gets no infinity."""
        return self._marked(_narrowed(out, self.dtype)).reshape(*self.lead, out.shape[-1])

    def restore_variance(self, variance: Tensor) -> Tensor:
        """(..., Q) in the axes and precision of the caller; infinite beyond it: an error bar that
        is cut off would be a wrong one."""
        return self._marked(variance.to(self.dtype).unsqueeze(-1)).reshape(self.lead)

    def _marked(self, out: Tensor) -> Tensor:
        return out if self.known is None else torch.where(self.known[..., None], out, torch.nan)


def prefix_mask(query: Tensor, keys: Tensor, period: int) -> Tensor:
    """(Q, S): whether key s is read by query t, s ≤ t mod period (upper left, as in PyTorch)."""
    places = torch.arange(query.shape[-2], device=query.device) % max(period, 1)
    return torch.arange(keys.shape[-2], device=query.device) <= places[:, None]


def may_branch(*tensors: Tensor | None) -> bool:
    """Whether Python may look at numbers: not in a compiler, a transform or a tensor without data.

    Every check that decides between float32 and float64 is such a look.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    plain = torch.Tensor, torch.nn.Parameter
    return all(each is None or (type(each) in plain and not each.is_meta) for each in tensors)


def needs_graph(*tensors: Tensor | None) -> bool:
    """Whether autograd records what is done with the tensors."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def arrange(
    owner: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    *,
    has_bias: bool = False,
) -> Contexts:
    """Check the arguments of ``owner``; with ``has_bias`` a mask of numbers is added to scores."""
    if dropout_p:
        raise UnsupportedError(
            f"{owner} has no dropout (dropout_p = {dropout_p}): its weights are the solution of a "
            "regression, or are tested as such. Drop tokens by `attn_mask`, or outputs by "
            "torch.nn.Dropout."
        )
    dtype = _check_tensors(owner, query, key, value)
    groups = _check_shapes(owner, query, key, value, enable_gqa)
    factor = check_scale(owner, scale, query.shape[-1])
    working = torch.float32 if torch.finfo(dtype).bits < 32 else dtype
    query, key, value = query.to(working), key.to(working), value.to(working)
    *batch, length, width = query.shape
    mask, bias = _split_mask(owner, attn_mask, (*batch, length, key.shape[-2]), has_bias)
    if mask is not None and mask.shape[-2] == 1 and groups > 1 and mask.shape[-3] > 1:
        # A key mask of its own for every query head: the heads no longer share a context.
        key, value = (each.repeat_interleave(groups, -3) for each in (key, value))
        groups = 1
    mask, bias = (_grouped(each, query, groups) for each in (mask, bias))
    query = query.reshape(*key.shape[:-2], groups * length, width)
    contexts = Contexts(
        query,
        key,
        value,
        mask,
        bias,
        length if is_causal else None,
        None,
        factor,
        (*batch, length),
        dtype,
    )
    if contexts.per_query and is_causal:
        contexts = contexts._replace(mask=contexts.visible(), period=None)
    return _without_spoiled(contexts)


def check_scale(owner: str, scale: float | None, width: int) -> float:
    """The factor of query·key, 1/√E by default."""
    factor: Any = width**-0.5 if scale is None else scale
    if isinstance(factor, Tensor) or not (0 < factor < math.inf):
        advice = "A learned scale is the kernel's lengthscale or factor."
        raise bad_argument("scale", owner, "a positive number", scale, advice)
    return float(factor)


def check_ridge(owner: str, name: str, ridge: Any, keys: Tensor) -> Tensor:
    """The ridge of the contexts (..., S, E), (..., 1) in float64."""
    if not isinstance(ridge, Tensor):
        if isinstance(ridge, bool) or not isinstance(ridge, (int, float)):
            raise bad_argument(name, owner, "a positive number or tensor", repr(ridge))
        if not 0 < ridge < math.inf:
            raise bad_argument(name, owner, "positive and finite", ridge)
        return torch.full((1,), float(ridge), dtype=torch.float64, device=keys.device)
    batch = keys.shape[:-2]
    fits = ridge.ndim <= len(batch) and all(
        size in (1, wanted)
        for size, wanted in zip(reversed(ridge.shape), reversed(batch), strict=False)
    )
    if not fits:
        requirement = f"a number or broadcastable to the contexts' axes {tuple(batch)}"
        raise bad_argument(name, owner, requirement, f"shape {tuple(ridge.shape)}")
    if may_branch(ridge) and not bool(((ridge > 0) & torch.isfinite(ridge)).all()):
        raise bad_argument(name, owner, "positive and finite", ridge.detach().tolist())
    return ridge.double().to(keys.device).unsqueeze(-1)


def check_tensor(owner: str, name: str, tensor: Any) -> None:
    """Refuse what is no tensor of floating-point numbers."""
    if not isinstance(tensor, Tensor):
        got = type(tensor).__name__
        raise bad_argument(name, owner, "a PyTorch tensor", got, "Use torch.as_tensor.")
    if not tensor.is_floating_point():
        raise bad_argument(name, owner, "of a floating dtype", tensor.dtype)


def _check_tensors(owner: str, query: Tensor, key: Tensor, value: Tensor) -> torch.dtype:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_tensor(owner, name, tensor)
        if tensor.ndim < 2:
            requirement = "of shape (..., length, width)"
            raise bad_argument(name, owner, requirement, f"shape {tuple(tensor.shape)}")
        if tensor.device != query.device:
            requirement = f"on the query's device, {query.device}"
            raise bad_argument(name, owner, requirement, tensor.device)
        if tensor.dtype != query.dtype:
            requirement = f"of the query's dtype, {query.dtype}"
            raise bad_argument(name, owner, requirement, tensor.dtype)
    if query.device.type == "mps":
        raise UnsupportedError(
            f"{owner} solves in float64 where float32 is too coarse, and MPS has no float64. Move "
            "the tensors to the CPU: query.cpu(), key.cpu(), value.cpu()."
        )
    return query.dtype


def _check_shapes(owner: str, query: Tensor, key: Tensor, value: Tensor, gqa: bool) -> int:
    """How many query heads share each key head."""
    shape, keys, values = tuple(query.shape), tuple(key.shape), tuple(value.shape)
    if key.shape[-2] == 0:
        raise bad_argument("key", owner, "of at least one key", f"shape {keys}")
    if keys[-1] != shape[-1] or shape[-1] == 0:
        requirement = f"of the query's width E = {shape[-1]} ≥ 1"
        raise bad_argument("key", owner, requirement, f"shape {keys}")
    if values[:-1] != keys[:-1]:
        raise bad_argument("value", owner, f"of shape {(*keys[:-1], 'Ev')}", f"shape {values}")
    if shape[:-2] == keys[:-2]:
        return 1
    divides = gqa and min(len(shape), len(keys)) > 2 and keys[-3] and shape[-3] % keys[-3] == 0
    if not (divides and shape[:-3] == keys[:-3]):
        advice = "Key heads that several query heads read are allowed with enable_gqa=True."
        requirement = f"with the query's axes {shape[:-2]} in front"
        if gqa:
            advice = "With enable_gqa=True the number of key heads divides that of query heads."
        raise bad_argument("key", owner, requirement, f"shape {keys}", advice)
    return shape[-3] // keys[-3]


def _split_mask(
    owner: str, mask: Tensor | None, full: tuple[int, ...], has_bias: bool
) -> tuple[Tensor | None, Tensor | None]:
    """A boolean mask (..., H, L, S) with axes of size 1 where it is broadcast, and a bias."""
    if mask is None:
        return None, None
    if not isinstance(mask, Tensor):
        raise bad_argument("attn_mask", owner, "a boolean tensor", type(mask).__name__)
    shape = tuple(mask.shape)
    wide = mask[(None,) * (len(full) - mask.ndim)]
    if wide.ndim != len(full) or any(
        size not in (1, wanted) for size, wanted in zip(wide.shape, full, strict=True)
    ):
        raise bad_argument("attn_mask", owner, f"broadcastable to {full}", f"shape {shape}")
    wide = wide.expand(*wide.shape[:-1], full[-1])
    if mask.dtype == torch.bool:
        return wide, None
    if not has_bias or not mask.is_floating_point():
        raise InputError(
            f"The `attn_mask` argument of {owner} must be boolean, True where a key may be read: a "
            f"regression has no additive score. Got dtype {mask.dtype} instead. Convert it with "
            "`attn_mask == 0`."
        )
    # −∞ is a mask by another name.
    readable = wide != -torch.inf
    return readable, torch.where(readable, wide, 0)


def _grouped(mask: Tensor | None, query: Tensor, groups: int) -> Tensor | None:
    """(..., H, L, S) to (..., H/G, 1 or G·L, S)."""
    if mask is None or groups == 1:
        return mask
    if mask.shape[-3] == 1 and mask.shape[-2] == 1:
        return mask
    heads, length = query.shape[-3:-1]
    span = mask.shape[-1]
    mask = mask.expand(*mask.shape[:-3], heads, length, span)
    return mask.reshape(*mask.shape[:-3], heads // groups, groups * length, span)


def _without_spoiled(contexts: Contexts) -> Contexts:
    """Clear what no query may read, and NaN: left where it is, it would reach other queries.

    0·NaN is NaN, and so is the mean of the keys. Queries that read NaN are not ``known``.
    """
    query, keys, values, mask = contexts[:4]
    # A sum is finite only where every number is; one that overflows asks for the whole check.
    if (
        mask is None
        and may_branch(query, keys, values)
        and math.isfinite(sum(float(each.detach().sum()) for each in contexts[:3]))
    ):
        return contexts
    finite = torch.isfinite(keys).all(-1) & torch.isfinite(values).all(-1)
    asked = torch.isfinite(query).all(-1)
    readable = None if mask is None else mask.any(-2)
    if may_branch(query, keys, values, mask) and bool(asked.all()):
        spoils = not bool(finite.all() if readable is None else (finite | ~readable).all())
        if not spoils:
            if readable is None:
                return contexts
            keys, values = _cleared(keys, values, readable)
            return contexts._replace(keys=keys, values=values)
    spoiled = ~finite if readable is None else ~finite & readable
    if contexts.per_query:
        assert mask is not None
        read = (mask & spoiled[..., None, :]).any(-1)
    elif contexts.period is not None:
        last = torch.arange(query.shape[-2], device=query.device) % max(contexts.period, 1)
        read = (spoiled.cumsum(-1) > 0)[..., last.clamp_max(keys.shape[-2] - 1)]
    else:
        read = spoiled.any(-1, keepdim=True)
    known = asked & ~read
    keys, values = _cleared(keys, values, finite if readable is None else finite & readable)
    query = torch.where(asked[..., None], query, 0)
    return contexts._replace(query=query, keys=keys, values=values, known=known)


def _cleared(keys: Tensor, values: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Other keys become the mean of the kept ones, so that distances are taken from among those."""
    kept = kept[..., None]
    count = kept.sum(-2, keepdim=True).clamp_min(1)
    mean = (torch.where(kept, keys.detach(), 0) / count).sum(-2, keepdim=True)
    return torch.where(kept, keys, mean), torch.where(kept, values, 0)


def _narrowed(out: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers in ``dtype``, at its largest one where they exceed it; NaN stays NaN."""
    if out.dtype == dtype:
        return out
    largest = torch.finfo(dtype).max
    return out.clamp(-largest, largest).to(dtype)


def without_autocast(function: Any) -> Any:
    """Run ``function(query, …)`` without autocast, which would round its matrix products.

    Inside of autocast the tokens may differ in precision, and are brought to the widest one.
    """

    def run(first: Tensor, *args: Any) -> Any:
        if not isinstance(first, Tensor) or not is_autocast(first.device.type):
            return function(first, *args)
        tokens = [
            each
            for each in (first, *args[:2])
            if isinstance(each, Tensor) and each.is_floating_point()
        ]
        dtype = functools.reduce(torch.promote_types, (each.dtype for each in tokens))
        wide = [each.to(dtype) if any(each is t for t in tokens) else each for each in args]
        with torch.autocast(first.device.type, enabled=False):
            return function(first.to(dtype), *wide)

    return run


def is_autocast(device: str) -> bool:
    """Whether products on this kind of device are being rounded by autocast."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)

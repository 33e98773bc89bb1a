"""The attention family inside Hugging Face's transformers (extra ``language-models``).

A model calls its attention function with heads (B, H, L, E), key heads that are not repeated, and a
cache that is already in front of the keys. What keys a query may read, causal order, padding,
sliding windows, the unused end of a static cache, is a boolean mask (B, 1, L, S), or None where
`module.is_causal` says it all.
"""

import contextlib
import functools
import importlib.util
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from finetti.core.errors import UnsupportedError, bad_argument
from finetti.torch import kernels
from finetti.torch.layout import may_branch
from finetti.torch.modules import FUNCTIONS

PREFIX = "finetti_"
OPTIONS: dict[str, tuple[str, ...]] = {
    "cme": ("kernel", "ridge", "ridge_per_token"),
    "softmax": (),
    "kernel": ("kernel",),
    "local_linear": ("kernel", "ridge"),
    "linear": ("kernel",),
    "delta_rule": ("step", "decay", "log_decay"),
}
_NAMES = tuple(dict.fromkeys(name for each in OPTIONS.values() for name in each))
_KERNELS = (
    "RBF", "Matern", "RationalQuadratic", "Periodic",
    "Exponential", "Linear", "Polynomial", "Constant",
)  # fmt: skip
# Members that read a key mask and causal prefixes at the price of one pass.
_BY_PREFIXES = ("cme", "linear", "delta_rule")
# A mask of numbers is added to scores; the others have no scores.
_WITH_BIAS = ("softmax", "kernel")
# Arguments of a model's call that change the answer of its softmax in a way that is not built here.
_REFUSED = {
    "softcap": "bounds its scores (softcap)",
    "s_aux": "has attention sinks",
    "sinks": "has attention sinks",
    "position_bias": "adds a learned bias to its scores",
    "relative_position_bias": "adds a learned bias to its scores",
    "indices": "chooses keys by an index of its own",
    "block_indices": "chooses keys by an index of its own",
    "cache": "keeps its keys in pages (continuous batching)",
}
# Where the configurations of models keep the dropout of attention weights.
_DROPOUTS = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "attn_dropout")


class _Settings(NamedTuple):
    """What a block of `attention_options` says of a layer."""

    attention: str | None
    options: dict[str, Any]


def register() -> None:
    """Add the family to transformers: ``attn_implementation="finetti_cme"`` and its siblings.

    The names are finetti_softmax, finetti_cme, finetti_kernel, finetti_local_linear, finetti_linear
    and finetti_delta_rule, for ``from_pretrained(..., attn_implementation=...)`` and
    ``model.set_attn_implementation(...)``. Calling it again changes nothing.
    """
    if importlib.util.find_spec("transformers") is None:
        raise ImportError(
            "finetti.torch.register needs transformers, which is not installed. Install it beside "
            "this package: pip install 'finetti[language-models]'"
        )
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    for attention in FUNCTIONS:
        AttentionInterface.register(PREFIX + attention, functools.partial(_attend, attention))
        # Without a mask function of its own an implementation gets no mask, also where tokens are
        # padded.
        AttentionMaskInterface.register(PREFIX + attention, sdpa_mask)


def _attend(
    attention: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The answer (B, L, H, Ev) of one layer, in the form that transformers asks for."""
    attention, options = _options(attention, module, query.device)
    _refuse(attention, module, dropout, others)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    length = query.shape[-2]
    # One query is the newest token, which may read all keys.
    is_causal = bool(is_causal) and attention_mask is None and length > 1
    if is_causal and key.shape[-2] > length:
        # A static cache that was empty: what stands behind the queries is not written yet.
        key, value = key[..., :length, :], value[..., :length, :]
    earlier = 0
    if attention_mask is not None and attention not in _WITH_BIAS:
        reading = _read_mask(_as_boolean(attention_mask), in_order=attention in _BY_PREFIXES)
        attention_mask, is_causal, earlier = reading.mask, reading.is_causal, reading.earlier
        key, value = key[..., : reading.span, :], value[..., : reading.span, :]
        # The answers of these queries are dropped: they bring the others to their places.
        query = nn.functional.pad(query, (0, 0, earlier, 0))
    call: dict[str, Any] = {
        "is_causal": is_causal,
        "scale": scaling,
        "enable_gqa": query.shape[-3] != key.shape[-3],
    }
    collected: list[Any] | None = getattr(module, "finetti_variances", None)
    attend = FUNCTIONS[attention]
    if collected is None or attention != "cme":
        out = attend(query, key, value, attention_mask, **call, **options)
    else:
        call["return_variance"] = True
        out, variance = attend(query, key, value, attention_mask, **call, **options)
        collected.append((module, variance[..., earlier:]))
    return out[..., earlier:, :].transpose(1, 2).contiguous(), None


def _options(attention: str, module: nn.Module, device: torch.device) -> tuple[str, dict[str, Any]]:
    """The member that this layer uses, and its arguments."""
    settings: _Settings = getattr(module, "finetti_options", None) or _Settings(None, {})
    attention = attention if settings.attention is None else settings.attention
    given = getattr(getattr(module, "config", None), "finetti", None)
    options = {} if given is None else _from_config(given, device)
    # The configuration may serve several members.
    options = {name: each for name, each in options.items() if name in OPTIONS[attention]}
    options |= settings.options
    unknown = [name for name in options if name not in OPTIONS[attention]]
    if unknown:
        known = " and ".join(f"`{name}`" for name in OPTIONS[attention]) or "none"
        raise UnsupportedError(
            f"{PREFIX}{attention} has no option `{unknown[0]}`; it has {known}. Name the layers "
            "that an option is for: attention_options(model, layers=[...], ...)."
        )
    return attention, options


def _from_config(given: Any, device: torch.device) -> dict[str, Any]:
    """Options from ``config.finetti``, which a file holds: numbers, lists, kernels by name."""
    if not isinstance(given, dict):
        advice = 'As {"ridge": 0.1, "kernel": {"name": "RBF", "lengthscale": 2.0}}.'
        raise bad_argument("finetti", "the configuration", "a dict of options", given, advice)
    for name in given:
        if name not in _NAMES:
            raise bad_argument("finetti", "the configuration", f"of {_NAMES}", f"`{name}`")
    options: dict[str, Any] = {name: _as_number(each) for name, each in given.items()}
    if isinstance(options.get("kernel"), dict):
        arguments: dict[str, Any] = dict(options["kernel"])
        name = arguments.pop("name", None)
        if name not in _KERNELS:
            raise bad_argument(
                "kernel", "config.finetti", f'named by "name", one of {_KERNELS}', name
            )
        for argument, each in arguments.items():
            number = _as_number(each)
            arguments[argument] = number[:, None, None] if isinstance(number, Tensor) else number
        options["kernel"] = getattr(kernels, name)(**arguments).requires_grad_(False).to(device)
    return options


def _as_number(given: Any) -> Any:
    """A list, which has one number per key head, as a tensor."""
    return torch.tensor(given, dtype=torch.float64) if isinstance(given, list) else given


def _refuse(attention: str, module: nn.Module, dropout: float, others: dict[str, Any]) -> None:
    owner = type(module).__name__
    if dropout:
        config = getattr(module, "config", None)
        names = [name for name in _DROPOUTS if getattr(config, name, 0)] or [_DROPOUTS[0]]
        raise UnsupportedError(
            f"{PREFIX}{attention} has no dropout of attention weights, and {owner} asks for "
            f"{dropout:g} in training. Load the model with {names[0]}=0.0; other dropouts stay."
        )
    for name, meaning in _REFUSED.items():
        if others.get(name) is not None:
            raise UnsupportedError(
                f"{PREFIX}{attention} cannot replace the attention of {owner}, which {meaning}. "
                "Use attn_implementation='eager' for this model."
            )
    if others.get("output_attentions"):
        raise UnsupportedError(
            f"{PREFIX}{attention} returns no attention weights (output_attentions=True). Use "
            "attn_implementation='eager' for weights, or finetti.torch.variances for error bars."
        )


def _as_boolean(mask: Tensor) -> Tensor:
    """True where a key may be read: a mask of 0 and of −∞ or the lowest number, as models make."""
    if not mask.is_floating_point():
        return mask
    blocked = mask <= torch.finfo(mask.dtype).min
    if may_branch(mask) and not bool((blocked | (mask == 0)).all()):
        return mask  # with scores to add: refused by name where it arrives
    return ~blocked


class _Reading(NamedTuple):
    """A mask in the form that costs least, of the first ``span`` keys."""

    mask: Tensor | None
    is_causal: bool
    span: int
    earlier: int  # queries to put in front, so that query t reads the keys 0…t


def _read_mask(mask: Tensor, in_order: bool) -> _Reading:
    """Find a key mask, or causal order with a key mask, in (B, H or 1, L, S).

    Those cost one factorization, where a mask that differs between queries costs one per query. A
    compiler may not look.
    """
    span = mask.shape[-1]
    if not may_branch(mask) or mask.dtype != torch.bool:
        return _Reading(mask, False, span, 0)
    length = mask.shape[-2]
    readable = mask.flatten(0, -2).any(0).nonzero()
    # Keys that nobody reads at the end are the unused part of a static cache.
    span = int(readable[-1]) + 1 if len(readable) else 1
    mask = mask[..., :span]
    key_mask = mask.any(-2, keepdim=True)
    if not in_order or length == 1:
        return _Reading(mask, False, span, 0)
    if bool((mask == key_mask).all()):
        return _Reading(key_mask, False, span, 0)
    keys, queries = torch.arange(span, device=mask.device), torch.arange(length, device=mask.device)
    last = torch.where(mask, keys, -1).amax(-1)
    earlier = int((last - queries)[last >= 0].max())
    causal = keys <= queries[:, None] + earlier
    if earlier < 0 or not bool((mask == (causal & key_mask)).all()):
        return _Reading(mask, False, span, 0)
    return _Reading(key_mask, True, span, earlier)


@contextlib.contextmanager
def attention_options(
    model: nn.Module,
    *,
    layers: Iterable[int] | None = None,
    attention: str | None = None,
    **options: Any,
) -> Iterator[None]:
    """Inside the block the attention of ``model``, or of some of its layers, has these options.

    Tensors and kernels keep their gradients: this is how to learn ridges and lengthscales inside a
    model. Blocks may stand inside each other; the inner one counts. With gradient checkpointing the
    backward pass belongs into the block, since it runs the layers again.

    Args:
        model: of transformers with ``attn_implementation="finetti_…"``, or a module around it.
        layers: the numbers of layers, from 0; all by default.
        attention: use this member in these layers instead: "cme", "softmax", "kernel",
            "local_linear", "linear" or "delta_rule".
        **options: ``kernel``, ``ridge``, ``ridge_per_token``, ``step``, ``decay`` or
            ``log_decay``, as the functions take them; tensors (key heads,) are one per head.
    """
    owner = "attention_options"
    if attention is not None and attention not in FUNCTIONS:
        raise bad_argument("attention", owner, f"one of {tuple(FUNCTIONS)}", repr(attention))
    for name in options:
        if name not in _NAMES:
            raise bad_argument("options", owner, f"some of {_NAMES}", f"`{name}`")
    _check_implementation(model, owner)
    chosen = list(_in_layers(model, layers, owner))
    before = [(module, getattr(module, "finetti_options", None)) for module in chosen]
    for module, outer in before:
        settings = _Settings(attention, options)
        if outer is not None and attention in (None, outer.attention):
            settings = _Settings(outer.attention, outer.options | options)
        module.finetti_options = settings  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        for module, outer in before:
            if outer is None:
                del module.finetti_options
            else:
                module.finetti_options = outer  # pyright: ignore[reportArgumentType]


def _check_implementation(model: nn.Module, owner: str) -> None:
    """Refuse a model that calls none of our functions."""
    configs = [getattr(each, "config", None) for each in model.modules()]
    found = {str(getattr(each, "_attn_implementation", "")) for each in configs} - {""}
    if not any(name.startswith(PREFIX) for name in found):
        what = " and ".join(sorted(found)) or "no attention of transformers"
        raise bad_argument(
            "model",
            owner,
            "a model with attn_implementation='finetti_…'",
            f"a {type(model).__name__} with {what}",
            "Call finetti.torch.register() and model.set_attn_implementation('finetti_softmax').",
        )


def _in_layers(model: nn.Module, layers: Iterable[int] | None, owner: str) -> Iterator[nn.Module]:
    """The modules of these layers, which have a number of their own or one in their names."""
    wanted = None if layers is None else set(layers)
    present = set()
    for name, module in model.named_modules():
        numbers = [int(part) for part in name.split(".") if part.isdigit()]
        number = getattr(module, "layer_idx", numbers[0] if numbers else None)
        if number is not None:
            present.add(number)
        if wanted is None or number in wanted:
            yield module
    if wanted is not None and not wanted <= present:
        requirement = f"numbers of layers, 0 to {max(present)}" if present else "None"
        raise bad_argument("layers", owner, requirement, sorted(wanted - present))


def variances(model: nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Tensor]]:
    """``model(*args, **kwargs)`` and the error bars of all its heads in this call.

    Returns the model's output and, by the name of the attention module, the posterior variance
    (B, heads, L) that each coordinate of a head's answer has, in units of the kernel: K(q, q) where
    a query may read nothing. Only layers with CME attention have one. A module that is called again
    in the same call has a number behind its name.
    """
    collected: list[tuple[nn.Module, Tensor]] = []
    modules = list(model.modules())
    for module in modules:
        module.finetti_variances = collected  # pyright: ignore[reportArgumentType]
    try:
        output = model(*args, **kwargs)
    finally:
        for module in modules:
            del module.finetti_variances
    if not collected:
        raise UnsupportedError(
            "variances found no error bar: only CME attention has one. Use "
            "model.set_attn_implementation('finetti_cme'), or attention_options(model, "
            "attention='cme') for some layers, and a model that is not compiled."
        )
    names = {id(module): name for name, module in model.named_modules()}
    found: dict[str, Tensor] = {}
    for module, variance in collected:
        name, again = names[id(module)], 1
        while name in found:
            again += 1
            name = f"{names[id(module)]} ({again})"
        found[name] = variance
    return output, found

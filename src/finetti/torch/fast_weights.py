"""Attention by a matrix that is written pair by pair: linear attention and the delta rule."""

import math
from typing import Any

import torch
from torch import Tensor

from finetti.core.errors import InputError, bad_argument
from finetti.torch.chunks import MIN_LOG_DECAY, Rule, last_state, read_prefixes
from finetti.torch.kernel import Kernel, Number, check_parameters
from finetti.torch.kernels import Linear, check_kernel
from finetti.torch.layout import Contexts, arrange, may_branch, without_autocast

# Numbers of the keys that masks per query have in work at once.
MAX_NUMBERS = 2**22
LINEAR = Linear()
# Between this length and its inverse the squares of a key's numbers are numbers of float32.
_SHORT = 1e-15


def _read(rule: Rule, contexts: Contexts, asked: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """S φ(q), for all keys or for those of each prefix."""
    if contexts.period is None:
        return asked @ last_state(rule, keys, values)
    period = contexts.period
    groups = asked.unflatten(-2, (-1, period)) if period else asked.unsqueeze(-3)
    return read_prefixes(rule, groups, keys, values).flatten(-3, -2)


@without_autocast
def _linear(
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
    owner = "linear_attention"
    contexts = arrange(owner, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    kernel = LINEAR if kernel is None else check_kernel(kernel, owner)
    check_parameters(kernel, contexts.keys)
    asked, keys = (kernel.features(each, scale=contexts.scale) for each in contexts[:2])
    if contexts.per_query:
        assert contexts.mask is not None
        weights = torch.where(contexts.mask, asked @ keys.mT, 0.0)
        return contexts.restore(weights @ contexts.values)
    if contexts.key_mask is not None:
        keys = torch.where(contexts.key_mask.unsqueeze(-1), keys, 0.0)
    return contexts.restore(_read(Rule(), contexts, asked, keys, contexts.values))


def linear_attention(
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
    """Σ_i K(k_i, q) v_i with a kernel of finite features φ, `Linear` by default; not normalized.

    One gradient step on Σ½‖v_i − Sφ(k_i)‖² from S = 0. Work is linear in L, in the precision of the
    data or float32. The arguments are those of `cme_attention`.

    >>> import torch
    >>> keys, values = torch.eye(2), torch.tensor([[1.0], [3.0]])
    >>> linear_attention(torch.tensor([[1.0, 2.0]]), keys, values, scale=1.0)
    tensor([[7.]])

    Reference: Katharopoulos et al., arXiv 2006.16236.
    """
    return _linear(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, kernel)


@without_autocast
def _delta(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    enable_gqa: bool,
    step: Number,
    decay: Number | None,
    log_decay: Number | None,
) -> Tensor:
    contexts = arrange(
        "delta_rule_attention",
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        None,
        enable_gqa,
    )
    # A mask per head sets key heads apart that share their gates.
    repeats = contexts.keys.shape[-3] // key.shape[-3] if key.ndim > 2 else 1
    rule = make_rule(contexts.keys, step, decay, log_decay, repeats)
    keys, values = unit_pairs(contexts.keys, contexts.values)
    if not contexts.per_query:
        rule, keys = _counted(rule, keys, contexts.key_mask)
        return contexts.restore(_read(rule, contexts, contexts.query, keys, values))
    # Every query has a state of its own; the queries stand in front of all axes.
    assert contexts.mask is not None
    *batch, queries, _ = contexts.query.shape
    asked = contexts.query.movedim(-2, 0).unsqueeze(-2)
    masks = contexts.mask.expand(*batch, *contexts.mask.shape[-2:]).movedim(-2, 0)
    together, parts = max(1, MAX_NUMBERS // max(1, keys.numel())), []
    for start in range(0, queries, together):
        rows = slice(start, start + together)
        one, written = _counted(rule, keys, masks[rows])
        wide = values.expand(*written.shape[:-1], values.shape[-1])
        parts.append(asked[rows] @ last_state(one, written, wide))
    return contexts.restore(torch.cat(parts).squeeze(-2).movedim(0, -2))


def delta_rule_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    step: Number = 1.0,
    decay: Number | None = None,
    log_decay: Number | None = None,
) -> Tensor:
    """Online gradient descent on ½‖v − Sk‖², one normalized step for each key in turn.

    S ← Sα_i, then S ← S − β_i(Sk_i − v_i)k_iᵀ with β_i = step_i/‖k_i‖²; the answer is S q.

    With keys of length 1 this is DeltaNet; with a ``decay`` per token and head Gated DeltaNet; with
    a ``decay`` per channel too Kimi's delta attention. ``scale``, a common factor of queries and
    keys, does not matter. A key of zeros changes nothing but the decay, a masked one not even that.
    Computed in chunks, in the precision of the data or float32; a key mask and ``is_causal`` cost
    nothing, any other mask means one state per query. The other arguments are those of
    `cme_attention`.

    Args:
        step: in [0, 2], one number or a tensor that broadcasts against (..., S), per key head.
        decay: α in [0, 1]: a number, a tensor that broadcasts against (..., S), or one per channel
            with as many axes as ``key``, (..., S, E).
        log_decay: log α ≤ 0 instead, as networks compute it.

    >>> import torch
    >>> keys, values = torch.tensor([[1.0], [1.0]]), torch.tensor([[2.0], [4.0]])
    >>> delta_rule_attention(torch.ones(1, 1), keys, values, step=0.5)   # 0 → 1 → 2.5
    tensor([[2.5000]])

    Reference: Schlag et al., arXiv 2102.11174; Yang et al., arXiv 2412.06464; arXiv 2510.26692.
    """
    if scale is not None and not scale > 0:
        raise bad_argument("scale", "delta_rule_attention", "a positive number", scale)
    return _delta(
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        enable_gqa,
        step,
        decay,
        log_decay,
    )


def unit_pairs(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """k/‖k‖ and v/‖k‖, in whose terms β is the step; zeros for a key of zeros."""
    if may_branch(keys):
        norms = torch.linalg.vector_norm(keys, dim=-1, keepdim=True)
        if bool(((norms > _SHORT) & (norms < 1 / _SHORT)).all()):
            return keys / norms, values / norms
    largest = keys.detach().abs().amax(-1, keepdim=True)
    present = largest > 0
    unit = torch.where(present, largest, 1.0)  # squares of small numbers would vanish
    squares = (keys / unit).square().sum(-1, keepdim=True)
    norms = unit * torch.where(present, squares, 1.0).sqrt()
    return keys / norms, torch.where(present, values / norms, 0.0)


def make_rule(
    keys: Tensor,
    step: Number,
    decay: Number | None,
    log_decay: Number | None,
    repeats: int = 1,
) -> Rule:
    """The gates, checked, one per key of (..., S, E); each of a head serves ``repeats`` of keys."""
    owner = "delta_rule_attention"
    if decay is not None and log_decay is not None:
        raise InputError(f"{owner} takes `decay` or `log_decay`, not both.")
    rate = _gate(owner, "step", step, keys, (0.0, 2.0), repeats).to(keys.dtype)
    if decay is None and log_decay is None:
        return Rule(rate)
    if log_decay is None:
        assert decay is not None
        alpha = _gate(owner, "decay", decay, keys, (0.0, 1.0), repeats).double()
        return Rule(rate, torch.log(alpha.clamp_min(math.exp(MIN_LOG_DECAY))))
    logs = _gate(owner, "log_decay", log_decay, keys, (-math.inf, 0.0), repeats).double()
    return Rule(rate, logs.clamp_min(MIN_LOG_DECAY))


def _gate(
    owner: str,
    name: str,
    gate: Number,
    keys: Tensor,
    interval: tuple[float, float],
    repeats: int,
) -> Tensor:
    """A gate as (..., S), or (..., S, E) where it is one per channel."""
    wanted = tuple(keys.shape[:-1])
    given: Any = gate
    if not isinstance(given, Tensor):
        given = torch.tensor(float(gate), dtype=torch.float64, device=keys.device)
    elif given.ndim == keys.ndim and name != "step":
        wanted = tuple(keys.shape)
    heads = -3 if len(wanted) == keys.ndim else -2
    if repeats > 1 and given.ndim >= -heads and given.shape[heads] * repeats == wanted[heads]:
        given = given.repeat_interleave(repeats, heads)
    if given.ndim > len(wanted) or any(
        size not in (1, full)
        for size, full in zip(reversed(given.shape), reversed(wanted), strict=False)
    ):
        requirement = f"a number or broadcastable to {wanted}"
        raise bad_argument(name, owner, requirement, f"shape {tuple(given.shape)}")
    low, high = interval
    if may_branch(given) and not bool(((given >= low) & (given <= high)).all()):
        raise bad_argument(name, owner, f"between {low:g} and {high:g}", given.detach().tolist())
    return given.expand(wanted)


def _counted(rule: Rule, keys: Tensor, mask: Tensor | None) -> tuple[Rule, Tensor]:
    """Keys of zeros, and no decay, where a key does not count; ``mask`` is (..., S)."""
    if mask is None:
        return rule, keys
    keys = torch.where(mask.unsqueeze(-1), keys, 0.0)
    if rule.log_decay is None:
        return rule, keys
    wide = mask.unsqueeze(-1) if rule.per_channel else mask
    assert rule.step is not None
    # Both gates get the axes of the mask: their numbers of axes say whether channels differ.
    step = rule.step.expand(torch.broadcast_shapes(rule.step.shape, mask.shape))
    return Rule(step, torch.where(wide, rule.log_decay, 0.0)), keys

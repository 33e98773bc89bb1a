"""CME attention in float32 where float32 will do, for the answer and for its gradient.

The kernel's entries are good to a few units of 2⁻²⁴ (distances are taken in float64). Rounding them
moves each row of the system by about 2⁻²⁴‖α‖₂K(k, k), α = (K + λI)⁻¹V, as rounding the keys does,
and the answer by that times the query's weights, ‖w‖₂ ≤ ½√(K(q, q)/λ). Where this is small against
the values, and some rows evaluated in float64 agree, the answer stands; elsewhere float64 answers.

Gradients ask for more: that of the values is γ = (K + λI)⁻¹K(K, Q)ȳ itself, and rounding moves it
by cond·2⁻²⁴. But K + λI ⪰ λI, so that ‖R‖₂/λ bounds the error of any solution with the residual R.
Where γ alone is not good enough, one step of refinement (residual in float64, correction by the
float32 factor) may make it so; otherwise float64 gives the gradient. The limits are those of
`finetti.attention.cme.mixed_precision`, or tighter.

The gradients of the ridge, −γᵀα, and of a kernel's parameter, ȳᵀK′(Q, K)α − γᵀK′(K, K)α, are small
differences of large sums, a thousandth of them and less: float32 loses them even where α and γ are
exact, in rounding γαᵀ. Where one of them is wanted, nothing is solved in float32.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from finetti.torch.kernel import Kernel
from finetti.torch.layout import Contexts, may_branch, needs_graph
from finetti.torch.solve import at_least_floor, factor_once, solve_posdef

# Below this length float64 costs next to nothing.
MIN_KEYS = 256
# Estimated rounding of an answer, relative to the largest value, up to which float32 answers.
MAX_ROUNDING = 1.5e-5
# What the rows that are checked in float64 may do to an answer, relative to the largest value.
CHECK_RTOL = 5e-5
# Rows checked: half of them the farthest from the center.
CHECKED_ROWS = 32
# Bound on the relative error of α and of γ, in the 2-norm, up to which they serve a gradient: of
# the largest of L entries it is up to √L times as much.
GRADIENT_RTOL = 3e-5
# Relative size of a correction of γ up to which what it leaves, about its square, is small.
MAX_CORRECTION = 5e-3
_ROUNDOFF = 2.0**-24


def can_be_checked(kernel: Kernel, ridge: Tensor, contexts: Contexts) -> bool:
    """Whether a call may be answered in float32: long, the mean of a kernel of bounded growth, and
    neither the kernel nor the ridge is being learned."""
    query, keys, values, mask = contexts[:4]
    return (
        keys.dtype == torch.float32
        and keys.shape[-2] >= MIN_KEYS
        and min(query.numel(), values.numel()) > 0
        and contexts.period is None
        and not kernel.grows
        and may_branch(query, keys, values, mask, ridge, *kernel.parameters())
        and not needs_graph(ridge, *kernel.parameters())
    )


def answer_checked(kernel: Kernel, ridge: Tensor, contexts: Contexts) -> Tensor:
    """Vᵀ(K + λI)⁻¹K(K, q) of float32 data, (..., Q, Ev); ``ridge`` is (..., 1)."""
    query, keys, values = contexts[:3]
    mask, scale = contexts.key_mask, contexts.scale
    diagonal = kernel.diagonal(keys.double(), scale=scale)
    noise = at_least_floor(ridge.expand_as(diagonal), diagonal, keys.shape[-1])
    if mask is not None:
        noise = torch.where(mask, noise, 1.0)
    call = Call(kernel, scale, mask, noise, diagonal.amax(-1, keepdim=True))
    return _CheckedMean.apply(call, query, keys, values)


class Call(NamedTuple):
    """What is not differentiated: the kernel, scale, mask, and the noise of each key."""

    kernel: Kernel
    scale: float
    mask: Tensor | None  # (..., S)
    noise: Tensor  # (..., S)
    largest: Tensor  # (..., 1): max K(k, k), in float64

    def masked(self, gram: Tensor) -> Tensor:
        """K(K, K) with zeros where a key is masked."""
        if self.mask is None:
            return gram
        return torch.where(self.mask[..., :, None] & self.mask[..., None, :], gram, 0.0)

    def kept(self, rows: Tensor) -> Tensor:
        """The rows (..., S, d), 0 where they are masked."""
        return rows if self.mask is None else torch.where(self.mask[..., None], rows, 0.0)

    def mean64(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The answer in float64; differentiable to any order."""
        query, keys, values = query.double(), keys.double(), values.double()
        among = self.masked(self.kernel(keys, scale=self.scale))
        reading = self.kernel(query, keys, scale=self.scale)
        return reading @ solve_posdef(among, self.noise, values)


class _Fast(NamedTuple):
    """What float32 found, for the gradient."""

    query: Tensor  # leaves of the graph of the grams
    keys: Tensor
    grams: Tensor  # (..., S + Q, S): K(K, K) before the mask, above K(Q, K)
    among: Tensor  # (..., S, S): K(K, K), masked, without a graph
    factor: Tensor
    alpha: Tensor  # (..., S, Ev)

    @property
    def reading(self) -> Tensor:
        """K(Q, K), (..., Q, S), without a graph."""
        return self.grams.detach()[..., self.among.shape[-1] :, :]


class _CheckedMean(Function):
    """The mean; its inputs are (query, keys, values)."""

    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Tensor) -> Tensor:
        ctx.call, ctx.fast = call, None
        ctx.save_for_backward(*inputs)
        query, keys, values = inputs
        asked, read = (
            each.detach().requires_grad_(need)
            for each, need in zip((query, keys), ctx.needs_input_grad[1:3], strict=True)
        )
        # The kernel is evaluated once for all that follows, its own gradient included.
        with torch.set_grad_enabled(asked.requires_grad or read.requires_grad):
            grams = call.kernel(torch.cat([read, asked], -2), read, scale=call.scale)
        among = call.masked(grams.detach()[..., : keys.shape[-2], :])
        factor, info = factor_once(among, call.noise.float())
        if not bool(info.any()):
            unit = _unit_of_columns(values)
            alpha = torch.cholesky_solve(values / unit, factor)
            if _is_accepted(call, inputs, unit, alpha):
                ctx.fast = _Fast(asked, read, grams, among, factor, unit * alpha)
                return ctx.fast.reading @ ctx.fast.alpha
        return call.mean64(*inputs).float()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs = ctx.saved_tensors
        if ctx.fast is not None and not torch.is_grad_enabled():
            with torch.autocast(cotangent.device.type, enabled=False):
                found = _gradients(ctx.call, inputs, ctx.fast, cotangent)
            if found is not None:
                return None, *found
        needed = ctx.needs_input_grad[1:]
        # Gradients of gradients: through the inputs themselves. Else through copies.
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad(), torch.autocast(cotangent.device.type, enabled=False):
            if not create_graph:
                inputs = [
                    each.detach().requires_grad_(need)
                    for each, need in zip(inputs, needed, strict=True)
                ]
            mean = ctx.call.mean64(*inputs).float()
            wanted = [each for each, need in zip(inputs, needed, strict=True) if need]
            found = torch.autograd.grad(
                mean, wanted, cotangent, create_graph=create_graph, materialize_grads=True
            )
        rest = iter(found)
        return None, *(next(rest) if need else None for need in needed)


def _unit_of_columns(right: Tensor) -> Tensor:
    """The largest number of each column: squares of small and large numbers leave float32."""
    size = right.abs().amax(-2, keepdim=True)
    return torch.where(size > 0, size, 1.0)


def _in_units(factor: Tensor, right: Tensor) -> Tensor:
    """(K + Λ)⁻¹B, in units of each column."""
    unit = _unit_of_columns(right)
    return unit * torch.cholesky_solve(right / unit, factor)


def _is_accepted(call: Call, inputs: tuple[Tensor, ...], unit: Tensor, alpha: Tensor) -> bool:
    """Whether the estimated rounding is small, and some rows of (K + Λ)α = V hold in float64.

    Values and ``alpha`` are in units of the values' columns.
    """
    query, keys, values = inputs
    kernel, scale, mask, noise, of_keys = call
    of_query = kernel.diagonal(query, scale=scale).amax(-1, keepdim=True)
    biggest = torch.maximum(of_keys, of_query.double())
    weight = (0.5 * (biggest / noise.amin(-1, keepdim=True)).sqrt()).clamp_min(1.0)
    size = weight * (of_keys * biggest).sqrt()
    # NaN, from a solve that failed, is not less than anything.
    if not bool((_ROUNDOFF * size * alpha.square().sum(-2).sqrt() <= MAX_ROUNDING).all()):
        return False
    length = keys.shape[-2]
    distances = (keys - keys.mean(-2, keepdim=True)).abs().amax(-1)
    if mask is not None:
        distances = torch.where(mask, distances, -1.0)
    count = min(CHECKED_ROWS // 2, length)
    spread = torch.arange(count, device=keys.device) * length // count
    rows = torch.cat([distances.topk(count, -1)[1], spread.expand(*keys.shape[:-2], count)], -1)
    table = torch.cat([keys, values / unit, alpha, noise.float().unsqueeze(-1)], -1)
    table = table.gather(-2, rows.unsqueeze(-1).expand(*rows.shape, table.shape[-1])).double()
    widths = keys.shape[-1], values.shape[-1], values.shape[-1], 1
    key, value, found, ridge = table.split(widths, -1)
    missed = value - kernel(key, keys.double(), scale=scale) @ alpha.double() - ridge * found
    if mask is not None:
        counts = mask.expand(*rows.shape[:-1], length).gather(-1, rows)
        missed = torch.where(counts.unsqueeze(-1), missed, 0.0)
    return bool((weight * missed.abs().amax(-2) <= CHECK_RTOL).all())


def _gradients(call: Call, inputs: Any, fast: _Fast, cotangent: Tensor) -> Any:
    """The cotangents of all inputs, or None where float32 cannot give them."""
    query, keys, values = inputs
    noise, alpha = call.noise, fast.alpha
    noise32 = noise.float().unsqueeze(-1)
    right = call.kept(fast.reading.mT @ cotangent)
    gamma = _in_units(fast.factor, right)
    # Whether ‖R‖₂/λ, which bounds the error of a column x, is small, by what (K + Λ)x misses.
    both, wanted = torch.cat([alpha, gamma], -1), torch.cat([values, right], -1)
    unit = _unit_of_columns(both)
    missed = (wanted - (fast.among @ both + noise32 * both)) / unit
    size = (both / unit).square().sum(-2).sqrt()
    error = missed.square().sum(-2).sqrt() / noise32.amin(-2)
    is_close = error <= GRADIENT_RTOL * size
    if not bool(is_close[..., : values.shape[-1]].all()):
        return None
    if not bool(is_close.all()):
        # Where K(K, Q)ȳ is large and smooth, float32 cannot even hold it: its residual, summed in
        # float64, is small again.
        with torch.no_grad():
            exact, asked = keys.double(), query.double()
            grams = call.kernel(exact, torch.cat([exact, asked], -2), scale=call.scale)
            image = grams @ torch.cat([-gamma, cotangent], -2).double()
        missed = call.kept(image) - noise.unsqueeze(-1) * gamma
        correction = _in_units(fast.factor, missed.float())
        if not bool((_length(correction) <= MAX_CORRECTION * _length(gamma)).all()):
            return None
        gamma = gamma + correction
    of_query, of_keys = None, None
    needed = [leaf for leaf in (fast.query, fast.keys) if leaf.requires_grad]
    if needed:
        # d(Aα) = 0 says Ā = −γαᵀ.
        of_grams = torch.cat([-gamma, cotangent], -2) @ alpha.mT
        given = torch.autograd.grad(
            fast.grams, needed, of_grams, retain_graph=True, materialize_grads=True
        )
        of_leaves = iter(given)
        of_query = next(of_leaves) if fast.query.requires_grad else None
        of_keys = next(of_leaves) if fast.keys.requires_grad else None
    return of_query, of_keys, gamma


def _length(columns: Tensor) -> Tensor:
    """‖·‖ of each context's numbers, however large they are."""
    size = columns.abs().amax((-2, -1), keepdim=True)
    unit = torch.where(size > 0, size, 1.0)
    return (size * (columns / unit).square().sum((-2, -1), keepdim=True).sqrt())[..., 0]

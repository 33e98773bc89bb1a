"""CME attention in float32 where float32 will do, for the answer and for its gradient.

The kernel's entries are good to a few units of 2⁻²⁴ (distances are taken in float64). Rounding them
moves each row of the system by about 2⁻²⁴‖α‖₂K(k, k), α = (K + λI)⁻¹V, as rounding the keys does,
and the answer by that times the query's weights, ‖w‖₂ ≤ ½√(K(q, q)/λ). Where this is small against
the values, and some rows evaluated in float64 agree, the answer stands; elsewhere float64 answers.

Gradients ask for more: that of the values is γ = (K + λI)⁻¹K(K, Q)ȳ itself, and rounding moves it
by cond·2⁻²⁴. But K + λI ⪰ λI, so that ‖R‖₂/λ bounds the error of any solution with the residual R.
Where γ alone is not good enough, one step of refinement (residual in float64, correction by the
float32 factor) may make it so; otherwise float64 gives the gradient. The limits are those of
`finetti.attention.cme.checked`, or tighter.

The gradients of the ridge, −γᵀα, and of a kernel's parameter, ȳᵀK′(Q, K)α − γᵀK′(K, K)α, are small
differences of large sums, a thousandth of them and less: float32 loses them even where α and γ are
exact, in rounding γαᵀ. Where one of them is wanted, nothing is solved in float32.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from finetti.torch.kernels import Kernel
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
    return _CheckedMean.apply(Call(kernel, scale, mask, noise), query, keys, values)


class Call(NamedTuple):
    """What is not differentiated: the kernel, scale, mask, and the noise of each key."""

    kernel: Kernel
    scale: float
    mask: Tensor | None  # (..., S)
    noise: Tensor  # (..., S), in float64

    def gram(self, xs: Tensor, ys: Tensor | None = None) -> Tensor:
        """K(x_i, y_j), masked among the keys themselves."""
        found = self.kernel(xs, ys, scale=self.scale)
        if self.mask is None or ys is not None:
            return found
        return torch.where(self.mask[..., :, None] & self.mask[..., None, :], found, 0.0)

    def kept(self, rows: Tensor) -> Tensor:
        """The rows (..., S, d), 0 where they are masked."""
        return rows if self.mask is None else torch.where(self.mask[..., None], rows, 0.0)

    def mean64(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The answer in float64; differentiable to any order."""
        query, keys, values = query.double(), keys.double(), values.double()
        return self.gram(query, keys) @ solve_posdef(self.gram(keys), self.noise, values)


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
            among, reading = call.gram(read), call.gram(asked, read)
        factor, info = factor_once(among.detach(), call.noise.float())
        if not bool(info.any()):
            alpha = _in_units(factor, values)
            if _is_accepted(call, among.detach(), inputs, alpha):
                ctx.fast = (asked, read), among, reading, factor, alpha
                return reading.detach() @ alpha
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


def _in_units(factor: Tensor, right: Tensor) -> Tensor:
    """(K + Λ)⁻¹B, in units of each column: squares of small and large numbers leave float32."""
    size = right.abs().amax(-2, keepdim=True)
    size = torch.where(size > 0, size, 1.0)
    found = (right / size).expand(*factor.shape[:-2], *right.shape[-2:])
    return size * torch.cholesky_solve(found, factor)


def _is_accepted(call: Call, among: Tensor, inputs: tuple[Tensor, ...], alpha: Tensor) -> bool:
    """Whether the estimated rounding is small, and some rows of (K + Λ)α = V hold in float64."""
    query, keys, values = inputs
    kernel, scale, mask, noise = call
    of_keys = among.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
    of_query = kernel.diagonal(query, scale=scale).amax(-1, keepdim=True)
    biggest = torch.maximum(of_keys, of_query)
    weight = (0.5 * (biggest / noise.amin(-1, keepdim=True).float()).sqrt()).clamp_min(1.0)
    largest = values.abs().amax(-2)
    relative = alpha / torch.where(largest > 0, largest, 1.0).unsqueeze(-2)
    size = weight * of_keys.sqrt() * biggest.sqrt()
    # NaN, from a solve that failed, is not less than anything.
    little = _ROUNDOFF * size * relative.square().sum(-2).sqrt() <= MAX_ROUNDING
    if not bool(little.all()):
        return False
    length = keys.shape[-2]
    distances = (keys - keys.mean(-2, keepdim=True)).abs().amax(-1)
    if mask is not None:
        distances = torch.where(mask, distances, -1.0)
    count = min(CHECKED_ROWS // 2, length)
    spread = torch.arange(count, device=keys.device) * length // count
    rows = torch.cat([distances.topk(count, -1)[1], spread.expand(*keys.shape[:-2], count)], -1)

    def picked(tensor: Tensor) -> Tensor:
        batch = torch.broadcast_shapes(tensor.shape[:-2], rows.shape[:-1])
        index = rows.unsqueeze(-1).expand(*batch, rows.shape[-1], tensor.shape[-1])
        return tensor.expand(*batch, *tensor.shape[-2:]).gather(-2, index).double()

    product = call.gram(picked(keys), keys.double()) @ alpha.double()
    missed = picked(values) - (product + picked(noise.unsqueeze(-1)) * picked(alpha))
    if mask is not None:
        counts = mask.expand(*rows.shape[:-1], length).gather(-1, rows)
        missed = torch.where(counts.unsqueeze(-1), missed, 0.0)
    agree = weight * missed.abs().amax(-2).float() <= CHECK_RTOL * largest
    return bool(agree.all())


def _gradients(call: Call, inputs: Any, fast: Any, cotangent: Tensor) -> Any:
    """The cotangents of all inputs, or None where float32 cannot give them."""
    query, keys, values = inputs
    leaves, among, reading, factor, alpha = fast
    noise = call.noise
    gram, noise32 = among.detach(), noise.float()
    right = call.kept(reading.detach().mT @ cotangent)
    gamma = _in_units(factor, right)
    lowest = noise32.amin(-1, keepdim=True)

    def is_close(solution: Tensor, wanted: Tensor) -> bool:
        """Whether ‖R‖₂/λ, which bounds the error, is small, by what (K + Λ)x misses."""
        missed = wanted - (gram @ solution + noise32.unsqueeze(-1) * solution)
        size = solution.abs().amax(-2, keepdim=True)
        unit = torch.where(size > 0, size, 1.0)
        error = (missed / unit).square().sum(-2).sqrt() / lowest
        return bool((error <= GRADIENT_RTOL * (solution / unit).square().sum(-2).sqrt()).all())

    if not is_close(alpha, values):
        return None
    if not is_close(gamma, right):
        # Where K(K, Q)ȳ is large and smooth, float32 cannot even hold it: its residual, summed in
        # float64, is small again.
        with torch.no_grad():
            exact, asked = keys.double(), query.double()
            wanted = call.gram(exact, asked) @ cotangent.double()
            image = call.gram(exact) @ gamma.double()
        missed = call.kept(wanted) - image - noise.unsqueeze(-1) * gamma
        correction = _in_units(factor, missed.float())
        if not bool((_length(correction) <= MAX_CORRECTION * _length(gamma)).all()):
            return None
        gamma = gamma + correction
    # d(Aα) = 0 says Ā = −γαᵀ.
    needed = [leaf for leaf in leaves if leaf.requires_grad]
    # K(K, K) has no graph where the query alone is differentiated.
    pairs = (among, -(gamma @ alpha.mT)), (reading, cotangent @ alpha.mT)
    recorded = [pair for pair in pairs if pair[0].requires_grad]
    of_leaves = iter(
        torch.autograd.grad(
            [matrix for matrix, _ in recorded],
            needed,
            [of_matrix for _, of_matrix in recorded],
            retain_graph=True,
            materialize_grads=True,
        )
        if needed
        else ()
    )
    of_query, of_keys = (next(of_leaves) if leaf.requires_grad else None for leaf in leaves)
    return of_query, of_keys, gamma.sum_to_size(values.shape)


def _length(columns: Tensor) -> Tensor:
    """‖·‖ of each context's numbers, however large they are."""
    size = columns.abs().amax((-2, -1), keepdim=True)
    unit = torch.where(size > 0, size, 1.0)
    return (size * (columns / unit).square().sum((-2, -1), keepdim=True).sqrt())[..., 0]

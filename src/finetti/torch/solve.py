"""Positive-definite solves in float64 with one factorization for the answer and its gradient.

With D = diag(e^{a_ℓ}) the system (K + λI)w = K(K, q) is solved as A x = e^{−c} D⁻¹K(K, q),
A = D⁻¹(K + Λ)D⁻¹, w = e^{c} D⁻¹x. For kernels of bounded growth a = 0 and c = 0; the exponential
kernel takes a_ℓ = ½ log K(k_ℓ, k_ℓ), so that A has a unit diagonal however long the keys are.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from finetti.torch.kernel import Kernel
from finetti.torch.layout import Contexts, may_branch, needs_graph, prefix_mask

# From this size on a factor is computed in columns of blocks.
MIN_BLOCKED, BLOCK = 448, 192
_ATTEMPTS, _ESCALATION = 6, 1e3
# Beyond e^±345 (1e150) a product of two entries leaves float64; answers saturate there.
_MAX_ENTRY, _MAX_LOG, _LARGEST_LOG = 1e150, 345.0, 709.0


def diagonal_floor(size: int, dimension: int = 1) -> float:
    """Relative diagonal shift at which float64 Cholesky provably succeeds.

    Twice n(n + 1)u + n·d·u (Higham, Accuracy and Stability, Theorem 10.7), as in
    `finetti.core.linalg.positive_definite`.
    """
    return 2.0 * size * (size + 1 + dimension) * 2.0**-53


def at_least_floor(noise: Tensor, diagonal: Tensor, dimension: int) -> Tensor:
    """The ridge of each key, not below `diagonal_floor` times its own K(k, k)."""
    floor = diagonal_floor(diagonal.shape[-1], dimension)
    raised = torch.maximum(noise, floor * diagonal)
    # A key at the origin of a linear kernel has no row at all; any positive noise will do.
    return torch.where(raised <= 0, 1.0, raised)


def factor_once(gram: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The lower Cholesky factor of K + diag(noise), and 0 where there is none but NaN."""
    if not may_branch(gram, noise):  # under vmap the noise may have an axis that K has not
        return torch.linalg.cholesky_ex(gram + torch.diag_embed(noise))
    matrix = gram.clone()
    matrix.diagonal(dim1=-2, dim2=-1).add_(noise)
    if matrix.shape[-1] < MIN_BLOCKED:
        return torch.linalg.cholesky_ex(matrix)
    return _factor_in_place(matrix)


def _factor_in_place(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The lower factor in place of the lower half, column of blocks by column of blocks.

    LAPACK takes as long for a factor as for a whole product of two such matrices, with six times
    the arithmetic. Here nearly all of it is products. What stands above the diagonal is zero.
    """
    size, failed = matrix.shape[-1], torch.zeros(matrix.shape[:-2], dtype=torch.int32)
    failed = failed.to(matrix.device)
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        done, column = matrix[..., start:, :start], matrix[..., start:, start:stop]
        if start:
            column -= done @ done[..., : stop - start, :].mT
        corner, info = torch.linalg.cholesky_ex(column[..., : stop - start, :])
        failed = torch.maximum(failed, info)
        column[..., : stop - start, :] = corner
        rest = column[..., stop - start :, :]
        solved = torch.linalg.solve_triangular(corner.mT, rest, upper=True, left=False)
        rest.copy_(solved)
        matrix[..., start:stop, stop:] = 0.0
    return matrix, failed


@torch.no_grad()
def diagonal_shift(gram: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The factor G of K + Λ, and the noise for which it exists.

    Where the matrix does not factor (its kernel is not positive definite), the diagonal is raised,
    a thousandfold more at each attempt; a compiled program has one attempt. What then has no factor
    is NaN.
    """
    gram, noise = gram.detach(), noise.detach()
    factor, info = factor_once(gram, noise)
    if may_branch(gram, noise):
        floor = diagonal_floor(gram.shape[-1])
        diagonal = gram.diagonal(dim1=-2, dim2=-1) + noise
        raised = noise
        for attempt in range(_ATTEMPTS):
            if not bool(info.any()):
                return factor, raised
            shift = floor * _ESCALATION**attempt
            raised = torch.where((info > 0)[..., None], noise + shift * diagonal, raised)
            factor, info = factor_once(gram, raised)
        noise = raised
    return torch.where((info > 0)[..., None, None], torch.nan, factor), noise


class _Solve(Function):
    """(K + diag(noise))⁻¹B with its factor given.

    With X = A⁻¹B and Y = A⁻¹X̄ the gradients are B̄ = Y, K̄ = −YXᵀ and −Σ_j Y_ij X_ij. The backward
    pass calls it again: gradients of any order.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(gram: Tensor, noise: Tensor, factor: Tensor, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right, factor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        saved = *inputs[:3], output
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        gram, noise, factor, found = ctx.saved_tensors
        adjoint = _solve(gram, noise, factor, cotangent)
        of_gram = -adjoint @ found.mT if ctx.needs_input_grad[0] else None
        of_noise = -(adjoint * found).sum(-1) if ctx.needs_input_grad[1] else None
        return of_gram, of_noise, None, adjoint


class _SolveWithTangents(_Solve):
    """The same with a forward-mode derivative, which compilers refuse."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        gram, noise, factor, found = ctx.saved_tensors
        of_gram, of_noise, _, of_right = tangents
        change = torch.zeros_like(found) if of_right is None else of_right
        if of_gram is not None:
            change = change - of_gram @ found
        if of_noise is not None:
            change = change - of_noise[..., None] * found
        return _solve(gram, noise, factor, change)


def _solve(gram: Tensor, noise: Tensor, factor: Tensor, right: Tensor) -> Tensor:
    function = _Solve if torch.compiler.is_compiling() else _SolveWithTangents
    return function.apply(gram, noise, factor, right)


def solve_posdef(gram: Tensor, noise: Tensor, right: Tensor) -> Tensor:
    """(K + diag(noise))⁻¹B, differentiated implicitly."""
    gram, noise, right = _same_batch(gram, noise, right)
    factor, _ = diagonal_shift(gram, noise)
    if may_branch(gram, noise, right) and not needs_graph(gram, noise, right):
        return torch.cholesky_solve(right, factor)
    return _solve(gram, noise, factor, right)


def cholesky_factor(gram: Tensor, noise: Tensor) -> Tensor:
    """G with GGᵀ = K + diag(noise), differentiable."""
    # Where the diagonal must be raised, the factor that was found is of no use: it has no gradient.
    if may_branch(gram, noise):
        factor, raised = diagonal_shift(gram, noise)
        if not needs_graph(gram, noise):
            return factor
        noise = noise + (raised - noise).detach()
    factor, info = torch.linalg.cholesky_ex(gram + torch.diag_embed(noise))
    return torch.where((info > 0)[..., None, None], torch.nan, factor)


def _same_batch(gram: Tensor, noise: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A kernel with a parameter per head has more axes than tokens without heads."""
    batch = torch.broadcast_shapes(gram.shape[:-2], noise.shape[:-1], right.shape[:-2])
    return (
        gram.expand(*batch, *gram.shape[-2:]),
        noise.expand(*batch, noise.shape[-1]),
        right.expand(*batch, *right.shape[-2:]),
    )


class System(NamedTuple):
    """D⁻¹KD⁻¹ among the keys, Λ in these units, and log D (None where the kernel needs none)."""

    gram: Tensor  # (..., S, S)
    noise: Tensor  # (..., S)
    log_scale: Tensor | None  # (..., S)
    mask: Tensor | None  # (..., S)


class Cross(NamedTuple):
    """e^{−c_q} D⁻¹K(K, q) for every query, and c (None where the kernel needs none)."""

    columns: Tensor  # (..., S, Q)
    log_scale: Tensor | None  # (..., Q)


def build(kernel: Kernel, keys: Tensor, mask: Tensor | None, ridge: Tensor, scale: float) -> System:
    """The system of (4.5), zhang2022; ``ridge`` is (..., 1), one per context."""
    growth = kernel.growth(keys, scale=scale)
    if growth is None:
        log_scale, gram = None, kernel(keys, scale=scale)
        noise = ridge.expand(*torch.broadcast_shapes(ridge.shape, gram.shape[:-1]))
    else:
        log_scale = 0.5 * growth.diagonal(dim1=-2, dim2=-1)
        units = log_scale[..., :, None] + log_scale[..., None, :]
        gram = kernel.remainder(keys, scale=scale) * torch.exp(growth - units)
        noise = ridge * torch.exp(-2.0 * log_scale)
    gram = gram.clamp(-_MAX_ENTRY, _MAX_ENTRY) if growth is not None or _unbounded(gram) else gram
    noise = at_least_floor(noise, gram.diagonal(dim1=-2, dim2=-1), keys.shape[-1])
    if mask is not None:
        # A masked key keeps a 1 on the diagonal and nothing else: it decouples from the rest.
        gram = torch.where(mask[..., :, None] & mask[..., None, :], gram, 0.0)
        noise = torch.where(mask, noise, 1.0)
    return System(gram, noise, log_scale, mask)


def _unbounded(gram: Tensor) -> bool:
    """Whether entries might leave the range; a look at the diagonal, which bounds them all."""
    if not may_branch(gram):
        return True
    diagonal = gram.detach().diagonal(dim1=-2, dim2=-1)
    return not bool((diagonal <= _MAX_ENTRY).all())


def cross(
    kernel: Kernel, system: System, keys: Tensor, query: Tensor, visible: Tensor | None, s: float
) -> Cross:
    """One column per query, 0 on the keys that are not ``visible`` (..., S, Q)."""
    growth = kernel.growth(keys, query, scale=s)
    if growth is None or system.log_scale is None:
        log_scale, columns = None, kernel(keys, query, scale=s)
        if _unbounded_columns(columns):
            columns = columns.clamp(-_MAX_ENTRY, _MAX_ENTRY)
    else:
        reach = growth - system.log_scale[..., :, None]
        if visible is not None:
            reach = torch.where(visible, reach, -torch.inf)
        highest = reach.amax(-2)
        log_scale = torch.where(torch.isfinite(highest), highest, 0.0)
        units = system.log_scale[..., :, None] + log_scale[..., None, :]
        # On keys that are not visible the exponent may be huge, and nothing reads it.
        exponent = (growth - units).clamp_max(_MAX_LOG)
        columns = kernel.remainder(keys, query, scale=s) * torch.exp(exponent)
        columns = columns.clamp(-_MAX_ENTRY, _MAX_ENTRY)
    return Cross(columns if visible is None else torch.where(visible, columns, 0.0), log_scale)


def _unbounded_columns(columns: Tensor) -> bool:
    return not may_branch(columns) or not bool((columns.detach().abs() <= _MAX_ENTRY).all())


def unscale(system: System, right: Cross, scaled: Tensor) -> Tensor:
    """w = e^{c} D⁻¹x, 0 on masked keys."""
    if right.log_scale is None or system.log_scale is None:
        return scaled
    exponent = right.log_scale[..., None, :] - system.log_scale[..., :, None]
    weights = scaled * torch.exp(exponent.clamp(-_MAX_LOG, _MAX_LOG))
    return weights if system.mask is None else torch.where(system.mask[..., None], weights, 0.0)


def remaining_variance(
    kernel: Kernel, query: Tensor, right: Cross, explained: Tensor, scale: float
) -> Tensor:
    """K(q, q) less what the keys explain (in units e^{2c}), never below 0 (B.1, zhang2022)."""
    if right.log_scale is None:
        prior = kernel.diagonal(query, scale=scale).clamp(0.0, _MAX_ENTRY)
        return (prior - explained).clamp_min(0.0)
    # In units of K(q, q)'s own growth e^g, which is at least e^{2c} (Cauchy–Schwarz).
    token = query.unsqueeze(-2)
    growth = kernel.growth(token, scale=scale)
    assert growth is not None
    growth, prior = growth[..., 0, 0], kernel.remainder(token, scale=scale)[..., 0, 0]
    share = explained * torch.exp((2.0 * right.log_scale - growth).clamp_max(_MAX_LOG))
    rest = (prior - share).clamp_min(0.0)
    fits = growth + torch.log(rest) <= _LARGEST_LOG
    # By its root, which does not overflow before the variance does.
    root = torch.exp(0.5 * torch.where(fits & (rest > 0), growth, 0.0))
    return torch.where((rest > 0) & ~fits, torch.inf, root * rest * root)


class Answer(NamedTuple):
    """The posterior at every query; the variance is None where it was not asked for."""

    mean: Tensor  # (..., Q, Ev)
    variance: Tensor | None  # (..., Q)


def answer_in_float64(
    kernel: Kernel, ridge: Tensor, contexts: Contexts, wants_variance: bool
) -> Answer:
    """Vᵀ(K + λI)⁻¹K(K, q), all arithmetic in float64; ``ridge`` is (..., 1)."""
    query, keys, values = (each.double() for each in contexts[:3])
    mask, scale = contexts.key_mask, contexts.scale
    system = build(kernel, keys, mask, ridge, scale)
    if contexts.period is not None:
        visible = prefix_mask(query, keys, contexts.period).mT
        visible = visible if mask is None else visible & mask[..., :, None]
        return _answer_prefixes(
            kernel, system, (query, keys, values), visible, scale, wants_variance
        )
    visible = None if mask is None else mask[..., :, None]
    if not wants_variance and system.log_scale is None and values.shape[-1] <= query.shape[-2]:
        # Masked values are zero and their rows decoupled, so their coefficients are zero too.
        coefficients = solve_posdef(system.gram, system.noise, values)
        reading = kernel(query, keys, scale=scale)
        if _unbounded_columns(reading):
            reading = reading.clamp(-_MAX_ENTRY, _MAX_ENTRY)
        return Answer(reading @ coefficients, None)
    right = cross(kernel, system, keys, query, visible, scale)
    scaled = solve_posdef(system.gram, system.noise, right.columns)
    mean = unscale(system, right, scaled).mT @ values
    if not wants_variance:
        return Answer(mean, None)
    explained = (right.columns * scaled).sum(-2)
    return Answer(mean, remaining_variance(kernel, query, right, explained, scale))


def _answer_prefixes(
    kernel: Kernel,
    system: System,
    tokens: tuple[Tensor, Tensor, Tensor],
    visible: Tensor,
    scale: float,
    wants_variance: bool,
) -> Answer:
    """Every query reads its own prefix of the keys, at the price of one factorization.

    With GGᵀ = A the leading t×t block of G is the factor of the first t keys, and forward
    substitution is causal: W = G⁻¹K(K, Q) and U = G⁻¹V hold the answers of all prefixes at once,
    out_t = Σ_{i≤t} W_it U_i with the variance K(q_t, q_t) − Σ_{i≤t} W_it².
    """
    query, keys, values = tokens
    right = cross(kernel, system, keys, query, visible, scale)
    factor = cholesky_factor(system.gram, system.noise)
    solve = torch.linalg.solve_triangular
    half = solve(factor, right.columns, upper=False)
    # Beyond its prefix a column is no part of the answer.
    half = torch.where(visible, half, 0.0)
    if right.log_scale is None:
        mean = half.mT @ solve(
            factor, values.expand(*half.shape[:-2], *values.shape[-2:]), upper=False
        )
    else:
        # U = G⁻¹D⁻¹V would underflow with the keys' scales; the weights bring both scales together.
        scaled = solve(factor.mT, half, upper=True)
        mean = unscale(system, right, scaled).mT @ values
    if not wants_variance:
        return Answer(mean, None)
    return Answer(mean, remaining_variance(kernel, query, right, (half * half).sum(-2), scale))

"""Squared distances between tokens, with exact derivatives by matrix products."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from finetti.torch.layout import may_branch, needs_graph

# Products in float64 that are in work at once, 2 MB.
BLOCK = 2**18


class _MinusHalfSquares(Function):
    """−‖a_i − b_j‖²/2 of float64 tokens (..., L, d) and (..., M, d); b = None stands for a.

    The tokens should be centered: by one matrix product the rounding is about ε·‖a‖², and it is 0
    on the diagonal among a themselves. ``by_differences`` takes differences before they are
    squared: rounding relative to each distance, for kernels that are not smooth at 0. Both have the
    derivatives of the formula, also where tokens are equal.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor | None, dtype: torch.dtype, by_differences: bool) -> Tensor:
        others = a if b is None else b
        if by_differences:
            exact = "donot_use_mm_for_euclid_dist"
            distances = torch.cdist(a, others, compute_mode=exact)
            return (-0.5 * distances * distances).to(dtype)
        # The norms ride along as two more coordinates: one product, and no sums over its rows.
        left, right = -0.5 * (a * a).sum(-1, True), -0.5 * (others * others).sum(-1, True)
        one_a, one_b = torch.ones_like(left), torch.ones_like(right)
        rows = torch.cat([a, left, one_a], -1)
        columns = torch.cat([others, one_b, right], -1)
        found = _product(rows, columns.mT, dtype).clamp_max_(0.0)
        if b is None:
            found.diagonal(dim1=-2, dim2=-1).zero_()
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        a, b, _, _ = inputs
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)
        ctx.dtype = output.dtype

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        # In float64: the sum of W_ij(a_i − b_j) is taken as two that cancel.
        a, b = ctx.saved_tensors
        weight = cotangent.double()
        rows, columns = weight.sum(-1, keepdim=True), weight.sum(-2).unsqueeze(-1)
        if b is None:
            return weight @ a + weight.mT @ a - (rows + columns) * a, None, None, None
        of_a = weight @ b - rows * a
        return of_a, weight.mT @ a - columns * b, None, None


class _WithTangents(_MinusHalfSquares):
    """The same with a forward-mode derivative, which compilers refuse."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (a, b), (of_a, of_b) = ctx.saved_tensors, tangents[:2]
        others, of_others = (a, of_a) if b is None else (b, of_b)
        change: Any = 0.0
        if of_a is not None:
            change = of_a @ others.mT - (a * of_a).sum(-1, True)
        if of_others is not None:
            change = change + a @ of_others.mT - (others * of_others).sum(-1).unsqueeze(-2)
        return change.to(ctx.dtype)


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """``a @ b`` in ``dtype``; rounded while a block of rows is in the processor's cache."""
    size = math.prod(a.shape[:-1]) * b.shape[-1]
    if size <= BLOCK or dtype == a.dtype or not may_branch(a, b):
        return (a @ b).to(dtype)
    found = torch.empty(*a.shape[:-1], b.shape[-1], dtype=dtype, device=a.device)
    rows = max(1, BLOCK * a.shape[-2] // size)
    for start in range(0, a.shape[-2], rows):
        found[..., start : start + rows, :] = a[..., start : start + rows, :] @ b
    return found


def minus_half_squares(
    a: Tensor, b: Tensor | None, dtype: torch.dtype, by_differences: bool = False
) -> Tensor:
    """−‖a_i − b_j‖²/2 in ``dtype``, computed in float64."""
    if may_branch(a, b) and not needs_graph(a, b):  # PyTorch's bookkeeping takes as long
        return _MinusHalfSquares.forward(a, b, dtype, by_differences)
    function = _MinusHalfSquares if torch.compiler.is_compiling() else _WithTangents
    return function.apply(a, b, dtype, by_differences)


class _LogMatern(Function):
    """log K_ν as a function of s = −r²/2, for ν = 1/2, 3/2 and 5/2.

    The slope is written out, because 1/r cancels: for ν > 1/2 it exists at r = 0 too, and with it
    the second derivatives of K there.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(minus_half_square: Tensor, nu: float) -> Tensor:
        t = _root(-4.0 * nu * minus_half_square)
        if nu == 0.5:
            return -t
        return torch.log1p(t if nu == 1.5 else t + t * t / 3) - t

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])
        ctx.nu = inputs[1]

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return cotangent * _slope(ctx.saved_tensors[0], ctx.nu), None


class _LogMaternWithTangents(_LogMatern):
    """The same with a forward-mode derivative, which compilers refuse."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return tangents[0] * _slope(ctx.saved_tensors[0], ctx.nu)


def log_matern(minus_half_square: Tensor, nu: float) -> Tensor:
    """log K_ν at s = −r²/2; Rasmussen and Williams (2006), (4.17)."""
    function = _LogMatern if torch.compiler.is_compiling() else _LogMaternWithTangents
    return function.apply(minus_half_square, nu)


def _slope(minus_half_square: Tensor, nu: float) -> Tensor:
    """d log K_ν/ds."""
    t = _root(-4.0 * nu * minus_half_square)
    if nu == 0.5:
        return torch.where(t > 0, 1 / torch.where(t > 0, t, 1), 0)
    if nu == 1.5:
        return 3 / (1 + t)
    return 5 / 3 * (1 + t) / (1 + t + t * t / 3)


def _root(square: Tensor) -> Tensor:
    """√s; the inner `where` keeps its infinite slope at 0 out of gradients."""
    equal = square <= 0
    return torch.where(equal, 0, torch.sqrt(torch.where(equal, 1, square)))

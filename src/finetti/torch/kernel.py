"""Kernels as modules: what can be asked of one, how they combine, and what is refused.

Tokens are (..., L, d). Positive parameters are kept and learned by their logarithms. A parameter is
a number, or a tensor that broadcasts against (..., L, d) or (..., L, M): of shape (H, 1, 1) it is
one per key head; a lengthscale may also be (d,) or (H, 1, d).
"""

from typing import Any

import torch
from torch import Tensor, nn

from finetti.core.errors import UnsupportedError, bad_argument
from finetti.torch.layout import may_branch

Number = float | Tensor


class Kernel(nn.Module):
    """Abstract: a positive semi-definite K(x, y); combine by `k1 + k2`, `k1 * k2`, `c * k`.

    Every method takes ``scale``: K(√scale·x, √scale·y) without rounding the tokens once more.
    """

    @property
    def is_positive(self) -> bool:
        """Whether K(x, y) ≥ 0 for all tokens, so that `log_gram` exists."""
        return True

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """K(x_i, y_j), (..., L, M); ``ys=None`` stands for ``xs``."""
        raise NotImplementedError

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """K(x_i, x_i), (..., L)."""
        raise NotImplementedError

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """log K(x_i, y_j) without overflow, for kernels that are `is_positive`."""
        raise NotImplementedError

    def growth(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor | None:
        """g with |K(x_i, y_j)|·exp(−g_ij) of at most polynomial growth; None stands for g = 0."""
        return None

    def remainder(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """K(x_i, y_j)·exp(−g_ij)."""
        return self(xs, ys, scale=scale)

    @property
    def grows(self) -> bool:
        """Whether the kernel has an exponential part, so that `growth` is not None."""
        return False

    def feature_dimension(self, d: int) -> int | None:
        """D of the finite feature map on tokens of dimension ``d``; None if there is none."""
        return None

    def features(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """φ(x_i), (..., L, D), with φ(x)·φ(y) = K(x, y) exactly."""
        raise UnsupportedError(
            f"{type(self).__name__} has no finite feature map. Use Linear, Polynomial, their sums "
            "or products, or kernel_attention, which reads any nonnegative kernel."
        )

    def extra_repr(self) -> str:
        """What `print` says: the parameters themselves, not their logarithms."""
        fixed = [
            f"{name}={getattr(self, name)}" for name in ("nu", "degree") if hasattr(self, name)
        ]
        learned = [
            f"{name.removeprefix('log_')}={show_exponential(each)}"
            for name, each in self.named_parameters(recurse=False)
        ]
        return ", ".join(fixed + learned)

    def __add__(self, other: Any) -> "Kernel":
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, other) if isinstance(other, (int, float, Tensor)) else NotImplemented

    def __rmul__(self, other: Any) -> "Kernel":
        return self * other


class _Pair(Kernel):
    """Abstract: what `Sum` and `Product` share."""

    def __init__(self, left: Kernel, right: Kernel):
        super().__init__()
        self.left, self.right = left, right

    @property
    def is_positive(self) -> bool:
        """Whether both parts are."""
        return self.left.is_positive and self.right.is_positive

    @property
    def grows(self) -> bool:
        """Whether one of the parts does."""
        return self.left.grows or self.right.grows


class Sum(_Pair):
    """K(x, y) = K₁(x, y) + K₂(x, y), written ``k1 + k2``; the features stand side by side."""

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """K₁ + K₂."""
        return self.left(xs, ys, scale=scale) + self.right(xs, ys, scale=scale)

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """K₁(x_i, x_i) + K₂(x_i, x_i)."""
        return self.left.diagonal(xs, scale=scale) + self.right.diagonal(xs, scale=scale)

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """log(K₁ + K₂)."""
        left, right = (part.log_gram(xs, ys, scale=scale) for part in (self.left, self.right))
        return torch.logaddexp(left, right)

    def growth(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor | None:
        """The larger one."""
        left, right = (part.growth(xs, ys, scale=scale) for part in (self.left, self.right))
        if left is None or right is None:
            one = right if left is None else left
            return None if one is None else one.clamp_min(0.0)
        return torch.maximum(left, right)

    def remainder(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """Both parts relative to the larger growth."""
        growth = self.growth(xs, ys, scale=scale)
        if growth is None:
            return self(xs, ys, scale=scale)
        total: Any = 0.0
        for part in (self.left, self.right):
            own = part.growth(xs, ys, scale=scale)
            less = -growth if own is None else own - growth
            total = total + part.remainder(xs, ys, scale=scale) * torch.exp(less)
        return total

    def feature_dimension(self, d: int) -> int | None:
        """D₁ + D₂."""
        left, right = self.left.feature_dimension(d), self.right.feature_dimension(d)
        return None if left is None or right is None else left + right

    def features(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """φ₁ beside φ₂."""
        return torch.cat([part.features(xs, scale=scale) for part in (self.left, self.right)], -1)


class Product(_Pair):
    """K(x, y) = K₁(x, y)·K₂(x, y), written ``k1 * k2``; the features multiply as tensors."""

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """K₁K₂."""
        return self.left(xs, ys, scale=scale) * self.right(xs, ys, scale=scale)

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """K₁(x_i, x_i)K₂(x_i, x_i)."""
        return self.left.diagonal(xs, scale=scale) * self.right.diagonal(xs, scale=scale)

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """log K₁ + log K₂."""
        return self.left.log_gram(xs, ys, scale=scale) + self.right.log_gram(xs, ys, scale=scale)

    def growth(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor | None:
        """The sum."""
        left, right = (part.growth(xs, ys, scale=scale) for part in (self.left, self.right))
        if left is None or right is None:
            return right if left is None else left
        return left + right

    def remainder(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """The product."""
        left, right = (part.remainder(xs, ys, scale=scale) for part in (self.left, self.right))
        return left * right

    def feature_dimension(self, d: int) -> int | None:
        """D₁D₂."""
        left, right = self.left.feature_dimension(d), self.right.feature_dimension(d)
        return None if left is None or right is None else left * right

    def features(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """φ₁ ⊗ φ₂."""
        left, right = (part.features(xs, scale=scale) for part in (self.left, self.right))
        return (left[..., :, None] * right[..., None, :]).flatten(-2)


class Scaled(Kernel):
    """K(x, y) = c K₁(x, y), written ``c * k``, c > 0 learned by its logarithm."""

    log_constant: Tensor

    def __init__(self, part: Kernel, constant: Number):
        super().__init__()
        self.part = part
        self.log_constant = log_parameter(self, "constant", constant)

    @property
    def is_positive(self) -> bool:
        """Whether the part is."""
        return self.part.is_positive

    @property
    def grows(self) -> bool:
        """Whether the part does."""
        return self.part.grows

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """c K₁."""
        return factor_of(self.log_constant, xs) * self.part(xs, ys, scale=scale)

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """c K₁(x_i, x_i)."""
        constant = as_rows(factor_of(self.log_constant, xs))
        return constant * self.part.diagonal(xs, scale=scale)

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """log c + log K₁."""
        return self.log_constant.to(xs.dtype) + self.part.log_gram(xs, ys, scale=scale)

    def growth(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor | None:
        """That of the part."""
        return self.part.growth(xs, ys, scale=scale)

    def remainder(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """That of the part, times c."""
        return factor_of(self.log_constant, xs) * self.part.remainder(xs, ys, scale=scale)

    def feature_dimension(self, d: int) -> int | None:
        """That of the part."""
        return self.part.feature_dimension(d)

    def features(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """√c φ₁."""
        return factor_of(self.log_constant, xs) ** 0.5 * self.part.features(xs, scale=scale)


def check_parameters(kernel: Kernel, keys: Tensor, more_axes: bool = False) -> None:
    """Refuse parameters that do not fit the keys (..., S, E); with ``more_axes`` they may have
    axes in front of those of the keys."""
    *batch, _, width = keys.shape
    for part in kernel.modules():
        for name, parameter in part.named_parameters(recurse=False):
            name, shape = name.removeprefix("log_"), tuple(parameter.shape)
            per_channel = name in ("lengthscale", "period")
            last = (1, width) if per_channel else (1,)
            rows = [*reversed(shape)]
            fits = all(size in last for size in rows[:1]) and all(n == 1 for n in rows[1:2])
            fits = fits and (more_axes or len(rows) - 2 <= len(batch))
            fits = fits and all(
                size in (1, full) or (more_axes and full == 1)
                for size, full in zip(rows[2:], reversed(batch), strict=False)
            )
            owner = type(part).__name__
            if not fits:
                own = f"({width},), " if per_channel else ""
                requirement = (
                    f"a number or of shape {own}(heads, 1, 1) for keys {tuple(keys.shape)}"
                )
                advice = "heads is the number of key heads, the axis −3 of the keys."
                raise bad_argument(name, owner, requirement, f"shape {shape}", advice)
            if parameter.device != keys.device:
                advice = "Move the kernel: kernel.to(query.device)."
                requirement = f"on the device of the tokens, {keys.device}"
                raise bad_argument(name, owner, requirement, parameter.device, advice)


def log_parameter(owner: nn.Module, name: str, value: Number) -> nn.Parameter:
    """The logarithm of a positive parameter, in the default precision if it is a number."""
    if isinstance(value, Tensor):
        given = value.detach()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        given = torch.tensor(float(value))
    else:
        raise bad_argument(name, type(owner).__name__, "a positive number or tensor", repr(value))
    # A module is built on the device "meta" before its parameters are loaded.
    if may_branch(given) and not bool(((given > 0) & torch.isfinite(given)).all()):
        raise bad_argument(name, type(owner).__name__, "positive and finite", value)
    return nn.Parameter(torch.log(given))


def show_exponential(log_value: Tensor) -> str:
    """The first numbers of a positive parameter that is kept by its logarithm."""
    if log_value.is_meta:
        return f"(shape {tuple(log_value.shape)})"
    values = log_value.detach().exp().flatten().tolist()
    numbers = [f"{each:.4g}" for each in values[:4]] + ["…"] * (len(values) > 4)
    return numbers[0] if len(values) == 1 else f"[{', '.join(numbers)}]"


def factor_of(log_value: Tensor | None, xs: Tensor, scale: float = 1.0) -> Any:
    """A factor by its logarithm in the precision of the tokens (cast first, then exp), times s."""
    return scale if log_value is None else scale * torch.exp(log_value.to(xs.dtype))


def as_rows(parameter: Any) -> Any:
    """A parameter that broadcasts against (..., L, M), for one that is (..., L)."""
    return parameter[..., 0] if isinstance(parameter, Tensor) and parameter.ndim else parameter

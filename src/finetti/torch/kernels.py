"""Kernels as modules with learnable parameters: the PyTorch side of `finetti.kernels`.

Tokens are (..., L, d). Positive parameters are kept and learned by their logarithms. A parameter is
a number, or a tensor that broadcasts against (..., L, d) or (..., L, M): of shape (H, 1, 1) it is
one per key head; a lengthscale may also be (d,) or (H, 1, d).
"""

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn

from finetti.core.errors import UnsupportedError, bad_argument
from finetti.torch.distances import log_matern, minus_half_squares
from finetti.torch.layout import may_branch, needs_graph

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


class _Stationary(Kernel):
    """Abstract: K(x, y) depends on (x − y)/ℓ only, and K(x, x) = 1."""

    log_lengthscale: Tensor | None
    by_differences = False

    def __init__(self, lengthscale: Number | None = 1.0):
        super().__init__()
        self.log_lengthscale = (
            None if lengthscale is None else _log_parameter(self, "lengthscale", lengthscale)
        )

    def _minus_half_squares(self, xs: Tensor, ys: Tensor | None, scale: float) -> Tensor:
        # In float32 the distance of near tokens far from the center would be lost. The distance
        # does not depend on the center, and neither does its gradient, also that of ℓ.
        center = (xs if ys is None else ys).detach().double().mean(-2, keepdim=True)
        unit: Any = math.sqrt(scale)
        if self.log_lengthscale is not None:
            unit = unit * torch.exp(-self.log_lengthscale.double())
        a = xs.double() - center
        b = None if ys is None else ys.double() - center
        if self.by_differences and (not isinstance(unit, Tensor) or unit.shape[-1:] in ((), (1,))):
            # What keeps the digits of small distances keeps those of the gradient of ℓ, too.
            squares = minus_half_squares(a, b, torch.float64, by_differences=True)
            return (unit * unit * squares).to(xs.dtype)
        b = None if b is None else b * unit
        return minus_half_squares(a * unit, b, xs.dtype, self.by_differences)

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """K(x_i, y_j)."""
        log_gram = self.log_gram(xs, ys, scale=scale)
        # In place, where autograd keeps nothing: a fresh matrix costs as much as its powers.
        can_overwrite = may_branch(log_gram) and not needs_graph(log_gram)
        return log_gram.exp_() if can_overwrite else torch.exp(log_gram)

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """1."""
        return torch.ones_like(xs[..., 0])


class RBF(_Stationary):
    """The Gaussian kernel, K(x, y) = exp(−‖x − y‖²/(2ℓ²)).

    Args:
        lengthscale: ℓ > 0; None is 1 without a parameter.

    >>> import torch
    >>> x, y = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    >>> round(RBF(lengthscale=2.0)(x, y).item(), 4)  # exp(−1/2)
    0.6065
    """

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """−‖x_i − y_j‖²/(2ℓ²)."""
        return self._minus_half_squares(xs, ys, scale)


class Matern(_Stationary):
    """The Matérn kernel of smoothness ν at r = ‖x − y‖/ℓ.

    ν = 1/2: exp(−r);  ν = 3/2: (1 + √3 r) exp(−√3 r);  ν = 5/2: (1 + √5 r + 5r²/3) exp(−√5 r).

    Args:
        nu: ν, one of 0.5, 1.5, 2.5.
        lengthscale: ℓ > 0; None is 1 without a parameter.
    """

    by_differences = True

    def __init__(self, nu: float = 1.5, lengthscale: Number | None = 1.0):
        if nu not in (0.5, 1.5, 2.5):
            advice = "Its limit ν → ∞ is the kernel RBF."
            raise bad_argument("nu", "Matern", "0.5, 1.5 or 2.5", nu, advice)
        super().__init__(lengthscale)
        self.nu = float(nu)

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """log K_ν."""
        return log_matern(self._minus_half_squares(xs, ys, scale), self.nu)


class Exponential(Kernel):
    """The exponential kernel, K(x, y) = exp(s x·y), whose normalized sum is softmax attention.

    Args:
        factor: s > 0; None is 1 without a parameter. (`finetti.kernels` calls it ``scale``.)
    """

    log_factor: Tensor | None

    def __init__(self, factor: Number | None = 1.0):
        super().__init__()
        self.log_factor = None if factor is None else _log_parameter(self, "factor", factor)

    @property
    def grows(self) -> bool:
        """True."""
        return True

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """K(x_i, y_j); infinite for long tokens."""
        return torch.exp(self.log_gram(xs, ys, scale=scale))

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """exp(s‖x_i‖²)."""
        return torch.exp(_as_rows(_factor(self.log_factor, xs, scale)) * (xs * xs).sum(-1))

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """s x_i·y_j."""
        return _factor(self.log_factor, xs, scale) * (xs @ (xs if ys is None else ys).mT)

    def growth(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """s x_i·y_j."""
        return self.log_gram(xs, ys, scale=scale)

    def remainder(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """1."""
        return torch.ones_like(self.log_gram(xs, ys, scale=scale))


class Linear(Kernel):
    """K(x, y) = x·y; its feature map is the identity."""

    @property
    def is_positive(self) -> bool:
        """False: an inner product has either sign."""
        return False

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """x_i·y_j."""
        return scale * (xs @ (xs if ys is None else ys).mT)

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """‖x_i‖²."""
        return scale * (xs * xs).sum(-1)

    def feature_dimension(self, d: int) -> int:
        """D = d."""
        return d

    def features(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """√scale·x."""
        return xs * math.sqrt(scale)


class Polynomial(Kernel):
    """The polynomial kernel, K(x, y) = (s x·y + b)^p, with the monomials of degree ≤ p as features.

    Args:
        degree: p ≥ 1.
        factor: s > 0; None is 1 without a parameter. (`finetti.kernels` calls it ``scale``.)
        bias: b ≥ 0; 0 is not learned.

    >>> import torch
    >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])
    >>> round(Polynomial(degree=2)(x, y).item(), 4)
    144.0
    """

    log_factor: Tensor | None
    log_bias: Tensor | None

    def __init__(self, degree: int, factor: Number | None = 1.0, bias: Number = 1.0):
        super().__init__()
        if not isinstance(degree, int) or degree < 1:
            raise bad_argument("degree", "Polynomial", "a whole number ≥ 1", degree)
        self.degree = degree
        self.log_factor = None if factor is None else _log_parameter(self, "factor", factor)
        absent = not isinstance(bias, Tensor) and bias == 0
        self.log_bias = None if absent else _log_parameter(self, "bias", bias)

    @property
    def is_positive(self) -> bool:
        """Whether p is even."""
        return self.degree % 2 == 0

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """(s x_i·y_j + b)^p."""
        return self._affine(xs, ys, scale) ** self.degree

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """(s‖x_i‖² + b)^p."""
        products = _as_rows(_factor(self.log_factor, xs, scale)) * (xs * xs).sum(-1)
        if self.log_bias is not None:
            products = products + _as_rows(torch.exp(self.log_bias.to(xs.dtype)))
        return products**self.degree

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """p log|s x_i·y_j + b|."""
        size = self._affine(xs, ys, scale).abs()
        return self.degree * torch.log(size.clamp_min(torch.finfo(size.dtype).tiny))

    def feature_dimension(self, d: int) -> int:
        """The number of monomials: C(d + p, p), or C(d + p − 1, p) if b = 0."""
        variables = d + (self.log_bias is not None)
        return math.comb(variables + self.degree - 1, self.degree)

    def features(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """The monomials, weighted by the roots of the multinomial coefficients."""
        variables = xs * _factor(self.log_factor, xs, scale) ** 0.5
        if self.log_bias is not None:
            constant = torch.exp(self.log_bias.to(xs.dtype) / 2)
            variables = torch.cat([variables, constant.expand_as(xs[..., :1])], -1)
        features: Any = 1.0
        rows = list(
            itertools.combinations_with_replacement(range(variables.shape[-1]), self.degree)
        )
        for place in range(self.degree):
            features = features * variables[..., [row[place] for row in rows]]
        weights = [
            math.factorial(self.degree)
            / math.prod(math.factorial(row.count(variable)) for variable in set(row))
            for row in rows
        ]
        return features * torch.tensor(weights, dtype=xs.dtype, device=xs.device).sqrt()

    def _affine(self, xs: Tensor, ys: Tensor | None, scale: float) -> Tensor:
        products = _factor(self.log_factor, xs, scale) * (xs @ (xs if ys is None else ys).mT)
        return products if self.log_bias is None else products + self.log_bias.to(xs.dtype).exp()


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
        self.log_constant = _log_parameter(self, "constant", constant)

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
        return _factor(self.log_constant, xs) * self.part(xs, ys, scale=scale)

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """c K₁(x_i, x_i)."""
        constant = _as_rows(_factor(self.log_constant, xs))
        return constant * self.part.diagonal(xs, scale=scale)

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """log c + log K₁."""
        return self.log_constant.to(xs.dtype) + self.part.log_gram(xs, ys, scale=scale)

    def growth(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor | None:
        """That of the part."""
        return self.part.growth(xs, ys, scale=scale)

    def remainder(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """That of the part, times c."""
        return _factor(self.log_constant, xs) * self.part.remainder(xs, ys, scale=scale)

    def feature_dimension(self, d: int) -> int | None:
        """That of the part."""
        return self.part.feature_dimension(d)

    def features(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """√c φ₁."""
        return _factor(self.log_constant, xs) ** 0.5 * self.part.features(xs, scale=scale)


# The kernel of a call without one: no parameters, so that it has no device either.
UNIT_RBF = RBF(None)


def check_kernel(kernel: Kernel | None, owner: str, positive: bool = False) -> Kernel:
    """The kernel, RBF() with ℓ = 1 where there is none; refuse what is no kernel."""
    if kernel is None:
        return UNIT_RBF
    if not isinstance(kernel, Kernel):
        wanted = "a kernel of finetti.torch such as RBF()"
        raise bad_argument("kernel", owner, wanted, type(kernel).__name__)
    if positive and not kernel.is_positive:
        raise UnsupportedError(
            f"{owner} divides by the sum of the kernel's values, and {type(kernel).__name__} takes "
            "both signs. Use cme_attention, or a nonnegative kernel such as RBF or Exponential."
        )
    return kernel


def check_parameters(kernel: Kernel, keys: Tensor, more_axes: bool = False) -> None:
    """Refuse parameters that do not fit the keys (..., S, E); with ``more_axes`` they may have
    axes in front of those of the keys."""
    *batch, _, width = keys.shape
    for part in kernel.modules():
        for name, parameter in part.named_parameters(recurse=False):
            name, shape = name.removeprefix("log_"), tuple(parameter.shape)
            per_channel = name == "lengthscale"
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


def _log_parameter(owner: nn.Module, name: str, value: Number) -> nn.Parameter:
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


def _factor(log_value: Tensor | None, xs: Tensor, scale: float = 1.0) -> Any:
    """A factor by its logarithm in the precision of the tokens (cast first, then exp), times s."""
    return scale if log_value is None else scale * torch.exp(log_value.to(xs.dtype))


def _as_rows(parameter: Any) -> Any:
    """A parameter that broadcasts against (..., L, M), for one that is (..., L)."""
    return parameter[..., 0] if isinstance(parameter, Tensor) and parameter.ndim else parameter

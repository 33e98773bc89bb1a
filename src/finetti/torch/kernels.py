"""The kernels of `finetti.kernels` as PyTorch modules with learnable parameters."""

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from finetti.core.errors import UnsupportedError, bad_argument
from finetti.torch.distances import log_matern, minus_half_squares
from finetti.torch.kernel import Kernel, Number, as_rows, factor_of, log_parameter
from finetti.torch.layout import may_branch, needs_graph


class _Stationary(Kernel):
    """Abstract: K(x, y) depends on (x − y)/ℓ only, and K(x, x) = 1."""

    log_lengthscale: Tensor | None
    by_differences = False

    def __init__(self, lengthscale: Number | None = 1.0):
        super().__init__()
        self.log_lengthscale = (
            None if lengthscale is None else log_parameter(self, "lengthscale", lengthscale)
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


class RationalQuadratic(_Stationary):
    """The rational quadratic kernel, K(x, y) = (1 + r²/(2α))^(−α) at r = ‖x − y‖/ℓ.

    Args:
        alpha: α > 0; RBF is the limit α → ∞.
        lengthscale: ℓ > 0; None is 1 without a parameter.
    """

    log_alpha: Tensor

    def __init__(self, alpha: Number = 1.0, lengthscale: Number | None = 1.0):
        super().__init__(lengthscale)
        self.log_alpha = log_parameter(self, "alpha", alpha)

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """−α log(1 + r²/(2α))."""
        alpha = factor_of(self.log_alpha, xs)
        return -alpha * torch.log1p(self._minus_half_squares(xs, ys, scale) / -alpha)


class Periodic(_Stationary):
    """The periodic kernel, K(x, y) = exp(−2 Σ_i sin²(π(x_i − y_i)/p)/ℓ_i²).

    It is computed with the L×M differences of every coordinate, in float64.

    Args:
        period: p > 0, one number or one per coordinate as for a lengthscale.
        lengthscale: ℓ > 0, in units of a period's circle; None is 1 without a parameter.

    >>> import torch
    >>> x, y = torch.tensor([[1.0]]), torch.tensor([[15.0]])
    >>> round(Periodic(period=7.0)(x, y).item(), 4)
    1.0
    """

    log_period: Tensor

    def __init__(self, period: Number = 1.0, lengthscale: Number | None = 1.0):
        super().__init__(lengthscale)
        self.log_period = log_parameter(self, "period", period)

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """−2 Σ_i sin²(π(x_i − y_i)/p)/ℓ_i²."""
        turns_per_unit = math.sqrt(scale) * torch.exp(-self.log_period.double())
        left = xs.double() * turns_per_unit
        right = left if ys is None else ys.double() * turns_per_unit
        chords = torch.sin(math.pi * (left.unsqueeze(-2) - right.unsqueeze(-3)))
        if self.log_lengthscale is not None:
            inverse = torch.exp(-self.log_lengthscale.double())
            chords = chords * (inverse.unsqueeze(-2) if inverse.ndim > 1 else inverse)
        return (-2 * chords.square().sum(-1)).to(xs.dtype)


class Constant(Kernel):
    """K(x, y) = c for all tokens: an unknown offset of variance c.

    Args:
        value: c > 0.
    """

    log_value: Tensor

    def __init__(self, value: Number = 1.0):
        super().__init__()
        self.log_value = log_parameter(self, "value", value)

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """c."""
        return self.log_gram(xs, ys, scale=scale).exp()

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """c."""
        return as_rows(factor_of(self.log_value, xs)) * torch.ones_like(xs[..., 0])

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """log c."""
        columns = xs if ys is None else ys
        batch = torch.broadcast_shapes(xs.shape[:-2], columns.shape[:-2])
        zeros = xs.new_zeros(*batch, xs.shape[-2], columns.shape[-2])
        return zeros + self.log_value.to(xs.dtype)

    def feature_dimension(self, d: int) -> int:
        """D = 1."""
        return 1

    def features(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """√c."""
        return factor_of(self.log_value, xs) ** 0.5 * torch.ones_like(xs[..., :1])


class Exponential(Kernel):
    """The exponential kernel, K(x, y) = exp(s x·y), whose normalized sum is softmax attention.

    Args:
        factor: s > 0; None is 1 without a parameter. (`finetti.kernels` calls it ``scale``.)
    """

    log_factor: Tensor | None

    def __init__(self, factor: Number | None = 1.0):
        super().__init__()
        self.log_factor = None if factor is None else log_parameter(self, "factor", factor)

    @property
    def grows(self) -> bool:
        """True."""
        return True

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """K(x_i, y_j); infinite for long tokens."""
        return torch.exp(self.log_gram(xs, ys, scale=scale))

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """exp(s‖x_i‖²)."""
        return torch.exp(as_rows(factor_of(self.log_factor, xs, scale)) * (xs * xs).sum(-1))

    def log_gram(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """s x_i·y_j."""
        return factor_of(self.log_factor, xs, scale) * (xs @ (xs if ys is None else ys).mT)

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
        self.log_factor = None if factor is None else log_parameter(self, "factor", factor)
        absent = not isinstance(bias, Tensor) and bias == 0
        self.log_bias = None if absent else log_parameter(self, "bias", bias)

    @property
    def is_positive(self) -> bool:
        """Whether p is even."""
        return self.degree % 2 == 0

    def forward(self, xs: Tensor, ys: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        """(s x_i·y_j + b)^p."""
        return self._affine(xs, ys, scale) ** self.degree

    def diagonal(self, xs: Tensor, *, scale: float = 1.0) -> Tensor:
        """(s‖x_i‖² + b)^p."""
        products = as_rows(factor_of(self.log_factor, xs, scale)) * (xs * xs).sum(-1)
        if self.log_bias is not None:
            products = products + as_rows(torch.exp(self.log_bias.to(xs.dtype)))
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
        variables = xs * factor_of(self.log_factor, xs, scale) ** 0.5
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
        products = factor_of(self.log_factor, xs, scale) * (xs @ (xs if ys is None else ys).mT)
        return products if self.log_bias is None else products + self.log_bias.to(xs.dtype).exp()


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

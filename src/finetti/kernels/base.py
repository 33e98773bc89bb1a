"""Kernels, and the kernels that `+`, `*` and a change of scale make of others."""

import abc
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.arrays import check_positive
from finetti.core.errors import bad_argument
from finetti.kernels.combined_features import (
    PairedFeatures,
    ProductFeatures,
    ScaledFeatures,
    SumFeatures,
)
from finetti.kernels.geometry import log_parameter, positive
from finetti.kernels.random_features import Draw, RandomFeatures
from finetti.kernels.similarity import Similarity

KernelType = TypeVar("KernelType", bound="Kernel")


class Kernel(Similarity):
    """Abstract: a positive semi-definite K(x, y), as `Similarity` says.

    Kernels combine by `k1 + k2`, `k1 * k2` and `c * k` with c > 0.
    """

    # NumPy scalars must leave `c * k` to the kernel.
    __array_ufunc__: ClassVar[None] = None

    def __add__(self, other: Any) -> "Kernel":
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, other) if eqx.is_array_like(other) else NotImplemented

    def __rmul__(self, other: Any) -> "Kernel":
        return self * other

    def on_scaled_tokens(self, scale: Array) -> "Kernel":
        """K(√s·x, √s·y) as a kernel of x and y.

        The parameters take the factor s: tokens multiplied by it would be rounded once more.
        """
        check_positive(scale, "scale", f"{type(self).__name__}.on_scaled_tokens")
        return self._on_scaled_tokens(jnp.log(scale))

    @abc.abstractmethod
    def _on_scaled_tokens(self, log_scale: Array) -> "Kernel":
        """K(√s·x, √s·y), given log s."""


class PairKernel(Kernel):
    """Abstract: what `Sum` and `Product` share."""

    left: Kernel
    right: Kernel

    def __check_init__(self):
        for argument, part in (("left", self.left), ("right", self.right)):
            if not isinstance(part, Kernel):
                raise bad_argument(argument, self._name, "a Kernel", repr(part))

    @abc.abstractmethod
    def _joined(self, left: Any, right: Any) -> Any:
        """What becomes of two values, and of two numbers of features."""

    @abc.abstractmethod
    def _joined_features(self, left: RandomFeatures, right: RandomFeatures) -> PairedFeatures:
        """What becomes of two independent feature maps."""

    @property
    def is_positive(self) -> bool:
        """Whether both parts are."""
        return self.left.is_positive and self.right.is_positive

    def feature_dimension(self, d: int) -> int | None:
        """D₁ + D₂ of a sum, D₁ D₂ of a product."""
        left, right = self.left.feature_dimension(d), self.right.feature_dimension(d)
        return None if left is None or right is None else self._joined(left, right)

    def _value(self, x: Array, y: Array) -> Array:
        return self._joined(self.left._value(x, y), self.right._value(x, y))

    def _gram(self, xs: Array, ys: Array | None) -> Array:
        return self._joined(self.left._gram(xs, ys), self.right._gram(xs, ys))

    def _diagonal(self, xs: Array) -> Array:
        return self._joined(self.left._diagonal(xs), self.right._diagonal(xs))

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return type(self)(
            self.left._on_scaled_tokens(log_scale), self.right._on_scaled_tokens(log_scale)
        )

    @property
    def _methods(self) -> tuple[str, ...]:
        # One method for both parts; the order of preference is that of the left one.
        return tuple(method for method in self.left._methods if method in self.right._methods)

    def _features_per_draw(self, method: str) -> int:
        parts = self.left._features_per_draw(method), self.right._features_per_draw(method)
        return self._joined(*parts)

    def _draw(self, draw: Draw) -> RandomFeatures:
        # Independent: the expectation of a product factorizes.
        keys = jax.random.split(draw.key)
        left, right = (draw._replace(key=key) for key in keys)
        return self._joined_features(self.left._draw(left), self.right._draw(right))


class Sum(PairKernel):
    """K(x, y) = K₁(x, y) + K₂(x, y), written ``k1 + k2``; the features stand side by side.

    >>> from finetti.kernels import Linear, RBF
    >>> import jax.numpy as jnp
    >>> float((Linear() + RBF())(jnp.array([2.0]), jnp.array([2.0])))
    5.0
    """

    def _joined(self, left: Any, right: Any) -> Any:
        return left + right

    def _joined_features(self, left: RandomFeatures, right: RandomFeatures) -> PairedFeatures:
        return SumFeatures(left, right)

    def _log_gram(self, xs: Array, ys: Array | None) -> Array:
        return jnp.logaddexp(self.left._log_gram(xs, ys), self.right._log_gram(xs, ys))

    def _growth(self, xs: Array, ys: Array | None) -> Array | None:
        left, right = self.left._growth(xs, ys), self.right._growth(xs, ys)
        if left is None and right is None:
            return None
        return jnp.maximum(0 if left is None else left, 0 if right is None else right)

    def _remainder(self, xs: Array, ys: Array | None) -> Array:
        growth = self._growth(xs, ys)
        if growth is None:
            return self._gram(xs, ys)

        def share(part: Kernel) -> Array:  # of this part, relative to the larger growth
            own = part._growth(xs, ys)
            return part._remainder(xs, ys) * jnp.exp((0 if own is None else own) - growth)

        return share(self.left) + share(self.right)

    def _features(self, xs: Array) -> Array:
        return jnp.concatenate([self.left._features(xs), self.right._features(xs)], axis=1)


class Product(PairKernel):
    """K(x, y) = K₁(x, y)·K₂(x, y), written ``k1 * k2``; the features multiply as tensors.

    >>> from finetti.kernels import Linear, RBF
    >>> import jax.numpy as jnp
    >>> float((Linear() * RBF())(jnp.array([2.0]), jnp.array([2.0])))
    4.0
    """

    def _joined(self, left: Any, right: Any) -> Any:
        return left * right

    def _joined_features(self, left: RandomFeatures, right: RandomFeatures) -> PairedFeatures:
        return ProductFeatures(left, right)

    def _log_gram(self, xs: Array, ys: Array | None) -> Array:
        return self.left._log_gram(xs, ys) + self.right._log_gram(xs, ys)

    def _growth(self, xs: Array, ys: Array | None) -> Array | None:
        left, right = self.left._growth(xs, ys), self.right._growth(xs, ys)
        if left is None or right is None:
            return right if left is None else left
        return left + right

    def _remainder(self, xs: Array, ys: Array | None) -> Array:
        return self.left._remainder(xs, ys) * self.right._remainder(xs, ys)

    def _features(self, xs: Array) -> Array:
        left, right = self.left._features(xs), self.right._features(xs)
        return (left[:, :, None] * right[:, None, :]).reshape(len(xs), -1)


class Scaled(Kernel):
    """K(x, y) = c K₁(x, y), written ``c * k``.

    Args:
        part: K₁.
        constant: c > 0, learned through its logarithm.

    >>> from finetti.kernels import Linear
    >>> import jax.numpy as jnp
    >>> round(float((3.0 * Linear())(jnp.array([1.0]), jnp.array([2.0]))), 4)
    6.0
    """

    part: Kernel
    log_constant: Array

    def __init__(self, part: Kernel, constant: Any):
        if not isinstance(part, Kernel):
            raise bad_argument("part", self._name, "a Kernel", repr(part))
        self.part = part
        self.log_constant = log_parameter(constant, "constant", self._name)

    @property
    def constant(self) -> Array:
        """c."""
        return jnp.exp(self.log_constant)

    @property
    def is_positive(self) -> bool:
        """Whether the part is."""
        return self.part.is_positive

    def feature_dimension(self, d: int) -> int | None:
        """That of the part."""
        return self.part.feature_dimension(d)

    def _value(self, x: Array, y: Array) -> Array:
        return positive(self.log_constant, x.dtype) * self.part._value(x, y)

    def _gram(self, xs: Array, ys: Array | None) -> Array:
        return positive(self.log_constant, xs.dtype) * self.part._gram(xs, ys)

    def _diagonal(self, xs: Array) -> Array:
        return positive(self.log_constant, xs.dtype) * self.part._diagonal(xs)

    def _log_gram(self, xs: Array, ys: Array | None) -> Array:
        return self.log_constant.astype(xs.dtype) + self.part._log_gram(xs, ys)

    def _growth(self, xs: Array, ys: Array | None) -> Array | None:
        return self.part._growth(xs, ys)

    def _remainder(self, xs: Array, ys: Array | None) -> Array:
        return positive(self.log_constant, xs.dtype) * self.part._remainder(xs, ys)

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return eqx.tree_at(lambda k: k.part, self, self.part._on_scaled_tokens(log_scale))

    def _features(self, xs: Array) -> Array:
        return positive(self.log_constant, xs.dtype, power=0.5) * self.part._features(xs)

    @property
    def _methods(self) -> tuple[str, ...]:
        return self.part._methods

    def _features_per_draw(self, method: str) -> int:
        return self.part._features_per_draw(method)

    def _draw(self, draw: Draw) -> RandomFeatures:
        return ScaledFeatures(self.part._draw(draw), self.log_constant)


def check_kernel(kernel: Any, owner: str, argument: str = "kernel") -> None:
    """Refuse what is not a kernel: a name, or a class instead of its instance."""
    if not isinstance(kernel, Kernel):
        raise bad_argument(argument, owner, "a Kernel such as RBF()", repr(kernel))


def with_added_log(kernel: KernelType, name: str, log_factor: Array) -> KernelType:
    """The kernel with a parameter multiplied by a factor, both given by their logarithms."""
    value = getattr(kernel, name)
    changed = value + jnp.broadcast_to(log_factor.astype(value.dtype), value.shape)
    return eqx.tree_at(lambda kernel: getattr(kernel, name), kernel, changed)

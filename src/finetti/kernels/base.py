"""What every kernel can do, and the kernels that `+` and `*` make of others."""

import abc
from dataclasses import fields
from itertools import starmap
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.core.arrays import is_concrete
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.core.numbers import as_whole
from finetti.kernels.combined_features import ProductFeatures, ScaledFeatures, SumFeatures
from finetti.kernels.geometry import as_tokens, log_parameter, positive
from finetti.kernels.random_features import RandomFeatures

KernelType = TypeVar("KernelType", bound="Kernel")


class Kernel(eqx.Module):
    """A positive semi-definite similarity K(x, y) = φ(x)·φ(y) of two tokens.

    The public methods check their tokens, bring them to one dtype (which the result keeps) and
    call the abstract ones below, which a member of the family fills in, all of them. A `ys` that
    is None means: among the `xs` themselves, and then the diagonal is exact. Arrays are unbatched;
    use `jax.vmap` for more axes. Kernels combine by `k1 + k2`, `k1 * k2` and `c * k` with c > 0.
    """

    # NumPy scalars must leave `c * k` to the kernel.
    __array_ufunc__: ClassVar[None] = None

    def __call__(self, x: Float[Array, " d"], y: Float[Array, " d"]) -> Float[Array, ""]:
        """K(x, y) of two tokens."""
        return self._value(*as_tokens(self._name, 1, x=x, y=y))

    def gram(
        self, xs: Float[Array, "L d"], ys: Float[Array, "M d"] | None = None
    ) -> Float[Array, "L M"]:
        """The matrix K(x_i, y_j); symmetric with an exact diagonal if ``ys`` is None."""
        return self._gram(*as_tokens(f"{self._name}.gram", 2, xs=xs, ys=ys))

    def diagonal(self, xs: Float[Array, "L d"]) -> Float[Array, " L"]:
        """K(x_i, x_i)."""
        return self._diagonal(*as_tokens(f"{self._name}.diagonal", 2, xs=xs))

    def log_gram(
        self, xs: Float[Array, "L d"], ys: Float[Array, "M d"] | None = None
    ) -> Float[Array, "L M"]:
        """log K(x_i, y_j) without underflow or overflow, for kernels that are `is_positive`."""
        if not self.is_positive:
            raise UnsupportedError(
                f"{self._name} has no logarithm, because it takes negative values. "
                "Use `gram`, or a kernel whose `is_positive` is true."
            )
        return self._log_gram(*as_tokens(f"{self._name}.log_gram", 2, xs=xs, ys=ys))

    def growth(
        self, xs: Float[Array, "L d"], ys: Float[Array, "M d"] | None = None
    ) -> Float[Array, "L M"] | None:
        """g with |K(x_i, y_j)|·exp(−g_ij) of at most polynomial growth; None stands for g = 0."""
        return self._growth(*as_tokens(f"{self._name}.growth", 2, xs=xs, ys=ys))

    def scaled_gram(
        self,
        xs: Float[Array, "L d"],
        ys: Float[Array, "M d"] | None,
        shift: Float[Array, "L M"] | Float[Array, ""] | float,
    ) -> Float[Array, "L M"]:
        """K(x_i, y_j)·exp(−shift_ij), finite whenever `growth` − ``shift`` is moderate."""
        owner = f"{self._name}.scaled_gram"
        xs, ys = as_tokens(owner, 2, xs=xs, ys=ys)
        log_divisor = jnp.asarray(shift, dtype=xs.dtype)
        shape = (len(xs), len(xs if ys is None else ys))
        fits = log_divisor.ndim == 2 and all(
            n in (1, size) for n, size in zip(log_divisor.shape, shape, strict=True)
        )
        if log_divisor.ndim and not fits:
            raise bad_argument(
                "shift", owner, f"a number or of shape {shape}", f"shape {log_divisor.shape}"
            )
        growth = self._growth(xs, ys)
        exponent = -log_divisor if growth is None else growth - log_divisor
        return self._remainder(xs, ys) * jnp.exp(exponent)

    def on_scaled_tokens(self, scale: Array) -> "Kernel":
        """K(√s·x, √s·y) as a kernel of x and y.

        The parameters take the factor s: tokens multiplied by it would be rounded once more.
        """
        return self._on_scaled_tokens(jnp.log(scale))

    def features(self, xs: Float[Array, "L d"]) -> Float[Array, "L D"]:
        """φ(x_i) with φ(x)·φ(y) = K(x, y) exactly, for kernels with a finite feature map."""
        return self._features(*as_tokens(f"{self._name}.features", 2, xs=xs))

    def random_features(
        self,
        key: PRNGKeyArray,
        n_features: int,
        dimension: int,
        method: str | None = None,
        orthogonal: bool = False,
    ) -> RandomFeatures:
        """Draw a random feature map φ with E[φ(x)·φ(y)] = K(x, y).

        Args:
            key: the randomness of the draw, which is then frozen.
            n_features: D, the length of φ(x); a multiple of the features that one draw gives.
            dimension: d of the tokens.
            method: "fourier" (bounded; may give negative estimates), "positive" (never negative),
                or None for the first that the kernel has.
            orthogonal: draw frequencies in orthogonal blocks of d, which lowers the variance.

        Reference: Rahimi and Recht (2007); Choromanski et al. (2021) for "positive".
        """
        owner = f"{self._name}.random_features"
        n_features = as_whole(n_features, "n_features", owner)
        dimension = as_whole(dimension, "dimension", owner)
        if not self._methods:
            raise UnsupportedError(
                f"{self._name} has no random features: it, or a part of it, has no spectral form. "
                + (
                    "Use `features`, its exact feature map, instead."
                    if self.feature_dimension(dimension) is not None
                    else "Use those of its parts, or `gram`, instead."
                )
            )
        if method is None:
            method = self._methods[0]
        elif method not in ("fourier", "positive"):
            raise bad_argument("method", owner, '"fourier", "positive" or None', repr(method))
        elif method not in self._methods:
            raise UnsupportedError(
                f"{self._name} has no {method} random features. "
                f'Use method="{self._methods[0]}" instead.'
            )
        per_draw = self._features_per_draw(method)
        if n_features % per_draw:
            raise bad_argument(
                "n_features",
                owner,
                f"a multiple of {per_draw} (one draw gives {per_draw} features)",
                n_features,
            )
        return self._draw(key, n_features // per_draw, dimension, method, orthogonal)

    def __add__(self, other: Any) -> "Kernel":
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, other) if eqx.is_array_like(other) else NotImplemented

    def __rmul__(self, other: Any) -> "Kernel":
        return self * other

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return f"{self._name}({', '.join(starmap(written_parameter, values))})"

    @property
    @abc.abstractmethod
    def is_positive(self) -> bool:
        """Whether K(x, y) ≥ 0 for all tokens, so that `log_gram` exists."""

    @abc.abstractmethod
    def feature_dimension(self, d: int) -> int | None:
        """D of the finite feature map on tokens of dimension ``d``; None if there is none."""

    @abc.abstractmethod
    def _value(self, x: Array, y: Array) -> Array:
        """K(x, y) by its own formula, a second route to `_gram`."""

    @abc.abstractmethod
    def _gram(self, xs: Array, ys: Array | None) -> Array:
        """K(x_i, y_j)."""

    @abc.abstractmethod
    def _diagonal(self, xs: Array) -> Array:
        """K(x_i, x_i)."""

    @abc.abstractmethod
    def _log_gram(self, xs: Array, ys: Array | None) -> Array:
        """log K(x_i, y_j); called only if `is_positive`."""

    @abc.abstractmethod
    def _growth(self, xs: Array, ys: Array | None) -> Array | None:
        """The exponential part of the magnitude, g."""

    @abc.abstractmethod
    def _remainder(self, xs: Array, ys: Array | None) -> Array:
        """K(x_i, y_j)·exp(−g_ij)."""

    @abc.abstractmethod
    def _on_scaled_tokens(self, log_scale: Array) -> "Kernel":
        """K(√s·x, √s·y), given log s."""

    @abc.abstractmethod
    def _features(self, xs: Array) -> Array:
        """φ(x_i), or `no_features`."""

    @property
    @abc.abstractmethod
    def _methods(self) -> tuple[str, ...]:
        """The methods of `random_features`, preferred first; empty if there is no spectral form."""

    @abc.abstractmethod
    def _features_per_draw(self, method: str) -> int:
        """How many features one draw gives."""

    @abc.abstractmethod
    def _draw(
        self, key: PRNGKeyArray, n_draws: int, dimension: int, method: str, orthogonal: bool
    ) -> RandomFeatures:
        """The random feature map of ``n_draws`` draws; called only with one of `_methods`."""


class PairKernel(Kernel):
    """Abstract: what `Sum` and `Product` share."""

    left: Kernel
    right: Kernel

    def __check_init__(self):
        for argument, part in (("left", self.left), ("right", self.right)):
            if not isinstance(part, Kernel):
                raise bad_argument(argument, self._name, "a Kernel", repr(part))

    @property
    def is_positive(self) -> bool:
        """Whether both parts are."""
        return self.left.is_positive and self.right.is_positive

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return type(self)(
            self.left._on_scaled_tokens(log_scale), self.right._on_scaled_tokens(log_scale)
        )

    @property
    def _methods(self) -> tuple[str, ...]:
        # One method for both parts; the order of preference is that of the left one.
        return tuple(method for method in self.left._methods if method in self.right._methods)


class Sum(PairKernel):
    """K(x, y) = K₁(x, y) + K₂(x, y), written ``k1 + k2``; the features stand side by side.

    >>> from finetti.kernels import Linear, RBF
    >>> import jax.numpy as jnp
    >>> float((Linear() + RBF())(jnp.array([2.0]), jnp.array([2.0])))
    5.0
    """

    def feature_dimension(self, d: int) -> int | None:
        """D₁ + D₂."""
        left, right = self.left.feature_dimension(d), self.right.feature_dimension(d)
        return None if left is None or right is None else left + right

    def _value(self, x: Array, y: Array) -> Array:
        return self.left._value(x, y) + self.right._value(x, y)

    def _gram(self, xs: Array, ys: Array | None) -> Array:
        return self.left._gram(xs, ys) + self.right._gram(xs, ys)

    def _diagonal(self, xs: Array) -> Array:
        return self.left._diagonal(xs) + self.right._diagonal(xs)

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

    def _features_per_draw(self, method: str) -> int:
        return self.left._features_per_draw(method) + self.right._features_per_draw(method)

    def _draw(
        self, key: PRNGKeyArray, n_draws: int, dimension: int, method: str, orthogonal: bool
    ) -> RandomFeatures:
        keys = jax.random.split(key)
        return SumFeatures(
            self.left._draw(keys[0], n_draws, dimension, method, orthogonal),
            self.right._draw(keys[1], n_draws, dimension, method, orthogonal),
        )


class Product(PairKernel):
    """K(x, y) = K₁(x, y)·K₂(x, y), written ``k1 * k2``; the features multiply as tensors.

    >>> from finetti.kernels import Linear, RBF
    >>> import jax.numpy as jnp
    >>> float((Linear() * RBF())(jnp.array([2.0]), jnp.array([2.0])))
    4.0
    """

    def feature_dimension(self, d: int) -> int | None:
        """D₁ D₂."""
        left, right = self.left.feature_dimension(d), self.right.feature_dimension(d)
        return None if left is None or right is None else left * right

    def _value(self, x: Array, y: Array) -> Array:
        return self.left._value(x, y) * self.right._value(x, y)

    def _gram(self, xs: Array, ys: Array | None) -> Array:
        return self.left._gram(xs, ys) * self.right._gram(xs, ys)

    def _diagonal(self, xs: Array) -> Array:
        return self.left._diagonal(xs) * self.right._diagonal(xs)

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

    def _features_per_draw(self, method: str) -> int:
        return self.left._features_per_draw(method) * self.right._features_per_draw(method)

    def _draw(
        self, key: PRNGKeyArray, n_draws: int, dimension: int, method: str, orthogonal: bool
    ) -> RandomFeatures:
        keys = jax.random.split(key)  # independent: the expectation of the product factorizes
        return ProductFeatures(
            self.left._draw(keys[0], n_draws, dimension, method, orthogonal),
            self.right._draw(keys[1], n_draws, dimension, method, orthogonal),
        )


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

    def _draw(
        self, key: PRNGKeyArray, n_draws: int, dimension: int, method: str, orthogonal: bool
    ) -> RandomFeatures:
        draw = self.part._draw(key, n_draws, dimension, method, orthogonal)
        return ScaledFeatures(draw, self.log_constant)


def written_parameter(name: str, value: Any) -> str:
    """name=value; a parameter that is kept by its logarithm as itself, where it can be seen."""
    if name.startswith("log_") and value is not None:
        name = name.removeprefix("log_")
        if not is_concrete(value):
            return f"{name}={value}"
        parameter = np.asarray(np.exp(np.asarray(value, dtype=float)))
        style: Any = {"float_kind": "{:.4g}".format}
        value = np.array2string(parameter, formatter=style, separator=", ")
    return f"{name}={value}"


def check_kernel(kernel: Any, owner: str) -> None:
    """Refuse what is not a kernel: a name, or a class instead of its instance."""
    if not isinstance(kernel, Kernel):
        raise bad_argument("kernel", owner, "a Kernel such as RBF()", repr(kernel))


def no_features(kernel: Kernel) -> UnsupportedError:
    """The error of a kernel whose feature space has infinite dimension."""
    return UnsupportedError(
        f"{type(kernel).__name__} has no finite feature map. "
        "Use `random_features` for an unbiased one, or `gram` for the exact kernel."
    )


def with_added_log(kernel: KernelType, name: str, log_factor: Array) -> KernelType:
    """The kernel with a parameter multiplied by a factor, both given by their logarithms."""
    value = getattr(kernel, name)
    changed = value + jnp.broadcast_to(log_factor.astype(value.dtype), value.shape)
    return eqx.tree_at(lambda kernel: getattr(kernel, name), kernel, changed)

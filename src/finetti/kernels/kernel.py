"""Kernels: what can be asked of one, and what a new one has to say."""

import abc
from dataclasses import fields
from itertools import starmap
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num, PRNGKeyArray

from finetti.core.arguments import as_whole, check_positive
from finetti.core.arrays import is_concrete
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.kernels.feature_draws import FEATURES_PER_DRAW, Draw, RandomFeatures
from finetti.kernels.token_geometry import as_tokens, log_parameter, positive

KernelType = TypeVar("KernelType", bound="Kernel")


class Kernel(eqx.Module):
    """Abstract: a positive semi-definite similarity K(x, y) = φ(x)·φ(y) of two tokens.

    A kernel of your own is a subclass with its parameters as fields and one method, `_gram`, the
    formula. The other methods have defaults made of it; a kernel overrides those that it can answer
    better, and states what is true of it: `is_positive`, `grows`, `feature_dimension`.

    The public methods check their tokens and bring them to one dtype, which the result keeps.
    Arrays are unbatched; use `jax.vmap` for more axes. Kernels combine by ``k1 + k2``, ``k1 * k2``
    and ``c * k`` with c > 0.

    >>> import jax.numpy as jnp
    >>> class Cosine(Kernel):
    ...     def _gram(self, xs, ys):
    ...         return jnp.cos(xs[:, None, 0] - ys[None, :, 0])
    >>> round(float((2.0 * Cosine())(jnp.array([0.0]), jnp.array([0.0]))), 4)
    2.0
    """

    # NumPy scalars must leave `c * k` to the kernel.
    __array_ufunc__: ClassVar[None] = None

    @property
    def is_positive(self) -> bool:
        """Whether K(x, y) > 0 for all tokens, so that `log_gram` exists. False unless stated."""
        return False

    @property
    def grows(self) -> bool:
        """Whether K grows exponentially with the tokens, so that Gram matrices may overflow and are
        computed from `log_gram`. False unless stated."""
        return False

    @property
    def has_noise(self) -> bool:
        """Whether K has a part that is 0 between any two different tokens (`White`)."""
        return False

    @property
    def random_feature_methods(self) -> tuple[str, ...]:
        """The methods of `random_features`, preferred first; none unless stated."""
        return ()

    def feature_dimension(self, d: int) -> int | None:
        """The length of `features` for tokens of dimension ``d``; None, for no such map, unless
        stated."""
        return None

    def __call__(self, x: Num[ArrayLike, " d"], y: Num[ArrayLike, " d"]) -> Float[Array, ""]:
        """K(x, y) of two tokens."""
        one, other = as_tokens(self._name, 1, x=x, y=y)
        return self._gram(one[None, :], other[None, :])[0, 0]

    def gram(
        self, xs: Num[ArrayLike, "L d"], ys: Num[ArrayLike, "M d"] | None = None
    ) -> Float[Array, "L M"]:
        """The matrix K(x_i, y_j); without ``ys`` that of the ``xs`` among themselves."""
        rows, columns = as_tokens(f"{self._name}.gram", 2, xs=xs, ys=ys)
        return self._own_gram(rows) if columns is None else self._gram(rows, columns)

    def diagonal(self, xs: Num[ArrayLike, "L d"]) -> Float[Array, " L"]:
        """K(x_i, x_i)."""
        return self._diagonal(*as_tokens(f"{self._name}.diagonal", 2, xs=xs))

    def log_gram(
        self, xs: Num[ArrayLike, "L d"], ys: Num[ArrayLike, "M d"] | None = None
    ) -> Float[Array, "L M"]:
        """log K(x_i, y_j) without underflow or overflow, for kernels that are `is_positive`."""
        if not self.is_positive:
            raise UnsupportedError(
                f"{self._name} has no logarithm, because it is not positive everywhere. "
                "Use `gram`, or a kernel whose `is_positive` is true."
            )
        rows, columns = as_tokens(f"{self._name}.log_gram", 2, xs=xs, ys=ys)
        return self._log_gram(rows, rows if columns is None else columns)

    def log_diagonal(self, xs: Num[ArrayLike, "L d"]) -> Float[Array, " L"]:
        """log K(x_i, x_i), for kernels that are `is_positive`."""

        def of_token(token: Array) -> Array:
            return self.log_gram(token[None, :])[0, 0]

        return jax.vmap(of_token)(*as_tokens(f"{self._name}.log_diagonal", 2, xs=xs))

    def features(self, xs: Num[ArrayLike, "L d"]) -> Float[Array, "L D"]:
        """φ(x_i) with φ(x)·φ(y) = K(x, y) exactly, for kernels with a finite feature map."""
        (tokens,) = as_tokens(f"{self._name}.features", 2, xs=xs)
        if self.feature_dimension(tokens.shape[1]) is None:
            raise UnsupportedError(
                f"{self._name} has no finite feature map. Use `gram`, the exact kernel, or "
                "`random_features` where the kernel has them."
            )
        return self._features(tokens)

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
        owner, methods = f"{self._name}.random_features", self.random_feature_methods
        n_features = as_whole(n_features, "n_features", owner)
        dimension = as_whole(dimension, "dimension", owner)
        if not methods:
            exact = self.feature_dimension(dimension) is not None
            instead = "`features`, its exact feature map" if exact else "`gram`, or a part's"
            raise UnsupportedError(f"{self._name} has no random features. Use {instead}.")
        method = methods[0] if method is None else method
        if method not in FEATURES_PER_DRAW:
            raise bad_argument("method", owner, '"fourier", "positive" or None', repr(method))
        if method not in methods:
            raise UnsupportedError(
                f'{self._name} has no {method} random features. Use method="{methods[0]}" instead.'
            )
        per_draw = FEATURES_PER_DRAW[method]
        if n_features % per_draw:
            requirement = f"a multiple of {per_draw} (one draw gives {per_draw} features)"
            raise bad_argument("n_features", owner, requirement, n_features)
        return self._draw(Draw(key, n_features // per_draw, dimension, method, orthogonal))

    def on_scaled_tokens(self, scale: Array) -> "Kernel":
        """K(√s·x, √s·y) as a kernel of x and y.

        The parameters take the factor s: tokens multiplied by it would be rounded once more.
        """
        check_positive(scale, "scale", f"{self._name}.on_scaled_tokens")
        return self._on_scaled_tokens(jnp.log(scale))

    def __add__(self, other: Any) -> "Kernel":
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, other) if eqx.is_array_like(other) else NotImplemented

    def __rmul__(self, other: Any) -> "Kernel":
        return self * other

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return f"{self._name}({', '.join(starmap(written_parameter, values))})"

    def __pdoc__(self, **_: Any) -> wadler_lindig.AbstractDoc:
        # Inside another module Equinox would write the shapes of the leaves.
        return wadler_lindig.TextDoc(repr(self))

    @property
    def _name(self) -> str:
        return type(self).__name__

    @abc.abstractmethod
    def _gram(self, xs: Array, ys: Array) -> Array:
        """The matrix K(x_i, y_j) of two arrays of tokens."""

    def _own_gram(self, xs: Array) -> Array:
        """The matrix K(x_i, x_j), where it can be had symmetric or with an exact diagonal."""
        return self._gram(xs, xs)

    def _diagonal(self, xs: Array) -> Array:
        """K(x_i, x_i), token by token."""
        return jax.vmap(lambda token: self._own_gram(token[None, :])[0, 0])(xs)

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        """log K(x_i, y_j); called only if `is_positive`."""
        return jnp.log(self._gram(xs, ys))

    def _features(self, xs: Array) -> Array:
        """φ(x_i); called only if there is a `feature_dimension`."""
        raise NotImplementedError(f"{self._name} states a feature_dimension and has no _features.")

    def _draw(self, draw: Draw) -> RandomFeatures:
        """The random feature map; called only with one of `random_feature_methods`."""
        raise NotImplementedError(f"{self._name} states random features and has no _draw.")

    def _on_scaled_tokens(self, log_scale: Array) -> "Kernel":
        """K(√s·x, √s·y), given log s."""
        return OnScaledTokens(self, log_scale)


class PairKernel(Kernel):
    """Abstract: what `Sum` and `Product` share."""

    left: Kernel
    right: Kernel

    def __check_init__(self):
        for argument, part in (("left", self.left), ("right", self.right)):
            if not isinstance(part, Kernel):
                raise bad_argument(argument, self._name, "a Kernel", repr(part))

    @abc.abstractmethod
    def _combine(self, left: Any, right: Any) -> Any:
        """Combine two values, or two numbers of features: + for a sum, × for a product."""

    @property
    def is_positive(self) -> bool:
        """Whether both parts are."""
        return self.left.is_positive and self.right.is_positive

    @property
    def grows(self) -> bool:
        """Whether a part does."""
        return self.left.grows or self.right.grows

    @property
    def has_noise(self) -> bool:
        """Whether a part has."""
        return self.left.has_noise or self.right.has_noise

    def feature_dimension(self, d: int) -> int | None:
        """D₁ + D₂ of a sum, D₁ D₂ of a product."""
        left, right = self.left.feature_dimension(d), self.right.feature_dimension(d)
        return None if left is None or right is None else self._combine(left, right)

    def _gram(self, xs: Array, ys: Array) -> Array:
        return self._combine(self.left._gram(xs, ys), self.right._gram(xs, ys))

    def _own_gram(self, xs: Array) -> Array:
        return self._combine(self.left._own_gram(xs), self.right._own_gram(xs))

    def _diagonal(self, xs: Array) -> Array:
        return self._combine(self.left._diagonal(xs), self.right._diagonal(xs))

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        parts = (part._on_scaled_tokens(log_scale) for part in (self.left, self.right))
        return type(self)(*parts)


class Sum(PairKernel):
    """K(x, y) = K₁(x, y) + K₂(x, y), written ``k1 + k2``; the features stand side by side.

    >>> from finetti.kernels import Linear, RBF
    >>> import jax.numpy as jnp
    >>> float((Linear() + RBF())(jnp.array([2.0]), jnp.array([2.0])))
    5.0
    """

    def _combine(self, left: Any, right: Any) -> Any:
        return left + right

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        return jnp.logaddexp(self.left._log_gram(xs, ys), self.right._log_gram(xs, ys))

    def _features(self, xs: Array) -> Array:
        return jnp.concatenate([self.left._features(xs), self.right._features(xs)], axis=1)


class Product(PairKernel):
    """K(x, y) = K₁(x, y)·K₂(x, y), written ``k1 * k2``; the features multiply as tensors.

    >>> from finetti.kernels import Linear, RBF
    >>> import jax.numpy as jnp
    >>> float((Linear() * RBF())(jnp.array([2.0]), jnp.array([2.0])))
    4.0
    """

    def _combine(self, left: Any, right: Any) -> Any:
        return left * right

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        return self.left._log_gram(xs, ys) + self.right._log_gram(xs, ys)

    def _features(self, xs: Array) -> Array:
        left, right = self.left._features(xs), self.right._features(xs)
        return (left[:, :, None] * right[:, None, :]).reshape(len(xs), -1)


class WrappedKernel(Kernel):
    """Abstract: a kernel made of one other, of which the same is true."""

    part: Kernel

    @property
    def is_positive(self) -> bool:
        """Whether the part is."""
        return self.part.is_positive

    @property
    def grows(self) -> bool:
        """Whether the part does."""
        return self.part.grows

    @property
    def has_noise(self) -> bool:
        """Whether the part has."""
        return self.part.has_noise

    def feature_dimension(self, d: int) -> int | None:
        """That of the part."""
        return self.part.feature_dimension(d)


class Scaled(WrappedKernel):
    """K(x, y) = c K₁(x, y), written ``c * k``.

    Args:
        part: K₁.
        constant: c > 0, learned through its logarithm.

    >>> from finetti.kernels import Linear
    >>> import jax.numpy as jnp
    >>> round(float((3.0 * Linear())(jnp.array([1.0]), jnp.array([2.0]))), 4)
    6.0
    """

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

    def _gram(self, xs: Array, ys: Array) -> Array:
        return positive(self.log_constant, xs.dtype) * self.part._gram(xs, ys)

    def _own_gram(self, xs: Array) -> Array:
        return positive(self.log_constant, xs.dtype) * self.part._own_gram(xs)

    def _diagonal(self, xs: Array) -> Array:
        return positive(self.log_constant, xs.dtype) * self.part._diagonal(xs)

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        return self.log_constant.astype(xs.dtype) + self.part._log_gram(xs, ys)

    def _features(self, xs: Array) -> Array:
        return positive(self.log_constant, xs.dtype, power=0.5) * self.part._features(xs)

    def _on_scaled_tokens(self, log_scale: Array) -> Kernel:
        return eqx.tree_at(lambda k: k.part, self, self.part._on_scaled_tokens(log_scale))


class OnScaledTokens(WrappedKernel):
    """K₁(√s·x, √s·y), for kernels without a parameter that could take the factor."""

    log_scale: Array

    def _scaled(self, tokens: Array) -> Array:
        return tokens * positive(self.log_scale, tokens.dtype, power=0.5)

    def _gram(self, xs: Array, ys: Array) -> Array:
        return self.part._gram(self._scaled(xs), self._scaled(ys))

    def _own_gram(self, xs: Array) -> Array:
        return self.part._own_gram(self._scaled(xs))

    def _diagonal(self, xs: Array) -> Array:
        return self.part._diagonal(self._scaled(xs))

    def _log_gram(self, xs: Array, ys: Array) -> Array:
        return self.part._log_gram(self._scaled(xs), self._scaled(ys))

    def _features(self, xs: Array) -> Array:
        return self.part._features(self._scaled(xs))


def check_kernel(kernel: Any, owner: str, argument: str = "kernel") -> None:
    """Refuse what is not a kernel: a name, or a class instead of its instance."""
    if not isinstance(kernel, Kernel):
        raise bad_argument(argument, owner, "a Kernel such as RBF()", repr(kernel))


def with_added_log(kernel: KernelType, name: str, log_factor: Array) -> KernelType:
    """The kernel with a parameter multiplied by a factor, both given by their logarithms."""
    value = getattr(kernel, name)
    changed = value + jnp.broadcast_to(log_factor.astype(value.dtype), value.shape)
    return eqx.tree_at(lambda kernel: getattr(kernel, name), kernel, changed)


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


def in_float64(kernel: Kernel) -> Kernel:
    """The kernel with its parameters as NumPy arrays: those of JAX lose float64 in a pickle.

    A parameter that was kept in single precision, by its logarithm, is read as it was written:
    RBF(0.7) is that of 0.7.
    """

    def widened(path: Any, leaf: Any) -> np.ndarray:
        if leaf.dtype == np.float32 and path[-1].name.startswith("log_"):
            return np.vectorize(_log_as_written, otypes=[np.float64])(leaf)
        return np.asarray(leaf, np.float64)

    return jax.tree_util.tree_map_with_path(widened, kernel)


def _log_as_written(log_value: float) -> float:
    """log of the shortest decimal of which single precision keeps this logarithm.

    The decimal was rounded before its logarithm was taken: near 1 that moves the logarithm by much
    more than its own unit. JAX's logarithm is off by up to two units.
    """
    value, unit = np.exp(np.float64(log_value)), np.spacing(np.float32(abs(log_value)))
    for digits in range(1, 9):
        written = float(f"{value:.{digits}g}")
        if abs(np.log(np.float64(np.float32(written))) - log_value) <= 2 * unit:
            return float(np.log(written))
    return float(log_value)

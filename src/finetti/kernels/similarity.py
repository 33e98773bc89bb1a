"""What can be asked of a kernel: values, Gram matrices, exact and random features."""

import abc
from dataclasses import fields
from itertools import starmap
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import wadler_lindig
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num, PRNGKeyArray

from finetti.core.arrays import is_concrete
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.core.numbers import as_whole
from finetti.kernels.geometry import as_tokens
from finetti.kernels.random_features import Draw, RandomFeatures


class Similarity(eqx.Module):
    """A positive semi-definite similarity K(x, y) = φ(x)·φ(y) of two tokens.

    The public methods check their tokens, bring them to one dtype (which the result keeps) and
    call the abstract ones below, which a member of the family fills in, all of them. A `ys` that
    is None means: among the `xs` themselves, and then the diagonal is exact. Arrays are unbatched;
    use `jax.vmap` for more axes.
    """

    def __call__(self, x: Num[ArrayLike, " d"], y: Num[ArrayLike, " d"]) -> Float[Array, ""]:
        """K(x, y) of two tokens."""
        return self._value(*as_tokens(self._name, 1, x=x, y=y))

    def gram(
        self, xs: Num[ArrayLike, "L d"], ys: Num[ArrayLike, "M d"] | None = None
    ) -> Float[Array, "L M"]:
        """The matrix K(x_i, y_j); symmetric with an exact diagonal if ``ys`` is None."""
        return self._gram(*as_tokens(f"{self._name}.gram", 2, xs=xs, ys=ys))

    def diagonal(self, xs: Num[ArrayLike, "L d"]) -> Float[Array, " L"]:
        """K(x_i, x_i)."""
        return self._diagonal(*as_tokens(f"{self._name}.diagonal", 2, xs=xs))

    def log_gram(
        self, xs: Num[ArrayLike, "L d"], ys: Num[ArrayLike, "M d"] | None = None
    ) -> Float[Array, "L M"]:
        """log K(x_i, y_j) without underflow or overflow, for kernels that are `is_positive`."""
        if not self.is_positive:
            raise UnsupportedError(
                f"{self._name} has no logarithm, because it takes negative values. "
                "Use `gram`, or a kernel whose `is_positive` is true."
            )
        return self._log_gram(*as_tokens(f"{self._name}.log_gram", 2, xs=xs, ys=ys))

    def growth(
        self, xs: Num[ArrayLike, "L d"], ys: Num[ArrayLike, "M d"] | None = None
    ) -> Float[Array, "L M"] | None:
        """g with |K(x_i, y_j)|·exp(−g_ij) of at most polynomial growth; None stands for g = 0."""
        return self._growth(*as_tokens(f"{self._name}.growth", 2, xs=xs, ys=ys))

    def scaled_gram(
        self,
        xs: Num[ArrayLike, "L d"],
        ys: Num[ArrayLike, "M d"] | None,
        shift: Num[ArrayLike, "#L #M"] | Num[ArrayLike, ""],
    ) -> Float[Array, "L M"]:
        """K(x_i, y_j)·exp(−shift_ij), finite whenever `growth` − ``shift`` is moderate."""
        owner = f"{self._name}.scaled_gram"
        rows, columns = as_tokens(owner, 2, xs=xs, ys=ys)
        log_divisor = jnp.asarray(shift, dtype=rows.dtype)
        shape = (len(rows), len(rows if columns is None else columns))
        fits = log_divisor.ndim == 2 and all(
            n in (1, size) for n, size in zip(log_divisor.shape, shape, strict=True)
        )
        if log_divisor.ndim and not fits:
            requirement = f"a number or of shape {shape}"
            raise bad_argument("shift", owner, requirement, f"shape {log_divisor.shape}")
        growth = self._growth(rows, columns)
        exponent = -log_divisor if growth is None else growth - log_divisor
        return self._remainder(rows, columns) * jnp.exp(exponent)

    def features(self, xs: Num[ArrayLike, "L d"]) -> Float[Array, "L D"]:
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
            exact = self.feature_dimension(dimension) is not None
            instead = (
                "`features`, its exact feature map" if exact else "those of its parts, or `gram`"
            )
            raise UnsupportedError(
                f"{self._name} has no random features: it, or a part of it, has no spectral form. "
                f"Use {instead}, instead."
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
            requirement = f"a multiple of {per_draw} (one draw gives {per_draw} features)"
            raise bad_argument("n_features", owner, requirement, n_features)
        return self._draw(Draw(key, n_features // per_draw, dimension, method, orthogonal))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return f"{self._name}({', '.join(starmap(written_parameter, values))})"

    def __pdoc__(self, **_: Any) -> wadler_lindig.AbstractDoc:
        # Inside another module Equinox would write the shapes of the leaves.
        return wadler_lindig.TextDoc(repr(self))

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
    def _features(self, xs: Array) -> Array:
        """φ(x_i), or an error that says what to use instead."""

    @property
    @abc.abstractmethod
    def _methods(self) -> tuple[str, ...]:
        """The methods of `random_features`, preferred first; empty if there is no spectral form."""

    @abc.abstractmethod
    def _features_per_draw(self, method: str) -> int:
        """How many features one draw gives."""

    @abc.abstractmethod
    def _draw(self, draw: Draw) -> RandomFeatures:
        """The random feature map; called only with one of `_methods`."""


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

"""Targets of paper R as functions one can evaluate: averages over the keys of a polynomial."""

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.bounds.random_features.correlation_targets import BiasedNorm, CorrelationTarget
from finetti.bounds.random_features.polynomial_targets import Target
from finetti.bounds.random_features.random_feature_risk import (
    BiasedRisk,
    RandomFeatureClass,
    RandomFeatureRisk,
)
from finetti.bounds.random_features.target_norms import AttentionNorm, NetworkNorm
from finetti.bounds.sample import Sample
from finetti.core.arguments import Form, as_whole
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.estimators.ridge import Floats


class TokenTarget(abc.ABC):
    """f*(x₀, x_{1:N}) = (1/N) Σ_i Σ_rs ⟨f_rs, x₀^{⊗r} ⊗ x_i^{⊗s}⟩ on tokens of length 1.

    A target is called with queries (n, d) and keys (n, N, d). Its norms are those of
    `finetti.bounds.random_features`: B of random-feature attention, printed and sharp, of the
    network, and of biased heads. The theorems say how samples and heads grow with them, up to a
    constant that they do not say: `risk(…).samples_needed(…, constant=C)` takes yours.
    """

    @abc.abstractmethod
    def __call__(self, query: Any, keys: Any) -> Floats:
        """(n,)."""

    @property
    @abc.abstractmethod
    def n_features(self) -> int:
        """d."""

    @property
    @abc.abstractmethod
    def description(self) -> Target:
        """What the bounds need to know of it."""

    @abc.abstractmethod
    def tensors(self) -> dict[tuple[int, int], Floats]:
        """f_rs with r + s axes of length d, those of the query first."""

    @property
    def mean(self) -> float:
        """E f* of independent tokens, uniform on the sphere, exactly."""
        return sum(
            float(_sphere_mean(_sphere_mean(tensor, s), r))
            for (r, s), tensor in self.tensors().items()
        )

    def attention_norm(self, form: Form = "derived") -> float:
        """B(f*): E‖v(W)‖² of infinitely many heads is at most this (R-norm-rfa).

        Derived: Σ‖Sym f_rs‖²/κ_rs, sharp constants. Printed: Σ C_k‖f_rs‖², up to a constant.
        """
        return AttentionNorm(self.description, form=form).evaluate(Sample(1, 1)).value

    def network_norm(self, n_keys: int) -> float:
        """B_MLP(f*) for the random-feature network on N keys (R-norm-mlp)."""
        return NetworkNorm(self.description).evaluate(Sample(1, n_keys)).value

    def biased_norm(self, terms: int = 1) -> float:
        """B(f*, L) of heads with the mean W₀ = I, free of d (R-norm-brfa)."""
        target = self._of_correlations("a d-free norm")
        return BiasedNorm(target, terms).evaluate(Sample(1, 1)).value

    def risk(self, n_heads: int, *, biased: bool = False, form: Form = "derived") -> Any:
        """The theorem's excess risk of M heads on this target: a scaling quantity, constant unknown

        ``risk(M).samples_needed(gap, sample, constant=C)`` and ``.heads_needed`` invert it.

        >>> target = KeyPowerTarget(np.eye(16)[0], 2)
        >>> target.risk(10**6).samples_needed(0.5, Sample(1, 16), constant=0.1).value > 100
        True
        """
        if biased:
            target = self._of_correlations("a risk of biased heads")
            return BiasedRisk(self.n_features, n_heads, target, form=form)
        features = RandomFeatureClass(self.n_features, n_heads, self.description)
        return RandomFeatureRisk(features, form=form)

    def _of_correlations(self, what: str) -> CorrelationTarget:
        raise UnsupportedError(
            f"{type(self).__name__} has no {what}: that is known for (1/N) Σ_i F(⟨x₀, x_i⟩)⟨β, "
            "x_i⟩ only, as CorrelationPowerTarget is. Use `attention_norm` and `risk`."
        )


@dataclass(frozen=True, eq=False)
class KeyPowerTarget(TokenTarget):
    """f_{1,p} = (1/N) Σ_i ⟨β, x_i⟩^p: its norm is free of N and d, that of the network is not.

    Args:
        direction: β, (d,).
        degree: p ≥ 1.

    >>> target = KeyPowerTarget(np.eye(16)[0], 2)
    >>> round(target.attention_norm(), 2), round(target.network_norm(16)), target.mean
    (12.87, 254, 0.0625)
    """

    direction: Floats
    degree: int

    def __post_init__(self) -> None:
        _check_direction(self)

    def __call__(self, query: Any, keys: Any) -> Floats:
        """(n,)."""
        return np.mean((np.asarray(keys) @ self.direction) ** self.degree, axis=-1)

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.direction)

    @property
    def description(self) -> Target:
        """One component, of degrees (0, p)."""
        return Target.key_power(self.degree, float(np.linalg.norm(self.direction)))

    @property
    def mean(self) -> float:
        """‖β‖^p E a^p, a a coordinate of a point on the sphere."""
        return float(np.linalg.norm(self.direction)) ** self.degree * _coordinate_moment(
            self.degree, self.n_features
        )

    def tensors(self) -> dict[tuple[int, int], Floats]:
        """β^{⊗p}."""
        return {(0, self.degree): _power(self.direction, self.degree)}


@dataclass(frozen=True, eq=False)
class CorrelationPowerTarget(TokenTarget):
    """f_{2,q} = (1/N) Σ_i ⟨x₀, x_i⟩^q ⟨β, x_i⟩: its norm grows like d^q, that of biased heads not.

    Args:
        direction: β, (d,).
        degree: q ≥ 1.

    >>> target = CorrelationPowerTarget(np.eye(16)[0], 1)
    >>> round(target.attention_norm()), f"{target.biased_norm():.1e}"
    (91, '3.6e+04')
    """

    direction: Floats
    degree: int

    def __post_init__(self) -> None:
        _check_direction(self)

    def __call__(self, query: Any, keys: Any) -> Floats:
        """(n,)."""
        keys = np.asarray(keys)
        correlation = np.einsum("...d,...nd->...n", query, keys)
        return np.mean(correlation**self.degree * (keys @ self.direction), axis=-1)

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.direction)

    @property
    def description(self) -> Target:
        """One component, of degrees (q, q + 1)."""
        norm = float(np.linalg.norm(self.direction))
        return Target.correlation_times_power(self.degree, 1, self.n_features, norm)

    @property
    def mean(self) -> float:
        """0: the sign of x_i, or that of x₀, decides the sign."""
        return 0.0

    def tensors(self) -> dict[tuple[int, int], Floats]:
        """I ⊗ … ⊗ I ⊗ β, the slots of x₀ first."""
        tensor = self.direction
        for _ in range(self.degree):
            tensor = np.multiply.outer(np.eye(self.n_features), tensor)
        # Axes are x₀, x, x₀, x, …, x.
        pairs = range(0, 2 * self.degree, 2)
        order = [*pairs, *(axis + 1 for axis in pairs), 2 * self.degree]
        return {(self.degree, self.degree + 1): tensor.transpose(order)}

    def _of_correlations(self, what: str) -> CorrelationTarget:
        coefficients = (0.0,) * self.degree + (1.0,)
        return CorrelationTarget(coefficients, float(np.linalg.norm(self.direction)))


@dataclass(frozen=True, eq=False)
class TensorTarget(TokenTarget):
    """Any target of the class, by its tensors.

    Args:
        coefficients: (r, s) → f_rs, an array with r + s axes of length d, those of the query first.

    >>> target = TensorTarget({(1, 1): np.eye(4), (0, 0): np.array(2.0)})  # 2 + ⟨x₀, x_i⟩
    >>> target(np.eye(4)[:1], np.eye(4)[None]).tolist(), target.mean
    ([2.25], 2.0)
    """

    coefficients: Mapping[tuple[int, int], Any]

    def __post_init__(self) -> None:
        tensors = {each: np.asarray(f, np.float64) for each, f in self.coefficients.items()}
        object.__setattr__(self, "coefficients", tensors)
        Target.from_tensors(tensors)  # refuses what is not one
        if len({length for f in tensors.values() for length in f.shape}) != 1:
            wanted = "arrays with axes of one length d, one of them at least with an axis"
            shapes = [f.shape for f in tensors.values()]
            raise bad_argument("coefficients", "TensorTarget", wanted, f"shapes {shapes}")

    def __call__(self, query: Any, keys: Any) -> Floats:
        """(n,)."""
        query, keys = np.asarray(query, np.float64), np.asarray(keys, np.float64)
        total = np.zeros(keys.shape[:-1])
        for (r, s), tensor in self.coefficients.items():
            found = np.broadcast_to(tensor, (*keys.shape[:-1], *tensor.shape))
            for _ in range(s):
                found = np.einsum("...d,...d->...", found, _aligned(keys, found))
            for _ in range(r):
                found = np.einsum("...d,...d->...", found, _aligned(query[..., None, :], found))
            total = total + found
        return total.mean(axis=-1)

    @property
    def n_features(self) -> int:
        """d."""
        return next(length for f in self.coefficients.values() for length in f.shape)

    @property
    def description(self) -> Target:
        """One component per tensor."""
        return Target.from_tensors(self.coefficients)

    def tensors(self) -> dict[tuple[int, int], Floats]:
        """As they were given."""
        return dict(self.coefficients)


def _aligned(tokens: Floats, tensor: Floats) -> Floats:
    """Tokens (n, N, d) with axes of one for the slots of ``tensor`` before its last."""
    return tokens.reshape(*tokens.shape[:-1], *(1,) * (tensor.ndim - tokens.ndim), -1)


def _sphere_mean(tensor: Floats, slots: int) -> Floats:
    """E of the contraction of the last ``slots`` axes with a uniform point of the sphere

    By pairs, as for a normal vector: the last slot meets each other one, and d + s − 2 in the
    denominator takes the length away.
    """
    if slots == 0:
        return np.asarray(tensor)
    if slots % 2:
        return np.zeros(tensor.shape[: tensor.ndim - slots])
    last = tensor.ndim - 1
    parts = [
        _sphere_mean(np.trace(tensor, axis1=axis, axis2=last), slots - 2)
        for axis in range(tensor.ndim - slots, last)
    ]
    return sum(parts, start=np.zeros(())) / (tensor.shape[-1] + slots - 2)


def _coordinate_moment(degree: int, dimension: int) -> float:
    """E a^p of a coordinate of a uniform point of the sphere."""
    if degree % 2:
        return 0.0
    return math.prod((k + 1) / (dimension + k) for k in range(0, degree, 2))


def _power(vector: Floats, degree: int) -> Floats:
    tensor = np.ones(())
    for _ in range(degree):
        tensor = np.multiply.outer(tensor, vector)
    return tensor


def _check_direction(target: Any) -> None:
    owner = type(target).__name__
    direction = np.asarray(target.direction, np.float64)
    if direction.ndim != 1 or not np.isfinite(direction).all() or not direction.any():
        wanted = "a finite vector (d,), not 0"
        raise bad_argument("direction", owner, wanted, f"shape {direction.shape}")
    object.__setattr__(target, "direction", direction)
    object.__setattr__(target, "degree", as_whole(target.degree, "degree", owner))

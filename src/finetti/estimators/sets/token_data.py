"""Sets of tokens with a known target of paper R, to try an estimator on."""

import abc
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from finetti.bounds.random_features.polynomial_targets import Target
from finetti.core.arguments import as_norm, as_whole
from finetti.core.errors import bad_argument
from finetti.estimators.ridge_system import Floats


@dataclass(frozen=True, eq=False)
class TokenTarget(abc.ABC):
    """An average over the keys of a polynomial of query and key, with a direction β.

    It is called with queries (n, d) and keys (n, N, d) of length 1.

    Args:
        direction: β, (d,).
        degree: ≥ 1.
    """

    direction: Floats
    degree: int

    def __post_init__(self) -> None:
        owner, direction = type(self).__name__, np.asarray(self.direction, np.float64)
        if direction.ndim != 1 or not np.isfinite(direction).all() or not direction.any():
            wanted = "a finite vector (d,), not 0"
            raise bad_argument("direction", owner, wanted, f"shape {direction.shape}")
        object.__setattr__(self, "direction", direction)
        object.__setattr__(self, "degree", as_whole(self.degree, "degree", owner))

    @abc.abstractmethod
    def __call__(self, query: Any, keys: Any) -> Floats:
        """(n,)."""

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.direction)

    @property
    @abc.abstractmethod
    def description(self) -> Target:
        """What the norms and theorems of `finetti.bounds.random_features` need to know of it."""

    @property
    @abc.abstractmethod
    def mean(self) -> float:
        """E f* of independent tokens, uniform on the sphere, exactly."""


class KeyPowerTarget(TokenTarget):
    """f_{1,p} = (1/N) Σ_i ⟨β, x_i⟩^p: its norm is free of N and d, that of the network is not.

    Args:
        direction: β, (d,).
        degree: p ≥ 1.

    >>> from finetti.bounds import Sample
    >>> from finetti.bounds.random_features import AttentionNorm
    >>> target = KeyPowerTarget(np.eye(16)[0], 2)
    >>> norm = AttentionNorm(target.description).evaluate(Sample(1, 1)).value  # B(f*)
    >>> round(norm, 2), target.mean
    (12.87, 0.0625)
    """

    def __call__(self, query: Any, keys: Any) -> Floats:
        """(n,)."""
        return np.mean((np.asarray(keys) @ self.direction) ** self.degree, axis=-1)

    @property
    def description(self) -> Target:
        """One component, of degrees (0, p)."""
        return Target.key_power(self.degree, float(np.linalg.norm(self.direction)))

    @property
    def mean(self) -> float:
        """‖β‖^p E a^p, a a coordinate of a point on the sphere."""
        if self.degree % 2:
            return 0.0
        evens = range(0, self.degree, 2)
        moment = math.prod((k + 1) / (self.n_features + k) for k in evens)
        return float(np.linalg.norm(self.direction)) ** self.degree * moment


class CorrelationPowerTarget(TokenTarget):
    """f_{2,q} = (1/N) Σ_i ⟨x₀, x_i⟩^q ⟨β, x_i⟩: its norm grows like d^q, that of biased heads not.

    Args:
        direction: β, (d,).
        degree: q ≥ 1.

    >>> CorrelationPowerTarget(np.eye(4)[0], 1)(np.eye(4)[:1], np.eye(4)[None, :2]).tolist()
    [0.5]
    """

    def __call__(self, query: Any, keys: Any) -> Floats:
        """(n,)."""
        keys = np.asarray(keys)
        correlation = np.einsum("...d,...nd->...n", query, keys)
        return np.mean(correlation**self.degree * (keys @ self.direction), axis=-1)

    @property
    def description(self) -> Target:
        """One component, of degrees (q, q + 1)."""
        norm = float(np.linalg.norm(self.direction))
        return Target.correlation_times_power(self.degree, 1, self.n_features, norm)

    @property
    def mean(self) -> float:
        """0: the sign of x_i, or that of x₀, decides the sign."""
        return 0.0


FAMILIES = {"key_power": KeyPowerTarget, "correlation_power": CorrelationPowerTarget}


def random_directions(random: Any, *shape: int) -> Floats:
    """Uniform on the unit sphere, along the last axis; ``random`` is any generator of NumPy."""
    vectors = random.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def make_token_regression(
    n_samples: int = 100,
    n_tokens: int = 17,
    n_features: int = 16,
    *,
    target: Any = "key_power",
    degree: int = 2,
    noise: float = 0.0,
    centered: bool = False,
    return_target: bool = False,
    random_state: Any = None,
) -> tuple[Any, ...]:
    """Sets of random tokens and a target of paper R: ``X`` (n, tokens, d) and ``y`` (n,).

    Tokens are independent and uniform on the unit sphere; token 0 is the query and the others are
    its keys, as the estimators read them.

    Args:
        n_samples, n_tokens, n_features: n, N + 1 (the query included) and d.
        target: "key_power" (f_{1,p} = (1/N)Σ⟨β, x_i⟩^p), "correlation_power" (f_{2,q} =
            (1/N)Σ⟨x₀, x_i⟩^q⟨β, x_i⟩), each with a random β of length 1, or a `TokenTarget`.
        degree: p or q.
        noise: standard deviation of the normal noise on ``y``.
        centered: whether the target's mean over all inputs is taken away; an average of even powers
            has a large one, and a constant already looks good.
        return_target: whether the `TokenTarget` is returned, too.
        random_state: of all draws.

    >>> X, y, target = make_token_regression(50, 5, 3, return_target=True, random_state=0)
    >>> X.shape, y.shape, bool(np.allclose(y, np.mean((X[:, 1:] @ target.direction) ** 2, axis=1)))
    ((50, 5, 3), (50,), True)

    Reference: the target families of fu2023.
    """
    owner = "make_token_regression"
    random = check_random_state(random_state)
    n_samples = as_whole(n_samples, "n_samples", owner)
    n_features = as_whole(n_features, "n_features", owner)
    if as_whole(n_tokens, "n_tokens", owner) < 2:
        raise bad_argument("n_tokens", owner, "at least 2, the query and a key", n_tokens)
    if isinstance(target, str):
        if target not in FAMILIES:
            known = f"a TokenTarget, or one of {', '.join(FAMILIES)}"
            raise bad_argument("target", owner, known, repr(target))
        target = FAMILIES[target](random_directions(random, n_features), degree)
    elif not isinstance(target, TokenTarget):
        raise bad_argument("target", owner, "a TokenTarget or the name of a family", repr(target))
    elif target.n_features != n_features:
        wanted = f"of n_features = {n_features} dimensions"
        raise bad_argument("target", owner, wanted, f"one of {target.n_features}")
    X = random_directions(random, n_samples, n_tokens, n_features)
    y = target(X[:, 0], X[:, 1:]) - (target.mean if centered else 0.0)
    y = y + as_norm(noise, "noise", owner) * random.normal(size=n_samples)
    return (X, y, target) if return_target else (X, y)

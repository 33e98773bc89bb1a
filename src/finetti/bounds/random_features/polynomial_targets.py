"""Targets of paper R: averages over the keys of a polynomial in the query and a key."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from finetti.bounds import description as fields
from finetti.bounds.description import BoundSettings
from finetti.bounds.random_features.arc_cosine_series import as_degree
from finetti.bounds.value import log_of
from finetti.core.arguments import as_norm, as_real, as_whole, check_finite
from finetti.core.checked_fields import Checked, checked, real
from finetti.core.errors import bad_argument
from finetti.core.numerics.logspace import log_binomial


def squared_norms(tensor: Any, query_degree: int) -> tuple[float, float]:
    """``log ‖f‖²`` and ``log ‖Sym f‖²`` for f_rs with d^{r+s} entries, the x₀ slots first.

    ⟨f, x₀^{⊗r} ⊗ x^{⊗s}⟩ only sees f symmetrized over its x₀ slots and, separately, over its x
    slots: entries whose indices are permutations of each other count through their mean.

    >>> full, symmetric = squared_norms(np.array([[0.0, 1.0], [0.0, 0.0]]), 0)  # x₁x₂
    >>> round(float(np.exp(full)), 12), round(float(np.exp(symmetric)), 12)
    (1.0, 0.5)
    """
    owner = "squared_norms"
    array = np.asarray(tensor, dtype=np.float64)
    if len(set(array.shape)) > 1 or array.size == 0:
        raise bad_argument("tensor", owner, "of shape (d, …, d)", f"shape {array.shape}")
    if not 0 <= query_degree <= array.ndim:
        raise bad_argument("query_degree", owner, f"in [0, {array.ndim}]", query_degree)
    check_finite(array, "tensor", owner)
    top = float(np.abs(array).max())
    if top == 0:
        return -math.inf, -math.inf
    # A power of two changes no digit, and then no square overflows.
    scale = math.ldexp(1.0, math.frexp(top)[1])
    entries = (array / scale).ravel()
    shape = array.shape or (1,)
    indices = np.indices(shape).reshape(len(shape), -1)
    slots = np.sort(indices[:query_degree], axis=0), np.sort(indices[query_degree:], axis=0)
    classes = np.ravel_multi_index(tuple(np.vstack(slots)), shape)
    totals = np.bincount(classes, weights=entries, minlength=array.size)
    members = np.bincount(classes, minlength=array.size)
    symmetric = float(np.sum(totals**2 / np.maximum(members, 1)))
    shift = 2 * math.log(scale)
    log_symmetric = math.log(symmetric) + shift if symmetric > 0 else -math.inf
    return math.log(float(np.sum(entries**2))) + shift, log_symmetric


# What the settings say of a target, by its name, and which number stands for what they do not say.
FAMILIES: dict[str, dict[str, Any]] = {
    "key_power": {"degree": 2, "target_norm": 1.0},
    "correlation_power": {"degree": 2},
    "correlation_times_power": {"correlation_degree": 1, "degree": 1, "target_norm": 1.0},
    "correlation_series": {"coefficients": (0.0, 1.0), "target_norm": 1.0},
}
_as_logarithm = real("a logarithm: a number below ∞", lambda x: x < math.inf)


class Component(Checked):
    """f_rs of degree r in the query and s in the key, by the size of its coefficients.

    Args:
        query_degree, key_degree: r and s.
        log_square: log ‖f_rs‖², as it is written down.
        log_symmetric: log ‖Sym f_rs‖², symmetrized over the slots of the query and of the key.
        vector_degree: how often the vector b of the target is a factor of f_rs.
    """

    query_degree: int = checked(as_degree)
    key_degree: int = checked(as_degree)
    log_square: float = checked(_as_logarithm)
    log_symmetric: float = checked(_as_logarithm)
    vector_degree: int = checked(as_degree, 0)


class Target(fields.Description):
    """f*(x_{0:N}) = (1/N) Σ_i Σ_rs ⟨f_rs, x₀^{⊗r} ⊗ x_i^{⊗s}⟩, all tokens of length 1      fu2023

    Args:
        components: one `Component` per (r, s).
        scale: multiplies all of them.
        vector_scale: multiplies the vector b of a target that has one, so that
            `sensitivities` tells what a longer b does; None where there is none.

    >>> square = Target.key_power(2, norm=3.0)
    >>> round(math.exp(square.components[0].log_square), 9)
    81.0
    """

    components: tuple[Component, ...]
    scale: float = fields.norm(1.0)
    vector_scale: float | None = fields.norm(None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        degrees = [(each.query_degree, each.key_degree) for each in self.components]
        if not degrees or len(set(degrees)) < len(degrees):
            requirement = "at least one component, and one per pair of degrees"
            raise bad_argument("components", "Target", requirement, degrees)
        if self.vector_scale is None and any(each.vector_degree for each in self.components):
            object.__setattr__(self, "vector_scale", 1.0)
        super().__post_init__()

    @classmethod
    def from_settings(cls, settings: BoundSettings, bound: Any = None) -> "Target":
        """The target called ``target`` in the settings; ``width`` is d.

        | target | what else is read |
        |---|---|
        | key_power | degree p (2), target_norm ‖b‖ (1) |
        | correlation_power | degree p (2) |
        | correlation_times_power | correlation_degree q (1), degree p (1), target_norm |
        | correlation_series | coefficients a_k ([0, 1]), target_norm |

        >>> settings = BoundSettings(norms={"target": "key_power", "degree": 3})
        >>> Target.from_settings(settings) == Target.key_power(3)
        True
        """
        family = settings.value("target", "key_power")
        if family not in [*FAMILIES]:  # which may be anything that JSON has
            wanted = f"one of {', '.join(FAMILIES)}"
            raise bad_argument("target", "the norms", wanted, repr(family))
        other = sorted({*settings.norms} & {*cls.norm_names()} - {"target", *FAMILIES[family]})
        if other:
            takes = f"one that has `{other[0]}`"
            raise bad_argument("target", "the norms", takes, repr(family))
        given = {name: settings.value(name, default) for name, default in FAMILIES[family].items()}
        if "target_norm" in given:
            given["norm"] = settings.norm("target_norm")
            del given["target_norm"]
        if family != "key_power":
            given["dimension"] = settings.width
        return getattr(cls, family)(**given)

    @classmethod
    def norm_names(cls) -> tuple[str, ...]:
        """The name of the target, and what any of them reads."""
        return tuple(sorted({"target", *(name for each in FAMILIES.values() for name in each)}))

    @classmethod
    def from_tensors(cls, tensors: Mapping[tuple[int, int], Any]) -> "Target":
        """From arrays f_rs with r + s axes of length d, the slots of the query first."""
        components = []
        for (r, s), tensor in tensors.items():
            if np.ndim(tensor) != r + s:
                requirement = f"arrays with r + s axes, {r + s} for degrees ({r}, {s})"
                raise bad_argument("tensors", "Target", requirement, f"{np.ndim(tensor)} axes")
            components.append(Component(r, s, *squared_norms(tensor, r)))
        return cls(tuple(components))

    @classmethod
    def key_power(cls, degree: int, norm: float = 1.0) -> "Target":
        """(1/N) Σ_i ⟨b, x_i⟩^p with ‖b‖ = ``norm``; its norm is free of N and d."""
        p = as_degree(degree, "degree", "Target.key_power")
        log_power = _log_power(norm, p, "Target.key_power")
        return cls((_identity_component(0, p, 1, log_power, p),))

    @classmethod
    def correlation_power(cls, degree: int, dimension: int) -> "Target":
        """(1/N) Σ_i ⟨x₀, x_i⟩^p: ‖f_pp‖² = d^p, and symmetrized C(d+p−1, p)."""
        p = as_degree(degree, "degree", "Target.correlation_power")
        return cls((_identity_component(p, 0, dimension, 0.0),))

    @classmethod
    def correlation_times_power(
        cls, correlation_degree: int, degree: int, dimension: int, norm: float = 1.0
    ) -> "Target":
        """(1/N) Σ_i ⟨x₀, x_i⟩^q ⟨b, x_i⟩^p with ‖b‖ = ``norm``.

        ‖f‖² = d^q‖b‖^{2p}, and symmetrized ‖b‖^{2p} C(d+p+q−1, q)/C(p+q, p).
        """
        owner = "Target.correlation_times_power"
        q = as_degree(correlation_degree, "correlation_degree", owner)
        p = as_degree(degree, "degree", owner)
        return cls((_identity_component(q, p, dimension, _log_power(norm, p, owner), p),))

    @classmethod
    def correlation_series(
        cls, coefficients: Sequence[float], dimension: int, norm: float = 1.0
    ) -> "Target":
        """(1/N) Σ_i F(⟨x₀, x_i⟩)⟨β, x_i⟩ with F(t) = Σ_k a_k t^k and ‖β‖ = ``norm``."""
        owner = "Target.correlation_series"
        log_vector = _log_power(norm, 1, owner)
        parts = [
            _identity_component(k, 1, dimension, 2 * log_of(abs(a)) + log_vector, 1)
            for k, a in enumerate(check_coefficients(coefficients, "coefficients", owner))
            if a
        ]
        return cls(tuple(parts))


def check_coefficients(value: Any, name: str, owner: str) -> tuple[float, ...]:
    """a_0, a_1, … as floats: finite, and not all of them 0."""
    requirement = "a list of finite numbers, not all 0"
    if not isinstance(value, list | tuple | np.ndarray):
        raise bad_argument(name, owner, requirement, repr(value))
    numbers = tuple(as_real(a, name, owner, requirement) for a in value)
    if not any(numbers) or not all(map(math.isfinite, numbers)):
        raise bad_argument(name, owner, requirement, value)
    return numbers


def _log_power(norm: float, degree: int, owner: str) -> float:
    """log ‖b‖^{2p}; the empty product is 1, also of b = 0."""
    log_norm = log_of(as_norm(norm, "norm", owner))
    return 2 * degree * log_norm if degree else 0.0


def _identity_component(
    q: int, p: int, dimension: int, log_factor: float, vector_degree: int = 0
) -> Component:
    d = as_whole(dimension, "dimension", "Target")
    symmetric = float(log_binomial(d + p + q - 1, min(q, d + p - 1)) - log_binomial(p + q, p))
    log_square = q * math.log(d) + log_factor
    return Component(q, p + q, log_square, symmetric + log_factor, vector_degree)

"""Union bound over a grid of norm radii, so that the class may be chosen after training."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from finetti.bounds.description import map_norms
from finetti.bounds.value import log_of
from finetti.core.arguments import as_norm, as_positive
from finetti.core.checked_fields import Checked, checked, real
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

KAPPA = math.pi**2 / 3 - 1  # Σ_{j∈Z} 1/(|j| + 1)²
_LOWEST = -200  # a norm of 0 has to have a radius, too: 1.1^−200 = 5e-9
Described = TypeVar("Described")


@dataclass(frozen=True)
class GridRadius:
    """A trained norm and the point of the grid, B₀c^j, that it was rounded up to."""

    name: str
    norm: float
    value: float
    index: int

    @property
    def log_cost(self) -> float:
        """log of 1/weight = κ(|j| + 1)²."""
        return 2 * math.log(abs(self.index) + 1) + math.log(KAPPA)


@dataclass(frozen=True)
class RoundedClass(Displayable, Generic[Described]):
    """Norms rounded up, and ``post_hoc``, which log(3/δ) grows by: the price of all radii."""

    rounded: Described
    radii: tuple[GridRadius, ...]

    @property
    def post_hoc(self) -> float:
        """Σ_radii (2 log(|j| + 1) + log κ)."""
        return math.fsum(radius.log_cost for radius in self.radii)

    def __card__(self) -> Card:
        rows = tuple((r.name, r.norm, r.value, r.index, r.log_cost) for r in self.radii)
        table = Table("", ("norm", "trained", "radius", "j", "cost"), rows)
        return Card("Radii after training", (("added to log(3/δ)", self.post_hoc),), (table,))


class RadiusGrid(Checked):
    """A bound for all classes with radii B₀c^j at once, each with its part of δ

        weight(j) = 1/(κ(|j| + 1)²), κ = π²/3 − 1:   Σ_{j∈Z} weight(j) = 1

    so that a class of several radii holds with probability 1 − δ·Π weight(j), and log(3/δ) becomes
    log(3/δ) + Σ (2 log(|j| + 1) + log κ) for the one that training ended in.

    Args:
        start: B₀, chosen before training.
        ratio: c.

    >>> radii = tuple(map(RadiusGrid().radius, (0.95, 1.05)))
    >>> [radius.value for radius in radii], [radius.index for radius in radii]
    ([1.0, 1.1], [0, 1])
    >>> round(RoundedClass(None, radii).post_hoc, 6)                  # 2 log κ + 2 log 2
    3.043283
    """

    start: float = checked(as_positive, 1.0)
    ratio: float = checked(real("a number > 1", lambda c: 1 < c < math.inf), 1.1)

    def radius(self, norm: float, name: str = "norm") -> GridRadius:
        """The smallest point of the grid that is not below ``norm``."""
        norm = as_norm(norm, name, "RadiusGrid")
        # A point that is missed by rounding counts as reached, if it is not below the norm.
        exact = (log_of(norm) - math.log(self.start)) / math.log(self.ratio)
        index = max(_LOWEST, math.ceil(exact - 1e-9)) if norm > 0 else _LOWEST
        while (value := self.start * self.ratio**index) < norm:
            index += 1
        return GridRadius(name, norm, value, index)

    def round_norms(
        self, described: Described, fixed: Collection[str] = ()
    ) -> RoundedClass[Described]:
        """Every norm of a description, at any depth; what is not trained stays as it is.

        Args:
            described: a class of weights, pieces or networks.
            fixed: names of norms that no training moves, as that of an activation.
        """
        radii: list[GridRadius] = []

        def round_up(path: str, norm: float) -> float:
            if path.rpartition(".")[2] in fixed:
                return norm
            radii.append(self.radius(norm, path))
            return radii[-1].value

        rounded = map_norms(described, round_up, lambda part: not getattr(part, "trained", True))
        return RoundedClass(rounded, tuple(radii))

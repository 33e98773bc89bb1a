"""Θ: the parameters that training may choose from, and what is lowest there."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.errors import bad_argument
from finetti.core.numbers import as_positive


class Region(ABC):
    """Abstract: a bounded convex set of parameters."""

    @abstractmethod
    def lowest(self, slope: np.ndarray, at: np.ndarray) -> float:
        """min over θ ∈ Θ of ⟨slope, θ − at⟩, in closed form."""

    @abstractmethod
    def project(self, theta: np.ndarray) -> np.ndarray:
        """The nearest member of Θ."""


@dataclass(frozen=True, eq=False)
class ParameterBox(Region):
    """low ≤ θ ≤ high, entry by entry; numbers or vectors.

    >>> ParameterBox(-1.0, 1.0).lowest(np.array([2.0, -3.0]), at=np.zeros(2))
    -5.0
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
            wanted = "finite, and nowhere above `high`"
            raise bad_argument("low", "ParameterBox", wanted, f"{self.low}, {self.high}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def lowest(self, slope: np.ndarray, at: np.ndarray) -> float:
        """A corner of the box."""
        return float(np.sum(np.minimum(slope * (self.low - at), slope * (self.high - at))))

    def project(self, theta: np.ndarray) -> np.ndarray:
        """Clipped."""
        return np.clip(theta, self.low, self.high)


@dataclass(frozen=True, eq=False)
class ParameterBall(Region):
    """‖θ − center‖ ≤ radius.

    >>> ParameterBall(np.zeros(2), 2.0).lowest(np.array([3.0, 4.0]), at=np.zeros(2))
    -10.0
    """

    center: Any
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "center", np.asarray(self.center, np.float64))
        as_positive(self.radius, "radius", "ParameterBall")

    def lowest(self, slope: np.ndarray, at: np.ndarray) -> float:
        """Straight against the slope."""
        return float(slope @ (self.center - at) - self.radius * np.linalg.norm(slope))

    def project(self, theta: np.ndarray) -> np.ndarray:
        """Pulled toward the center."""
        away = theta - self.center
        return self.center + away * min(1.0, self.radius / max(np.linalg.norm(away), 1e-300))

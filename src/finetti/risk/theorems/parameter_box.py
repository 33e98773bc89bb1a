"""Θ: the box of parameters that training may choose from."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.errors import bad_argument


@dataclass(frozen=True, eq=False)
class ParameterBox:
    """low ≤ θ ≤ high, entry by entry; numbers or vectors.

    >>> ParameterBox(-1.0, 1.0).minimize_linear(np.array([2.0, -3.0]), at=np.zeros(2))
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

    def minimize_linear(self, slope: np.ndarray, at: np.ndarray) -> float:
        """min over θ ∈ Θ of ⟨slope, θ − at⟩, which a corner of the box attains."""
        return float(np.sum(np.minimum(slope * (self.low - at), slope * (self.high - at))))

    def project(self, theta: np.ndarray) -> np.ndarray:
        """The nearest member of Θ."""
        return np.clip(theta, self.low, self.high)

"""Convex losses of slope at most 1, as the theorem on constrained fits asks for."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from finetti.core.errors import bad_argument
from finetti.estimators.ridge_system import Floats


@dataclass(frozen=True)
class Loss:
    """l(f, y) of a residual f − y or of a margin y·f, with |∂l/∂f| ≤ 1.

    Args:
        name: "huber" (numbers), "logistic" or "smoothed hinge" (classes ±1).
        width: where "huber" and "smoothed hinge" are rounded: l is quadratic over that much.
    """

    name: str
    width: float = 1.0

    def values(self, outputs: Floats, targets: Floats) -> Floats:
        """l(f, y)."""
        if self.name == "huber":
            size = np.abs(outputs - targets)
            return np.where(size <= self.width, size**2 / (2 * self.width), size - self.width / 2)
        margins = outputs * targets
        if self.name == "logistic":
            return np.logaddexp(0.0, -margins)
        short = np.maximum(1 - margins, 0.0)
        return np.where(short <= self.width, short**2 / (2 * self.width), short - self.width / 2)

    def slopes(self, outputs: Floats, targets: Floats) -> Floats:
        """∂l/∂f."""
        if self.name == "huber":
            return np.clip((outputs - targets) / self.width, -1.0, 1.0)
        margins = outputs * targets
        if self.name == "logistic":
            return -targets * expit(-margins)
        return -targets * np.clip((1 - margins) / self.width, 0.0, 1.0)


def check_loss(name: str, known: tuple[str, ...], width: float, owner: str) -> Loss:
    """The loss of this name."""
    if name not in known:
        raise bad_argument("loss", owner, " or ".join(f'"{each}"' for each in known), repr(name))
    return Loss(name, width)

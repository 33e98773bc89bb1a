"""How large a fitted random-feature model is, in the norms that the theorem of paper R bounds."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.display.card import Card
from finetti.display.displayable import Displayable


@dataclass(frozen=True)
class LearnedNorms(Displayable):
    """What the theorem compares with B(f*), one number per target.

    Args:
        squared_norm: M Σ_m ‖v_m‖² of M heads or neurons, ‖f‖²_K of their limit: the E‖v(W)‖² that
            is at most a multiple of B(f*), see `finetti.bounds.random_features`.
        sum_of_norms: Σ_m ‖v_m‖, at most a multiple of √B(f*); never above √squared_norm. None of
            the limit, where it is E‖v(W)‖.

    >>> norms = LearnedNorms.of_values(np.array([[3.0, 4.0], [0.0, 0.0]]), 2)
    >>> norms.squared_norm, norms.sum_of_norms
    (50.0, 5.0)
    """

    squared_norm: Any
    sum_of_norms: Any = None

    @classmethod
    def of_values(cls, values: Any, unit_axes: int) -> "LearnedNorms":
        """Of values v, (M,) or (M, d + 1) in ``unit_axes`` axes, and a last one for targets if any.

        A number of each, or one per target.
        """
        values = np.asarray(values, np.float64)
        per_head = values.reshape(len(values), -1, *values.shape[unit_axes:])
        lengths = np.linalg.norm(per_head, axis=1)  # (M,) or (M, targets)
        found = len(values) * np.sum(lengths**2, axis=0), np.sum(lengths, axis=0)
        return cls(*(float(each) if np.ndim(each) == 0 else each for each in found))

    def __card__(self) -> Card:
        fields = ("M Σ‖v‖² or ‖f‖²", self.squared_norm), ("Σ‖v‖", self.sum_of_norms)
        return Card("Learned norms", fields)

"""The defect of a predictor: sizes, and whether they are more than rounding or chance."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from finetti.core.arguments import Floats
from finetti.core.plain_data import field_values
from finetti.display import Card, Displayable, format_number

TOLERANCE = 1e-8  # of a computed defect: more than rounding leaves of a coherent one
SMALL_P = 1e-4
TOTAL_VARIATION = "total variation"
LEVEL = 0.01  # of a tested one: coherent predictors are refused that often


@dataclass(frozen=True, eq=False)
class Defect(Displayable):
    """One of the defects of a predictor.

    Args:
        name: order, martingale, two-step or sequence.
        sizes: of every context and query, flat.
        exact: whether each is the defect itself: not a Monte Carlo mean, nor the largest over some
            of all orders.
        standard_error: that of the largest size, where it is a mean over draws.
        p_value: how often a coherent predictor would show as much, where chance is involved.
        note: what was done.
        rounding: of every size, what rounding may leave of it: more than the tolerance where
            answers are in single precision, or large beside the spread.
        unit: of the sizes: spread (of the values), squared spread, total variation, probability or
            nats.
        all_contexts: whether sizes are those of all contexts of this length that there are. Else
            the largest is the largest of those that were tried, and not a bound.

    >>> defect = Defect("order", np.array([0.0, 3e-17, 1e-16]), exact=True)
    >>> defect.text, defect.holds()
    ('✓', True)
    """

    name: str
    sizes: Floats = field(repr=False)
    exact: bool
    standard_error: float | None = None
    p_value: float | None = None
    note: str = ""
    rounding: Floats | float = field(default=0.0, repr=False)
    unit: str = "spread"
    all_contexts: bool = False

    @property
    def maximum(self) -> float:
        """Return the largest size over contexts and queries, which a median can hide."""
        return float(np.max(self.sizes))

    @property
    def median(self) -> float:
        """Return the median size over contexts and queries."""
        return float(np.median(self.sizes))

    @property
    def largest(self) -> str:
        """Name the maximum: a bound over all contexts, or only the largest that was seen."""
        return "largest" if self.exact and self.all_contexts else "largest seen"

    def holds(self, tolerance: float = TOLERANCE, level: float = LEVEL) -> bool:
        """Whether there is no defect: up to rounding, or as far as a test at ``level`` can tell."""
        if self.p_value is not None:
            return self.p_value > level
        return bool(np.all(self.sizes <= np.maximum(tolerance, self.rounding)))

    @property
    def text(self) -> str:
        """✓, or the size: the median, and the largest where that says more."""
        if self.holds():
            return "✓"
        median, largest = (format_number(each, 2) for each in (self.median, self.maximum))
        if self.p_value is not None:
            small = self.p_value < SMALL_P
            chance = f"p < {SMALL_P:g}" if small else f"p = {format_number(self.p_value, 2)}"
            return f"{median} ({self.largest} {largest}, {chance})"
        return f"{median} ({self.largest} {largest})" if median != largest else largest

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**field_values(self, "median", "maximum"), "holds": self.holds()}

    def __card__(self) -> Card:
        fields: list[tuple[str, Any]] = [
            ("verdict", self.text),
            ("median", self.median),
            (self.largest, self.maximum),
            ("unit", self.unit),
            ("of", f"{'all ' if self.all_contexts else ''}{self.sizes.size} contexts and queries"),
            ("computed", "exactly" if self.exact else self.note or "from some of all cases"),
        ]
        if self.standard_error is not None:
            fields.append(("standard error", self.standard_error))
        if self.p_value is not None:
            fields.append(("p-value", self.p_value))
        return Card(f"{self.name} defect", tuple(fields))

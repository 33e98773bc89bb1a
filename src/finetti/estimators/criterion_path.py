"""A criterion over a grid of one parameter, and the best value: of ridges, of bandwidths."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from finetti.core.errors import warn_user
from finetti.display.card import Card
from finetti.display.charts.line_charts import line_chart
from finetti.display.displayable import Displayable

Criterion = Literal["loo", "gcv", "marginal_likelihood"]
TITLES = {"loo": "leave-one-out", "gcv": "GCV", "marginal_likelihood": "marginal likelihood"}

FLAT_RTOL = 1e-3  # a criterion that changes by less from one value to the next does not decide


@dataclass(frozen=True)
class CriterionPath(Displayable):
    """The criterion (smaller is better) at every value of a grid, and which one was chosen.

    Args:
        parameter: whose grid it is, "ridge" or "bandwidth".
        method: the criterion: "loo", "gcv" or "marginal_likelihood".
        values: the grid, in increasing order.
        criterion: at each of them.

    >>> path = CriterionPath("ridge", "loo", np.array([0.1, 1.0, 10.0]), np.array([2.0, 1.0, 1.0]))
    >>> path.value, path.at_edge
    (10.0, True)
    """

    parameter: str
    method: Criterion
    values: NDArray[np.float64]
    criterion: NDArray[np.float64]

    @cached_property
    def best(self) -> int:
        """Where the criterion is least; of equal ones the largest value."""
        criterion = np.where(np.isnan(self.criterion), np.inf, self.criterion)
        return int(np.flatnonzero(criterion <= criterion.min())[-1])

    @property
    def value(self) -> float:
        """The chosen one."""
        return float(self.values[self.best])

    @property
    def at_edge(self) -> bool:
        """Whether a value beyond the grid may be better."""
        return self.best in (0, len(self.values) - 1)

    def joined(self, other: "CriterionPath") -> "CriterionPath":
        """Both curves as one."""
        values, places = np.unique([*self.values, *other.values], return_index=True)
        criterion = np.concatenate([self.criterion, other.criterion])[places]
        return CriterionPath(self.parameter, self.method, values, criterion)

    def warn_at_edge(self, owner: str) -> None:
        """Warn where the curve still falls at an end of the grid; two values are nothing but ends.

        A curve that is flat there, as of constant targets, does not fall.
        """
        beside = {0: 1, len(self.values) - 1: -2}.get(self.best)
        if beside is None or len(self.values) < 3:
            return
        value, neighbor = self.criterion[self.best], self.criterion[beside]
        if neighbor > value + FLAT_RTOL * abs(value):
            name, end = self.parameter, "smallest" if self.best == 0 else "largest"
            warn_user(
                f"The best {name} of {owner} is the {end} of its grid, {self.value:.3g}: one "
                f"beyond may be better. Give `{name}s` that reach further, or a number as "
                f"`{name}`.",
                ConvergenceWarning,
            )

    @property
    def _title(self) -> str:
        return f"{self.parameter.capitalize()} by {TITLES[self.method]}"

    def plot(self) -> dict[str, Any]:
        """The curve as a Vega-Lite chart."""
        records = [
            {self.parameter: value, "criterion": height}
            for value, height in zip(self.values.tolist(), self.criterion.tolist(), strict=True)
        ]
        return line_chart(records, self.parameter, "criterion", log_x=True, title=self._title)

    def __card__(self) -> Card:
        name = self.parameter
        edge = f"The best {name} lies at the edge of the grid: give `{name}s` that reach further."
        return Card(
            title=self._title,
            fields=((name, self.value), ("criterion", float(self.criterion[self.best]))),
            notes=(edge,) if self.at_edge else (),
        )

"""The result of a study of the excess risk: the three parts against n, with error bars."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from finetti.core.plain_data import field_values, to_plain
from finetti.core.statistics.intervals import mean_with_error
from finetti.core.statistics.power_laws import Slope, power_law_slope
from finetti.display import Table, format_number
from finetti.risk.risk_experiment import RiskExperiment
from finetti.risk.risk_trial import MEASURED, RISK_PARTS
from finetti.studies.experiment import ExperimentResult

# E_approx and E_opt rest on the best network that was found, so they are estimates from one side.
SIGNS = {"generalization": "", "approximation": "≤ ", "optimization": "≥ "}
REACH = 2.0  # standard errors on either side


@dataclass(frozen=True)
class RiskPoint:
    """The means of all trials with one sample size; every value has its standard error.

    Of several trials it is that of their mean; of one it is that of its test sample.
    """

    n_samples: int
    trials: int
    values: dict[str, tuple[float, float]]
    noise: float
    train_risk: float
    bound: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        values = {
            name: {"value": value, "standard_error": error}
            for name, (value, error) in self.values.items()
        }
        shown = field_values(self, "against_baseline")
        del shown["values"]
        return {**shown, **values}

    def told(self, name: str) -> str:
        """A part as people read it, as in ≤ 0.52 ± 0.03."""
        value, error = self.values[name]
        return f"{SIGNS.get(name, '')}{format_number(value, 3)} ± {format_number(error, 2)}"

    @property
    def largest(self) -> str | None:
        """The part whose interval is above those of the others; None where they overlap."""
        first, *others = sorted(RISK_PARTS, key=lambda part: -self.values[part][0])
        return first if all(self._is_above(first, other) for other in others) else None

    @property
    def against_baseline(self) -> str:
        """Whether the network is better than the mean answer: better, unclear or worse."""
        if self._is_above("excess", "baseline"):
            return "worse"
        return "better" if self._is_above("baseline", "excess") else "unclear"

    @property
    def comparison(self) -> str:
        """The baseline in words."""
        told = f"the mean answer has {self.told('baseline')}"
        return (
            told
            + {
                "worse": ": the network is worse than nothing",
                "unclear": ": the network is not clearly better",
                "better": "",
            }[self.against_baseline]
        )

    def _is_above(self, one: str, other: str) -> bool:
        """Whether the interval of one is above that of the other."""
        (value, error), (mean, spread) = self.values[one], self.values[other]
        return value - REACH * error > mean + REACH * spread


@dataclass(frozen=True)
class RiskFindings(ExperimentResult):
    """The result of a study of the excess risk; its page is drawn by `RiskResult`.

    Args:
        experiment: what was asked.
        trials: one row per stored trial, with its details.
    """

    page_name: ClassVar[str] = "risk.html"
    cell_columns: ClassVar[tuple[str, ...]] = ("n_samples",)

    experiment: RiskExperiment

    @cached_property
    def points(self) -> tuple[RiskPoint, ...]:
        """Return one point per sample size that has a trial."""
        if not len(self.done):
            return ()
        return tuple(
            _point(int(n), rows)  # pyright: ignore[reportArgumentType]
            for n, rows in self.done.groupby("n_samples", sort=True)
        )

    @cached_property
    def slope(self) -> Slope | None:
        """The exponent of the excess risk in n; None with fewer than three sizes."""
        drawn = [point for point in self.points if point.values["excess"][0] > 0]
        if len(drawn) < 3:
            return None
        return power_law_slope(
            [point.n_samples for point in drawn], [point.values["excess"][0] for point in drawn]
        )

    @property
    def headline(self) -> str:
        """Return the result in one line."""
        title = self.experiment.title
        if not self.points:
            return f"Excess risk of {title}: no trial is done"
        last = self.points[-1]
        text = f"Excess risk {last.told('excess')} of {title} with {last.n_samples} sequences"
        text += f"; {last.comparison}"
        if (part := last.largest) is not None:
            size = format_number(last.values[part][0], 3)
            text += f"; largest part: {part} ({SIGNS[part]}{size})"
        return text + (f" (partial: {self.partial})" if self.partial else "")

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the numbers rest on."""
        found = [
            "± is one standard error. Approximation is an estimate from above and optimization one "
            "from below: both compare with the best network that was found.",
            "The mean answer is that of the n training sequences, given to every other one: what "
            "is had without a network. The noise is the risk of E[y|X] itself.",
        ]
        if worse := [point for point in self.points if point.against_baseline == "worse"]:
            sizes = ", ".join(str(point.n_samples) for point in worse)
            found.append(
                f"Worse than nothing at n = {sizes}: there the network answers worse than its "
                "training answers' mean. More sequences, steps (--iterations) or starts "
                "(--restarts) may help; the largest part says which."
            )
        if self.slope is not None:
            error = self.slope.standard_error
            found.append(
                f"The excess risk goes like n^{self.slope.value:.2f} ± {error:.2f} over these "
                "sample sizes."
            )
        found += self.bound_notes
        return tuple(found)

    @property
    def bound_notes(self) -> tuple[str, ...]:
        """Return what the bound rests on, or why there is none."""
        if not len(self.done):
            return ()
        return tuple(dict.fromkeys(filter(None, self.done["bound_note"])))

    def tables(self) -> list[Table]:
        """The parts per sample size."""
        rows = [
            (
                point.n_samples,
                point.trials,
                point.told("excess"),
                point.told("baseline"),
                point.noise,
                *(point.told(part) for part in RISK_PARTS),
                point.bound,
            )
            for point in self.points
        ]
        beside = ("mean answer", "noise")
        columns = ("n", "trials", "excess risk", *beside, *RISK_PARTS, "bound on generalization")
        title = "Excess risk, taken apart"
        return [Table(title, columns, tuple(rows))] if rows else []

    def values(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return to_plain({"points": self.points, "slope": self.slope, "notes": self.notes})


def _point(n_samples: int, rows: pd.DataFrame) -> RiskPoint:
    values = {name: _mean(rows[name], rows[f"{name}_error"]) for name in MEASURED}
    bounds = rows["bound"].dropna() if "bound" in rows else ()
    return RiskPoint(
        n_samples,
        len(rows),
        values,
        float(np.mean(np.asarray(rows["noise"], np.float64))),
        float(np.mean(np.asarray(rows["train_risk"], np.float64))),
        float(np.median(bounds)) if len(bounds) else None,
    )


def _mean(values: Any, errors: Any) -> tuple[float, float]:
    found = np.asarray(values, np.float64)
    if len(found) == 1:
        return float(found[0]), float(np.asarray(errors, np.float64)[0])
    return mean_with_error(found)

"""What was measured for a claim, and what it says about it. Imports without JAX."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any, SupportsFloat

from finetti.core.errors import bad_argument
from finetti.core.plain_data import to_plain
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_interval, format_number

OUTCOMES = {True: "yes", False: "no", None: "undecided"}
_Interval = tuple[float, float] | None


class Verdict(StrEnum):
    """What the evidence says about a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Measurement:
    """One number, the rule it was held against, and whether it obeyed.

    ``holds`` is None where the rule could not be decided; ``reason`` then says why. A value that is
    not a number decides nothing, neither for a claim nor against it. ``limits`` are the ends of
    what the rule allows, infinite on an open side, where the rule is such a range.
    """

    name: str
    value: float
    rule: str
    holds: bool | None
    interval: _Interval = None
    unit: str = ""
    reason: str = ""
    limits: _Interval = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "value", float(self.value))
        set_field(self, "holds", None if self.holds is None else bool(self.holds))
        for name in ("interval", "limits"):
            if (ends := getattr(self, name)) is not None:
                set_field(self, name, (float(ends[0]), float(ends[1])))
        if any(math.isnan(number) for number in (self.value, *(self.interval or ()))):
            set_field(self, "holds", None)
            set_field(self, "reason", "it is not a number")
        elif self.holds is None and not self.reason:
            set_field(self, "reason", "the measurement does not decide")

    @property
    def outcome(self) -> str:
        """The number against its rule, as short as a table needs it.

        >>> close("two routes", 0.2, 1e-10).outcome
        '0.2, not ≤ 1e-10'
        """
        if self.holds is None:
            return f"{self.number}, undecided: {self.rule}"
        return f"{self.number}{'' if self.holds else ', not'} {self.rule}"

    @property
    def number(self) -> str:
        """The value with its interval and unit, as people read it."""
        return f"{format_interval(self.value, self.interval)} {self.unit}".rstrip()


def within(
    name: str,
    value: SupportsFloat,
    low: float,
    high: float,
    *,
    interval: _Interval = None,
    unit: str = "",
    rule: str = "",
) -> Measurement:
    """``low`` ≤ ``value`` ≤ ``high``; with an interval only if all of it is on one side.

    >>> within("exponent", -0.97, -1.1, -0.9).rule
    'in [-1.1, -0.9]'
    """
    first, last = (float(value),) * 2 if interval is None else interval
    rule = rule or f"in [{format_number(low)}, {format_number(high)}]"
    reason = ""
    if low <= first and last <= high:
        holds = True
    elif last < low or first > high:
        holds = False
    else:
        holds, reason = None, "its interval reaches over the limit"
    return Measurement(name, float(value), rule, holds, interval, unit, reason, (low, high))


def at_most(name: str, value: SupportsFloat, limit: SupportsFloat, **details: Any) -> Measurement:
    """``value`` ≤ ``limit``. An interval that contains the limit leaves it undecided.

    >>> at_most("error", 0.1, 0.2).holds, at_most("error", float("nan"), 0.2).holds
    (True, None)
    """
    rule = f"≤ {format_number(float(limit))}"
    return within(name, value, -math.inf, float(limit), rule=rule, **details)


def at_least(name: str, value: SupportsFloat, limit: SupportsFloat, **details: Any) -> Measurement:
    """``value`` ≥ ``limit``. An interval that contains the limit leaves it undecided.

    >>> at_least("slope", 0.9, 1.0).holds
    False
    >>> at_least("slope", 0.9, 1.0, interval=(0.8, 1.1)).reason
    'its interval reaches over the limit'
    """
    rule = f"≥ {format_number(float(limit))}"
    return within(name, value, float(limit), math.inf, rule=rule, **details)


def close(name: str, error: SupportsFloat, tolerance: float) -> Measurement:
    """An identity: the largest absolute ``error`` is at most ``tolerance`` (its sign is ignored).

    >>> close("two routes", 3e-16, 1e-10).holds
    True
    """
    return at_most(name, abs(float(error)), tolerance)


@dataclass(frozen=True, init=False)
class Evidence(Displayable):
    """What was measured for a claim: ``Evidence(first, second, note="…")``, the weightiest first.

    ``derived`` is what the derived form gives on the instance at which the printed form
    was measured: unless all of these hold, a failure may be the instance's, and decides nothing.
    ``charts`` are Vega-Lite specifications (``finetti.display.line_chart``), ``tables`` are
    ``finetti.display.Table``.
    """

    measurements: tuple[Measurement, ...]
    derived: tuple[Measurement, ...]
    note: str
    charts: tuple[dict[str, Any], ...]
    tables: tuple[Table, ...]

    def __init__(
        self,
        *measurements: Measurement,
        derived: Iterable[Measurement] = (),
        note: str = "",
        charts: Iterable[dict[str, Any]] = (),
        tables: Iterable[Table] = (),
    ) -> None:
        derived = tuple(derived)
        for each in (*measurements, *derived):
            if not isinstance(each, Measurement):
                raise bad_argument("measurements", "Evidence", "Measurements, one by one", each)
        values = (measurements, derived, note, tuple(charts), tuple(tables))
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, NaN as a word; `from_dict` makes the evidence of it again."""
        plain = partial(to_plain, nan="NaN")
        return {
            "measurements": [plain(asdict(each)) for each in self.measurements],
            "derived": [plain(asdict(each)) for each in self.derived],
            "note": self.note,
            "charts": [plain(chart) for chart in self.charts],
            "tables": [
                {"title": each.title, "columns": list(each.columns), "rows": plain(each.rows)}
                for each in self.tables
            ],
        }

    def shown(self) -> dict[str, Any]:
        """`to_dict` with what a report shows: each number as ``text``, and ``decisive``, the form
        and the index of the measurement that decided (or null)."""
        plain, decisive = self.to_dict(), None
        for form, measurements in (("derived", self.derived), ("measurements", self.measurements)):
            for index, each in enumerate(measurements):
                plain[form][index]["text"] = each.number
                if decisive is None and each is self.decisive:
                    decisive = {"form": form, "index": index}
        return {**plain, "decisive": decisive}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Evidence":
        """The evidence that `to_dict` made plain.

        >>> found = Evidence(close("two routes", 3e-16, 1e-10), note="Small.")
        >>> Evidence.from_dict(found.to_dict()) == found
        True
        """
        printed, derived = (
            [Measurement(**each) for each in plain[name]] for name in ("measurements", "derived")
        )
        tables = (Table(**each) for each in plain["tables"])
        return cls(
            *printed, derived=derived, note=plain["note"], charts=plain["charts"], tables=tables
        )

    @property
    def verdict(self) -> Verdict:
        """Holds if all measurements hold, fails if any does; inconclusive where that is undecided.

        Beside a derived form the printed one fails only if all its measurements do, and nothing is
        decided unless every derived one holds.
        """
        outcomes = [measurement.holds for measurement in self.measurements]
        if not outcomes or any(not measurement.holds for measurement in self.derived):
            return Verdict.INCONCLUSIVE
        if all(outcomes):
            return Verdict.HOLDS
        fails = outcomes.count(False) == len(outcomes) if self.derived else False in outcomes
        return Verdict.FAILS if fails else Verdict.INCONCLUSIVE

    @property
    def decisive(self) -> Measurement | None:
        """The measurement that decided, or that left it undecided."""
        outcomes = [False, None, True]
        if self.derived and self.verdict is Verdict.INCONCLUSIVE:
            outcomes = [None, True]  # what fails as it should decides nothing
        candidates = [each for each in self.derived if not each.holds]
        for outcome in outcomes:
            candidates += [each for each in self.measurements if each.holds is outcome]
        return candidates[0] if candidates else None

    @property
    def reason(self) -> str:
        """One sentence that names the measurement that decided.

        >>> Evidence(close("two routes", 3e-16, 1e-10)).reason
        'two routes: 3e-16, which is ≤ 1e-10.'
        """
        decisive = self.decisive
        if decisive is None:
            return "Nothing was measured."
        number = f"{decisive.name}: {decisive.number}"
        if decisive in self.derived:
            number = f"The derived form must hold for this to count; {number}"
        if decisive.holds is None:
            return f"{number}, undecided against {decisive.rule}: {decisive.reason}."
        if not decisive.holds:
            return f"{number}, which is not {decisive.rule}."
        if self.verdict is Verdict.INCONCLUSIVE:
            return f"{number}, which is {decisive.rule}, although another measurement fails."
        others = len(self.measurements) - 1
        more = f" ({others} more also {'hold' if others > 1 else 'holds'})" if others else ""
        return f"{number}, which is {decisive.rule}{more}."

    def __card__(self) -> Card:
        tables = [
            Table(
                title,
                ("measurement", "value", "rule", "obeyed"),
                tuple((m.name, m.number, m.rule, OUTCOMES[m.holds]) for m in measurements),
            )
            for title, measurements in (("", self.measurements), ("Derived form", self.derived))
            if measurements or not title
        ]
        fields = (("verdict", self.verdict.value), ("because", self.reason))
        notes = (self.note,) if self.note else ()
        return Card("Evidence", fields, (*tables, *self.tables), notes)


def trend(
    records: Iterable[Mapping[str, Any]], axes: Mapping[str, str], title: str, **options: Any
) -> dict[str, Any]:
    """A chart for `Evidence`, x logarithmic; ``axes`` are the fields x and y and their titles."""
    from finetti.display.charts.line_charts import line_chart

    (x, x_title), (y, y_title) = axes.items()
    titles = {"title": title, "x_title": x_title, "y_title": y_title}
    return line_chart(records, x, y, log_x=True, **titles, **options)

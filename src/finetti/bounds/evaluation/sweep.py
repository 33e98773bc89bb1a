"""Bounds along one variable, and what 10 % more of each norm does to one of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from finetti.bounds.bound import Bound
from finetti.bounds.count_solver import COUNTS, check_goal
from finetti.bounds.count_solver import solve as solve_for
from finetti.bounds.description import BoundSettings, map_norms
from finetti.bounds.registry import check_norms, unread_norms
from finetti.bounds.value import BoundValue, Sample, exp_of
from finetti.core.arguments import Form
from finetti.core.errors import FinettiError, InputError, UnsupportedError, bad_argument
from finetti.display.card import Card, Table
from finetti.display.charts.line_charts import Chart, line_chart
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_number

N_POINTS = 17
GROWTH_FACTOR = 1.1
_OF_SAMPLE = ("input_norm", "loss_lipschitz")
_MAX_ROWS_SHOWN = 20


@dataclass(frozen=True)
class SweepVariable:
    """What a sweep varies: its name on the command line, in Python, and its letter on screen."""

    option: str
    field: str
    letter: str = ""
    holder: Literal["sample", "settings", "norms"] = "norms"
    whole: bool = False

    @classmethod
    def named(cls, name: str) -> "SweepVariable":
        """By option, field or letter; any other name is that of a norm.

        >>> SweepVariable.named("T").option, SweepVariable.named("value-norm").field
        ('context-length', 'value_norm')
        """
        for each in VARIABLES:
            if name and name in (each.option, each.field, each.letter):
                return each
        return cls(name.replace("_", "-"), name.replace("-", "_"))

    def set(
        self, settings: BoundSettings, sample: Sample, value: float
    ) -> tuple[BoundSettings, Sample]:
        """The settings and the sample with this value."""
        if self.holder == "sample":
            return settings, replace(sample, **{self.field: value})
        changed = {self.field: value}
        if self.holder == "norms":
            changed = {"norms": {**settings.norms, **changed}}
        return replace(settings, **changed), sample

    def grid(self, low: float, high: float, count: int = N_POINTS) -> list[float]:
        """``count`` values from low to high, evenly in the logarithm; sizes are rounded.

        >>> SweepVariable.named("L").grid(1, 3)
        [1, 2, 3]
        """
        # Twelve digits, so that 10000 is not 9999.999999999996.
        values = [float(f"{value:.12g}") for value in np.geomspace(low, high, count)]
        if self.whole:
            return list(dict.fromkeys(max(1, round(value)) for value in values))
        return values


VARIABLES = (
    SweepVariable("context-length", "context_length", "T", "sample", whole=True),
    SweepVariable("layers", "n_layers", "L", "settings", whole=True),
    SweepVariable("heads", "n_heads", "H", "settings", whole=True),
    SweepVariable("width", "width", "d", "settings", whole=True),
    SweepVariable("head-dimension", "head_dimension", "d_k", "settings", whole=True),
    SweepVariable("samples", "n_samples", "n", "sample", whole=True),
    SweepVariable("input-norm", "input_norm", "B_X", "sample"),
    SweepVariable("loss-bound", "loss_bound", "b", "sample"),
    SweepVariable("loss-lipschitz", "loss_lipschitz", "", "sample"),
    SweepVariable("resolution", "resolution", "ε", "settings"),
    SweepVariable("delta", "delta", "δ", "sample"),
)


@dataclass(frozen=True)
class SweepPoint:
    """One bound at one value: what it gives there, or why it gives nothing."""

    at: float
    theorem: type[Bound]
    form: Form
    sample: Sample
    bound: Bound | None
    value: BoundValue | None
    refused: str = ""

    @property
    def label(self) -> str:
        """The bound's name, and its kind where that is no upper bound."""
        theorem = self.theorem
        kind = theorem.printed_kind if self.form == "printed" else theorem.derived_kind
        return theorem.name + ("" if kind == "upper_bound" else f" ({kind})")


@dataclass(frozen=True)
class Sweep(Displayable):
    """Comparable bounds along one variable; ``quantity`` is what the values are.

    ``unread`` are the norms that a bound does not have, by its name.
    """

    variable: SweepVariable
    quantity: str
    points: tuple[SweepPoint, ...]
    unread: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """The bounds, in the order given."""
        return tuple(dict.fromkeys(point.label for point in self.points))

    def records(self) -> list[dict[str, Any]]:
        """One plain mapping per point; ``value`` is None where no float holds it."""
        kept = ("value", "log_value", "sign", "count", "quantity", "kind", "vacuous")
        records = []
        for point in self.points:
            found = {} if point.value is None else point.value.to_dict()
            record = {self.variable.option: point.at, "bound": point.label}
            record |= {"name": point.theorem.name, **{name: found.get(name) for name in kept}}
            records.append({**record, "refused": point.refused or None})
        return records

    def table(self) -> Table:
        """A row per value, a column per bound."""
        cells = {
            (point.at, point.label): point.value and point.value.number for point in self.points
        }
        rows = tuple(
            (at, *(cells[at, label] for label in self.labels))
            for at in dict.fromkeys(point.at for point in self.points)
        )
        solved = self.quantity != self.points[0].theorem.quantity  # which a file would not tell
        columns = (label + f": {self.quantity}" * solved for label in self.labels)
        return Table(self.quantity, (self.variable.option, *columns), rows)

    def notes(self) -> tuple[str, ...]:
        """Where each bound is vacuous, and where it does not apply."""
        return tuple(note for label in self.labels for note in self._notes(label))

    def _notes(self, label: str) -> Iterator[str]:
        points = [point for point in self.points if point.label == label]
        judged = [p for p in points if p.value is not None and p.value.vacuous is not None]
        empty = [point.at for point in judged if point.value and point.value.vacuous]
        if judged and not empty:
            yield f"{label} is vacuous nowhere."
        elif empty:
            where = "everywhere"
            if len(empty) < len(judged):
                first, last = format_number(min(empty)), format_number(max(empty))
                where = f"at {len(empty)} of {len(judged)} values, {first} to {last}"
            yield f"{label} is vacuous {where}: it exceeds the largest possible loss."
        refused = [point for point in points if point.refused]
        if refused:
            first = f"{self.variable.option} = {format_number(refused[0].at)}"
            count = f"{len(refused)} of {len(points)} values"
            yield f"{label} gives nothing at {count}, as at {first}: {refused[0].refused}"

    def chart(self) -> Chart:
        """Values, or their powers of ten where no float holds them; dashed: the largest loss.

        The axis is logarithmic unless some value is not positive, as a printed one may be.
        """
        found = [point.value for point in self.points if point.value is not None]
        huge = any(math.isinf(value.value) for value in found)
        judged = any(value.vacuous is not None for value in found)
        records = []
        for point in self.points:
            value, largest = point.value, point.sample.loss_bound
            height = None if value is None else value.value
            if huge:
                height = None
                if value is not None and value.sign > 0:
                    height = value.log_value / math.log(10)
                largest = math.log10(largest)
            record = {self.variable.option: point.at, "bound": point.label, "height": height}
            records.append({**record, "largest loss": largest})
        title = f"log₁₀ of the {self.quantity}" if huge else self.quantity
        return line_chart(
            records,
            x=self.variable.option,
            y="height",
            color="bound",
            reference="largest loss" if judged else None,
            log_x=True,
            log_y=not huge and all(value.value > 0 for value in found),
            x_title=self.variable.option.replace("-", " "),
            y_title=f"{title} (dashed: vacuous above)" if judged else title,
        )

    def __card__(self) -> Card:
        return Card(f"Sweep of {self.variable.option}", (), (self.table(),), self.notes())


def sweep(
    bounds: Sequence[type[Bound]],
    variable: SweepVariable | str,
    values: Sequence[float],
    settings: BoundSettings | None = None,
    sample: Sample | None = None,
    solve: str | None = None,
    gap: float | None = None,
    constant: float | None = None,
) -> Sweep:
    """Evaluate ``bounds`` at every value of ``variable``, or ``solve`` for what reaches a ``gap``.

    Args:
        bounds: classes of bounds on one quantity.
        variable: what varies, by name.
        values: of the variable.
        settings, sample: everything else.
        solve: "samples", "heads" or "tokens".
        gap, constant: as `count_solver.solve` takes them.

    Where a theorem does not apply, the point says why; if none of them does, that is raised.

    >>> from finetti.bounds import load_bounds
    >>> gap = load_bounds()["S-lemma-2.2"]
    >>> found = sweep([gap], "delta", [0.01, 0.1], solve="samples", gap=0.1)
    >>> found.quantity, [point.value.count for point in found.points]
    ('samples', [3348449, 3299988])
    """
    variable = SweepVariable.named(variable) if isinstance(variable, str) else variable
    settings, sample = settings or BoundSettings(), sample or Sample(10_000, 1000)
    quantities = sorted({bound.quantity for bound in bounds})
    if len(quantities) > 1:
        raise InputError(
            f"Bounds on a {quantities[0]} and on a {quantities[1]} cannot share a chart. Sweep "
            "bounds on one quantity at a time."
        )
    check_goal(solve, gap, constant)
    if solve in COUNTS and variable.field == COUNTS[solve][0]:
        raise InputError(f"Cannot both sweep and solve for {solve}. Sweep something else.")
    if not len(values):
        raise bad_argument("values", "sweep", "at least one value", "none")
    one_point = variable.set(settings, sample, values[0])[0]
    check_norms(bounds, one_point, "sweep")
    unread = {bound.name: unread_norms(bound, one_point) for bound in bounds}
    points, errors = [], []
    for at in values:
        here, there = variable.set(settings, sample, at)
        for theorem in bounds:
            bound, value, refused = None, None, ""
            try:
                theorem.check_loss(there)
                bound = theorem.from_settings(here)
                if solve is None or gap is None:
                    value = bound.evaluate(there)
                else:
                    value = solve_for(bound, solve, gap, there, constant)
            except FinettiError as error:
                errors.append(error)
                refused = str(error)
            point = SweepPoint(at, theorem, settings.form, there, bound, value, refused)
            points.append(point)
    if len(errors) == len(points):
        raise errors[0]
    return Sweep(variable, solve or quantities[0], tuple(points), unread)


@dataclass(frozen=True)
class Sensitivity:
    """One norm, and the log of what the value is multiplied by when it grows by 10 %."""

    field: str
    log_ratio: float

    @property
    def ratio(self) -> float:
        """value after / value before."""
        return exp_of(self.log_ratio)

    @property
    def exponent(self) -> float:
        """The power with which the value grows in this norm, near here."""
        return self.log_ratio / math.log(GROWTH_FACTOR)


@dataclass(frozen=True)
class Sensitivities(Displayable):
    """All norms of a bound, the most influential first; layers and heads are counted from 1.

    ``refused`` are the norms with which the theorem no longer applies when they grow, and why.
    """

    rows: tuple[Sensitivity, ...]
    refused: tuple[tuple[str, str], ...] = ()

    def __iter__(self) -> Iterator[Sensitivity]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Sensitivity:
        known = {row.field: row for row in self.rows}
        if name not in known:
            there = ", ".join([*known, *(f"{each}, which cannot grow" for each, _ in self.refused)])
            raise InputError(f"There is no norm {name!r} that can grow here. There are: {there}.")
        return known[name]

    def __card__(self) -> Card:
        rows = tuple((r.field, r.ratio, r.exponent) for r in self.rows[:_MAX_ROWS_SHOWN])
        rest = len(self.rows) - len(rows)
        notes = [f"{rest} more move it less."] if rest else []
        notes += [f"{name} cannot grow: {reason}" for name, reason in self.refused]
        columns = ("norm", "value × (norm + 10 %)", "local power")
        return Card("Sensitivity", (), (Table("", columns, rows),), tuple(notes))


def sensitivities(bound: Bound, sample: Sample) -> Sensitivities:
    """Evaluate again with every norm, one at a time, 10 % larger.

    Norms are the fields made with `description.norm`, at any depth, and B_X and the loss's
    Lipschitz constant of the sample.
    """
    before = bound.evaluate(sample).log_value
    rows, refused = [], []
    for path, changed, at in larger_norms(bound, sample):
        try:
            after = changed.evaluate(at).log_value
        except UnsupportedError as error:
            refused.append((path, str(error)))
        else:
            # Rounding of the logarithm is no effect of the norm.
            still = after == before or abs(after - before) < 1e-12 * max(1.0, abs(before))
            rows.append(Sensitivity(path, 0.0 if still else after - before))
    rows.sort(key=lambda row: -abs(row.log_ratio))
    return Sensitivities(tuple(rows), tuple(refused))


def larger_norms(bound: Bound, sample: Sample) -> Iterator[tuple[str, Bound, Sample]]:
    """Every norm by its path, with the bound and the sample in which it alone is 10 % larger."""
    paths: list[str] = []

    def note(path: str, norm: float) -> float:
        paths.append(path)
        return norm

    map_norms(bound, note)
    for chosen in paths:

        def grow(path: str, norm: float, chosen: str = chosen) -> float:
            return GROWTH_FACTOR * norm if path == chosen else norm

        yield chosen, map_norms(bound, grow), sample
    for name in _OF_SAMPLE:
        larger = {name: GROWTH_FACTOR * getattr(sample, name)}
        yield f"sample.{name}", bound, replace(sample, **larger)

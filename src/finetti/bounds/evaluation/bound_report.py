"""``finetti bound`` in Python: theorems evaluated at one network and one sample."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetti.bounds.bound import Bound
from finetti.bounds.count_solver import check_goal
from finetti.bounds.count_solver import solve as solve_for
from finetti.bounds.description import BoundSettings
from finetti.bounds.evaluation.sweep import (
    N_POINTS,
    Sensitivities,
    Sweep,
    SweepVariable,
    sensitivities,
)
from finetti.bounds.evaluation.sweep import sweep as sweep_bounds
from finetti.bounds.evaluation.symbols import explain_symbols
from finetti.bounds.registry import build_bounds, load_bounds, unread_norms
from finetti.bounds.value import BoundValue, Comparison, Sample, finite
from finetti.core.arguments import Form
from finetti.core.errors import InputError
from finetti.core.files import parse_json, read_file
from finetti.display.card import Card, Table
from finetti.display.pages.run_result import RunResult

_ADVICE = "Write it as context-length=1e2:1e6, with 0 < LOW < HIGH."


@dataclass(frozen=True)
class BoundAnswer:
    """What one bound gives: its value, or the size that it asks for, and what was asked besides."""

    theorem: type[Bound]
    value: BoundValue | None = None
    needed: Any = None
    sensitivity: Sensitivities | None = None
    comparison: Comparison | None = None

    @property
    def parts(self) -> tuple[Any, ...]:
        """What was asked for, in the order in which it is shown."""
        found = (self.value, self.needed, self.sensitivity, self.comparison)
        return tuple(each for each in found if each is not None)

    @property
    def row(self) -> tuple[Any, ...]:
        """The answer as a row of a table."""
        value = self.value or self.needed
        found = (value.quantity, value.number, value.kind, value.form, value.vacuous)
        return (self.theorem.name, *found, self.comparison and self.comparison.measured)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = describe_bound(self.theorem)
        if self.value is not None:
            plain |= self.value.to_dict()
        if self.needed is not None:
            plain["needed"] = self.needed.to_dict()
        if (found := self.sensitivity) is not None:
            plain["sensitivity"] = {row.field: finite(row.ratio) for row in found}
            plain["sensitivity_exponents"] = {row.field: finite(row.exponent) for row in found}
            plain["sensitivity_refused"] = dict(found.refused)
        if self.comparison is not None:
            plain["measured"] = self.comparison.measured
            plain["obeyed"] = self.comparison.obeyed
        return plain


@dataclass(frozen=True)
class BoundReport(RunResult):
    """The answers of bounds, or a sweep of them.

    Args:
        answers: one per bound.
        swept: instead, the bounds along one variable.
        unread: of each bound, the norms that it does not have and another one reads.
    """

    answers: tuple[BoundAnswer, ...] = ()
    swept: Sweep | None = None
    unread: Mapping[str, frozenset[str]] | None = None

    @property
    def value(self) -> BoundValue | None:
        """The value of the first bound."""
        return self.answers[0].value if self.answers else None

    @property
    def headline(self) -> str:
        """The bounds by name."""
        if self.swept is not None:
            return self.swept.__card__().title
        return ", ".join(answer.theorem.name for answer in self.answers)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Which of several bounds does not have a norm that another one reads."""
        return tuple(
            f"{name} has no norm called {', '.join(map(repr, sorted(norms)))}, which does not "
            "affect it."
            for name, norms in (self.unread or {}).items()
            if norms
        )

    def table(self) -> Table:
        """The answers, or the sweep, as a table."""
        if self.swept is not None:
            return self.swept.table()
        columns = ("bound", "quantity", "value", "kind", "form", "vacuous", "measured")
        return Table("", columns, tuple(answer.row for answer in self.answers))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        if (swept := self.swept) is not None:
            option = swept.variable.option
            return {"sweep": option, "records": swept.records(), "notes": swept.notes()}
        return {"bounds": [answer.to_dict() for answer in self.answers]}

    def cards(self) -> tuple[Card, ...]:
        """One for each thing that was asked."""
        if self.swept is not None:
            return (self.swept.__card__(),)
        return tuple(part.__card__() for answer in self.answers for part in answer.parts)

    def __card__(self) -> Card:
        return Card(self.headline, (), (self.table(),), self.remarks)


def evaluate_bound(
    *names: str,
    n_layers: int = 1,
    width: int = 64,
    n_heads: int = 1,
    head_dimension: int | None = None,
    context_length: int = 1000,
    n_samples: int = 10_000,
    norms: Mapping[str, Any] | str | Path | None = None,
    input_norm: float = 1.0,
    loss_lipschitz: float = 1.0,
    loss_bound: float = 1.0,
    delta: float = 0.05,
    resolution: float = 0.1,
    form: Form = "derived",
    solve: str | None = None,
    gap: float | None = None,
    constant: float | None = None,
    sweep: str | None = None,
    sensitivity: bool = False,
    measured: float | None = None,
) -> BoundReport:
    """What theorems give for a network and a sample: ``finetti bound`` in Python.

    The report prints the values, and has them as numbers (``report.value``, ``report.answers``),
    plain data (``report.to_dict()``) and a page (``report.page()``).

    Args:
        names: of bounds, as `load_bounds` lists them.
        n_layers, width, n_heads, head_dimension, resolution, form: see `BoundSettings`.
        norms: by name, or a JSON file of them; 1 by default.
        context_length, n_samples, input_norm, loss_lipschitz, loss_bound, delta: see `Sample`.
        solve: "samples", "heads" or "tokens": the size that reaches the ``gap``.
        gap, constant: the target, and the constant of a bound that is known only up to scaling.
        sweep: size or norm to vary, such as "T=1e2:1e6".
        sensitivity: what 10 % more of each norm does.
        measured: a measured value to compare with.

    >>> report = evaluate_bound("S-thm-A.17", context_length=1000, n_samples=10**6)
    >>> report.value.kind, report.value.vacuous
    ('upper_bound', None)
    """
    _refuse_both("sweep", sweep, "measured", measured)
    _refuse_both("sweep", sweep, "sensitivity", sensitivity or None)
    check_goal(solve, gap, constant)
    registry = load_bounds()
    chosen = [registry[name] for name in names]
    settings = BoundSettings(
        n_layers=n_layers,
        width=width,
        n_heads=n_heads,
        head_dimension=head_dimension,
        resolution=resolution,
        form=form,
        norms=_read_norms(norms),
    )
    sample = Sample(n_samples, context_length, input_norm, loss_lipschitz, loss_bound, delta)
    goal: dict[str, Any] = {"solve": solve, "gap": gap, "constant": constant}
    if sweep is not None:
        found = sweep_bounds(chosen, *parse_sweep(sweep), settings, sample, **goal)
        return BoundReport(swept=found, unread=found.unread)
    for each in chosen:
        each.check_loss(sample)  # before another bound is offered that refuses it, too
    built = build_bounds(chosen, settings)
    answers = []
    for bound in built:
        # The sizes given may be too small for the theorem: they are what is asked for.
        value = bound.evaluate(sample) if solve is None or measured is not None else None
        answers.append(
            BoundAnswer(
                type(bound),
                value if solve is None else None,
                None
                if solve is None or gap is None
                else solve_for(bound, solve, gap, sample, constant),
                sensitivities(bound, sample) if sensitivity else None,
                value.compare(measured) if value and measured is not None else None,
            )
        )
    unread = {each.name: unread_norms(each, settings) for each in chosen}
    return BoundReport(tuple(answers), unread=unread)


def parse_sweep(text: str) -> tuple[SweepVariable, list[float]]:
    """What varies, and its values: WHAT=LOW:HIGH or WHAT=LOW:HIGH:COUNT, evenly in the logarithm.

    >>> variable, values = parse_sweep("T=1e2:1e4:3")
    >>> variable.option, values
    ('context-length', [100, 1000, 10000])
    """
    what, _, limits = text.partition("=")
    pieces = limits.split(":")
    try:
        low, high = map(float, pieces[:2])
        (count,) = map(int, pieces[2:] or [N_POINTS])
    except ValueError as error:
        raise InputError(f"The sweep {text!r} cannot be read. {_ADVICE}") from error
    if not (what.strip() and 0 < low < high < math.inf and count >= 2):
        raise InputError(f"The sweep {text!r} has no values. {_ADVICE}")
    variable = SweepVariable.named(what.strip())
    return variable, variable.grid(low, high, count)


def describe_bound(each: type[Bound]) -> dict[str, Any]:
    """Return what a bound says and assumes, without a value, as plain data."""
    return {
        "name": each.name,
        "paper": each.paper or None,
        "title": each.title,
        "statement": each.statement,
        "symbols": explain_symbols(each.statement),
        "citation": each.citation,
        "quantity": each.quantity,
        "kind": each.derived_kind,
        "printed_kind": each.printed_kind,
        "assumes": list(each.assumes),
        "norms": list(each.norm_names()),
    }


def explain_bound(each: type[Bound]) -> Card:
    """Return what a bound says and assumes, without a value, as a card."""
    symbols = explain_symbols(each.statement)
    rows = (
        ("statement", each.statement),
        *(("where", f"{letter}: {words}") for letter, words in symbols.items()),
        ("source", each.citation),
        ("quantity", each.quantity),
        ("kind", each.derived_kind),
        ("kind as printed", each.printed_kind),
        *(("assumes", words) for words in each.assumes),
        ("reads of --norms", ", ".join(each.norm_names()) or "nothing"),
    )
    return Card(f"{each.name}: {each.title}", rows)


def _refuse_both(first: str, one: Any, second: str, other: Any) -> None:
    if one is not None and other is not None:
        raise InputError(f"`{first}` and `{second}` cannot be combined. Leave one out.")


def _read_norms(norms: Mapping[str, Any] | str | Path | None) -> Mapping[str, Any]:
    if norms is None or isinstance(norms, Mapping):
        return norms or {}
    content = read_file(norms)
    try:
        return parse_json(content, str(norms))
    except InputError as error:
        advice = 'Write names and numbers, such as {"value_norm": 2.0}.'
        raise InputError(f"{error} {advice}") from error

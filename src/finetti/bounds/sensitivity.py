"""What 10 % more of each norm does to a bound."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any

from finetti.bounds.description import NORM
from finetti.bounds.sample import Sample
from finetti.bounds.value import exp_of
from finetti.core.errors import InputError, UnsupportedError
from finetti.show.card import Card, Table
from finetti.show.shown import Shown

GROWTH_FACTOR = 1.1
_OF_SAMPLE = ("input_norm", "loss_lipschitz")
_MAX_ROWS_SHOWN = 20


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
class Sensitivities(Shown):
    """All norms of a bound, the most influential first; layers and heads are counted from 1.

    ``refused`` are the norms with which the theorem no longer applies when they grow, and why.
    """

    rows: tuple[Sensitivity, ...]
    refused: tuple[tuple[str, str], ...] = ()

    def __iter__(self) -> Iterator[Sensitivity]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Sensitivity:
        known = {row.field: row for row in self.rows}
        if name in known:
            return known[name]
        for refused, reason in self.refused:
            if refused == name:
                raise InputError(f"{name} cannot grow: {reason}")
        near = get_close_matches(name, known, n=3, cutoff=0.3)
        advice = f"The nearest: {', '.join(near)}." if near else f"There are: {', '.join(known)}."
        raise InputError(f"There is no norm {name!r} here. {advice}")

    def __card__(self) -> Card:
        rows = tuple((r.field, r.ratio, r.exponent) for r in self.rows[:_MAX_ROWS_SHOWN])
        rest = len(self.rows) - len(rows)
        notes = [f"{rest} more move it less."] if rest else []
        notes += [f"{name} cannot grow: {reason}" for name, reason in self.refused]
        columns = ("norm", "value × (norm + 10 %)", "local power")
        return Card("Sensitivity", (), (Table("", columns, rows),), tuple(notes))


def sensitivity(bound: Any, sample: Sample) -> Sensitivities:
    """Evaluate again with every norm, one at a time, 10 % larger.

    Norms are the fields made with `fields.norm`, at any depth, and B_X and the loss's Lipschitz
    constant of the sample.
    """
    before = bound.evaluate(sample).log_value
    rows, refused = [], []
    for path, changed, at in _variants(bound, sample):
        try:
            after = changed.evaluate(at).log_value
        except UnsupportedError as error:
            refused.append((path, str(error)))
        else:
            rows.append(Sensitivity(path, _change(before, after)))
    rows.sort(key=lambda row: -abs(row.log_ratio))
    return Sensitivities(tuple(rows), tuple(refused))


def _variants(bound: Any, sample: Sample) -> Iterator[tuple[str, Any, Sample]]:
    for path, changed in _grown(bound):
        yield path, changed, sample
    for name in _OF_SAMPLE:
        larger = {name: GROWTH_FACTOR * getattr(sample, name)}
        yield f"sample.{name}", bound, replace(sample, **larger)


def _change(before: float, after: float) -> float:
    # Rounding of the logarithm is no effect of the norm.
    still = after == before or abs(after - before) < 1e-12 * max(1.0, abs(before))
    return 0.0 if still else after - before


def _grown(described: Any) -> Iterator[tuple[str, Any]]:
    """Copies of a description with one norm larger, and the path of that norm."""
    for each in fields(described):
        value = getattr(described, each.name)
        if each.metadata.get(NORM) and value is not None:
            yield each.name, replace(described, **{each.name: GROWTH_FACTOR * value})
        elif is_dataclass(value):
            for path, changed in _grown(value):
                yield f"{each.name}.{path}", replace(described, **{each.name: changed})
        elif isinstance(value, tuple) and value and all(is_dataclass(part) for part in value):
            for number, part in enumerate(value, start=1):
                for path, changed in _grown(part):
                    parts = (*value[: number - 1], changed, *value[number:])
                    yield f"{each.name}[{number}].{path}", replace(described, **{each.name: parts})

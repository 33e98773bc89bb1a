"""A claim of a paper, what was measured for it, and the verdict. Imports without JAX."""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, SupportsFloat, TypeVar

from finetti.claims.bibliography import PAPERS
from finetti.core.errors import bad_argument
from finetti.show.card import Card, Table
from finetti.show.numbers import format_interval, format_number
from finetti.show.shown import Shown

ID = re.compile(r"[ESR](-[a-z]+)(-[A-Za-z0-9]+(\.[A-Za-z0-9]+)*)*")
LABELS = {
    "lemma": "Lemma {}",
    "thm": "Theorem {}",
    "prop": "Proposition {}",
    "cor": "Corollary {}",
    "app": "Appendix {}",
    "eq": "({})",
}
OUTCOMES = {True: "yes", False: "no", None: "undecided"}
Value = TypeVar("Value")
_Interval = tuple[float, float] | None
Formula = Callable[..., float]  # what a control may change


class Verdict(StrEnum):
    """What the evidence says about a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"


class Scale(StrEnum):
    """How much to compute: minutes on a laptop, or the grid that the paper prints."""

    QUICK = "quick"
    PAPER = "paper"


@dataclass(frozen=True)
class Measurement:
    """One number, the rule it was held against, and whether it obeyed.

    ``holds`` is None where the rule could not be decided; ``reason`` then says why. A value that is
    not a number decides nothing, neither for a claim nor against it.
    """

    name: str
    value: float
    rule: str
    holds: bool | None
    interval: _Interval = None
    unit: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "value", float(self.value))
        set_field(self, "holds", None if self.holds is None else bool(self.holds))
        if self.interval is not None:
            low, high = self.interval
            set_field(self, "interval", (float(low), float(high)))
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
    return Measurement(name, float(value), rule, holds, interval, unit, reason)


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


def close(name: str, error: SupportsFloat, tolerance: float, *, unit: str = "") -> Measurement:
    """An identity: the largest absolute ``error`` is at most ``tolerance`` (its sign is ignored).

    >>> close("two routes", 3e-16, 1e-10).holds
    True
    """
    return at_most(name, abs(float(error)), tolerance, unit=unit)


@dataclass(frozen=True, init=False)
class Evidence(Shown):
    """What was measured for a claim: ``Evidence(first, second, note="…")``, the weightiest first.

    ``derived`` is what the derived form gives on the instance at which the printed form
    was measured: unless all of these hold, a failure may be the instance's, and decides nothing.
    ``charts`` are Vega-Lite specifications (``finetti.show.line_chart``), ``tables`` are
    ``finetti.show.Table``.
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
        lists = {"measurements": measurements, "derived": derived, "charts": charts}
        for name, each in {**lists, "tables": tables}.items():
            object.__setattr__(self, name, tuple(each))
        object.__setattr__(self, "note", note)

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


@dataclass(frozen=True)
class Context:
    """How a run is made: its scale and its seed, from which all randomness of a claim follows."""

    scale: Scale = Scale.QUICK
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scale not in tuple(Scale):
            raise bad_argument("scale", "Context", "quick or paper", self.scale)
        object.__setattr__(self, "scale", Scale(self.scale))

    def generator(self, claim_id: str, *parts: Any) -> Any:
        """A NumPy generator for this claim, seed and ``parts`` (strings and integers)."""
        from finetti.core.keys import generator

        return generator(claim_id, self.seed, *parts)

    def random_key(self, claim_id: str, *parts: Any) -> Any:
        """A JAX random key for this claim, seed and ``parts``."""
        from finetti.core.keys import random_key

        return random_key(claim_id, self.seed, *parts)

    def pick(self, *, quick: Value, paper: Value) -> Value:
        """The setting for the scale of this run.

        >>> Context("paper").pick(quick=10, paper=1000)
        1000
        """
        return quick if self.scale is Scale.QUICK else paper


@dataclass(frozen=True)
class Control:
    """A wrong version of a claim's formula, which its measurements must tell from the right one.

    ``run`` measures as the claim's own does, with a wrong constant or without a factor; by default
    it is the claim's own with ``changes`` to its arguments. Its verdict must not be the expected.
    """

    name: str
    run: Callable[[Context], Evidence] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


def _label(claim_id: str) -> str:
    """Where a claim stands, by its id.

    >>> _label("S-thm-A.17-chain"), _label("E-eq-4.5")
    ('Theorem A.17', '(4.5)')
    """
    _, kind, *number = claim_id.split("-")
    if kind not in LABELS or not number:
        raise bad_argument("label", "Claim", "given where the id does not say it", claim_id)
    return LABELS[kind].format(number[0])


@dataclass(frozen=True)
class Claim(Shown):
    """A statement of a paper and the function that looks for evidence.

    Args:
        id: paper and label, as ``E-prop-4.1`` or ``S-erratum-3``; never changes.
        title: a few words for tables.
        statement: the claim in full sentences.
        run: measures; imports JAX inside, so that the claim itself loads instantly. Its docstring
            says what is measured.
        label: where it stands in the paper; what the id says by default, as ``Proposition 4.1``.
        expected: an erratum's printed form is expected to fail, on every measurement, where its
            derived form (``Evidence.derived``) holds.
        false_alarm: probability that a true claim turns red by chance, its share of the 1 % that
            the whole run may have; 0 for identities.
        erratum: what the paper prints and what its proof gives, where they differ.
        controls: wrong versions of the formula, each of which must turn the claim red.
    """

    id: str
    title: str
    statement: str
    run: Callable[[Context], Evidence]
    label: str = ""
    expected: Verdict = Verdict.HOLDS
    false_alarm: float = 0.0
    erratum: str | None = None
    controls: tuple[Control, ...] = ()

    def __post_init__(self) -> None:
        if not ID.fullmatch(self.id):
            advice = "Its first letter is the paper."
            raise bad_argument("id", "Claim", "like E-prop-4.1 or S-erratum-3", self.id, advice)
        if not 0.0 <= self.false_alarm <= 0.01:
            raise bad_argument("false_alarm", "Claim", "in [0, 0.01]", self.false_alarm)
        object.__setattr__(self, "expected", Verdict(self.expected))
        object.__setattr__(self, "label", self.label or _label(self.id))

    @property
    def paper(self) -> str:
        """E, S or R; see ``finetti.claims.bibliography``."""
        return self.id[0]

    @property
    def checked_by(self) -> str:
        """The file and the function that check it, as ``finetti/claims/…/file.py: function``."""
        return f"{self.run.__module__.replace('.', '/')}.py: {self.run.__qualname__}"

    @property
    def command(self) -> str:
        """What checks this claim alone."""
        return f"finetti reproduce --only {self.id}"

    @property
    def measured(self) -> str:
        """What ``run`` measures, in the words of its docstring."""
        return (inspect.getdoc(self.run) or "").strip()

    @property
    def citation(self) -> str:
        """Where the claim stands: authors, year, label."""
        return PAPERS[self.paper].cite(self.label)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "id": self.id,
            "title": self.title,
            "statement": self.statement,
            "paper": self.paper,
            "label": self.label,
            "citation": self.citation,
            "measured": self.measured,
            "checked_by": self.checked_by,
            "command": self.command,
            "erratum": self.erratum,
            "expected": self.expected.value,
            "false_alarm": self.false_alarm,
            "controls": [control.name for control in self.controls],
        }

    def __card__(self) -> Card:
        chance = f"at most {format_number(100 * self.false_alarm)} % if the claim is true"
        fields = (
            ("statement", self.statement),
            ("source", self.citation),
            ("measured", self.measured or None),
            ("checked by", self.checked_by),
            ("alone", self.command),
            ("erratum", self.erratum or "none"),
            ("expected", self.expected.value),
            ("false alarm", chance if self.false_alarm else "never: nothing is left to chance"),
            ("turns red for", "; ".join(control.name for control in self.controls) or None),
        )
        return Card(f"{self.id}: {self.title}", fields)


def claim(
    id: str, title: str, statement: str, **fields: Any
) -> Callable[[Callable[..., Evidence]], Claim]:
    """Makes the function below it a `Claim` that it checks; ``fields`` are those of the class.

    With an ``erratum`` it is expected to fail, unless ``expected`` says otherwise.
    """
    fields.setdefault("expected", Verdict.FAILS if "erratum" in fields else Verdict.HOLDS)
    return lambda run: Claim(id, title, statement, run, **fields)

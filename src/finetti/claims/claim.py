"""A claim of a paper, and how it is run. Imports without JAX."""

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from finetti import core  # loads NumPy on use: `finetti --help` must start at once
from finetti.claims.bibliography import PAPERS
from finetti.claims.evidence import Evidence, Verdict
from finetti.core.errors import bad_argument
from finetti.display.card import Card
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_number

ID = re.compile(r"[ESRF](-[a-z]+)(-[A-Za-z0-9]+(\.[A-Za-z0-9]+)*)*")
LABELS = {
    "lemma": "Lemma {}",
    "thm": "Theorem {}",
    "prop": "Proposition {}",
    "cor": "Corollary {}",
    "app": "Appendix {}",
    "eq": "({})",
}
FIGURES = ("fig", "table", "learn")  # in the ids of experiments
COMMANDS = ("frac", "binom", "sqrt", "hat", "tilde", "bar", "text")
PLAIN_FIELDS = (
    "id title statement kind paper label citation formula printed measured pass_rule "
    "checked_by code command rejects"
)
DERIVED = "derived"
Value = TypeVar("Value")


class Scale(StrEnum):
    """How much to compute: minutes on a laptop, or the grid that the paper prints."""

    QUICK = "quick"
    PAPER = "paper"


class CheckMethod(StrEnum):
    """How a claim is checked."""

    IDENTITY = "identity"  # two routes agree up to rounding
    TIGHT = "tight-instance"  # an inequality, on instances that nearly attain it or would break it
    SIMULATION = "simulation"  # a statistic of random draws, with a probability of error
    EXPERIMENT = "experiment"  # trained models
    RESTS_ON = "rests-on"  # no measurement of its own: it follows from other claims

    @property
    def words(self) -> str:
        """The name for people, without the hyphen."""
        return self.value.replace("-", " ")


@dataclass(frozen=True)
class Context:
    """How a run is made: its scale and its seed, from which all randomness of a claim follows.

    ``claim`` is the id of the claim that is being measured.
    """

    scale: Scale = Scale.QUICK
    seed: int = 0
    claim: str = ""

    def __post_init__(self) -> None:
        if self.scale not in tuple(Scale):
            raise bad_argument("scale", "Context", "quick or paper", self.scale)
        object.__setattr__(self, "scale", Scale(self.scale))

    def draws(self, *parts: Any) -> Any:
        """A NumPy generator for the claim that is being measured, the seed and ``parts``."""
        return core.generator(self.claim, self.seed, *parts)

    def random_key(self, *parts: Any) -> Any:
        """A JAX random key for the same."""
        return core.random_key(self.claim, self.seed, *parts)

    def pick(self, *, quick: Value, paper: Value) -> Value:
        """The setting for the scale of this run.

        >>> Context("paper").pick(quick=10, paper=1000)
        1000
        """
        return quick if self.scale is Scale.QUICK else paper


@dataclass(frozen=True)
class Control:
    """A wrong version of a claim's formula, which its measurements must tell from the right one.

    ``changes`` are other keyword arguments of the measuring function, or other fields of the
    measure. Its verdict must not be the expected.
    """

    name: str
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Erratum:
    """What a paper prints where its proof gives the claim; a row of the ledger is made of it.

    The row is expected to fail: its measurements are those of the host in ``form``, each of which
    must break its rule, beside those of the derived form, each of which must hold.

    Args:
        number: of the erratum, as 5 or ``4-limit``; the row's id is ``E-erratum-5``.
        title: a few words for tables.
        printed: what the paper prints, in symbols.
        why: what is wrong, and where the proof says so.
        statement: the printed claim in a sentence, where the title does not say it.
        label: where it stands; that of the host by default.
        formula: the derived form in symbols; that of the host by default.
        form: with which the host's measure is called; a host with several errata needs several.
        false_alarm: that of the host by default.
        controls: wrong versions of the row, if any.
    """

    number: int | str
    title: str
    printed: str
    why: str
    statement: str = ""
    label: str = ""
    formula: str = ""
    form: str = "printed"
    false_alarm: float | None = None
    controls: tuple[Control, ...] = ()


@dataclass(frozen=True)
class PrintedForm:
    """The measure of an erratum's row: its host in the printed form, beside the derived one."""

    host: "Claim"
    form: str

    def __call__(self, context: Context) -> Evidence:
        """Measure the printed form, and the derived one unless print brings its own along."""
        printed = self.host.evidence(context, self.form)
        derived = printed if printed.derived else self.host.evidence(context, DERIVED)
        return self.combine(printed, derived)

    @staticmethod
    def combine(printed: Evidence, derived: Evidence) -> Evidence:
        """The printed measurements beside the derived ones, or beside those they bring along."""
        return Evidence(
            *printed.measurements,
            derived=printed.derived or derived.measurements,
            note=printed.note,
            charts=printed.charts,
            tables=printed.tables,
        )


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
class Claim(Displayable):
    """A statement of a paper and the measure that looks for evidence.

    Args:
        id: paper and label, as ``E-prop-4.1`` or ``S-erratum-3``; never changes.
        title: a few words for tables.
        statement: the claim in full sentences.
        measure: a function of the context, or an object of `finetti.claims.measures`; imports JAX
            inside, so that the claim itself loads instantly. Its docstring (or ``measured``) says
            what is measured. One that takes ``form`` measures the printed form, too.
        label: where it stands in the paper; what the id says by default, as ``Proposition 4.1``.
        expected: an erratum's printed form is expected to fail, on every measurement, where its
            derived form (``Evidence.derived``) holds.
        false_alarm: probability that a true claim turns red by chance, its share of the 1 % that
            the whole run may have; 0 for identities.
        erratum: what the paper prints where its proof gives this claim, as one `Erratum` or
            several, whose rows the ledger makes; of a row that measures itself, the explanation.
        controls: wrong versions of the formula, each of which must turn the claim red.
        formula: what is checked, in symbols (of an erratum: the derived form).
        printed: what the paper prints in its place, in symbols, where the two differ.
        rests_on: ids of the claims from which this one follows; it then has no measure.
        check: how it is checked; by default what the measure says, or the id and the false alarm.
        rejects: the error that the rules themselves reject, as "a factor of 1.02"; by default
            what the measure says.
        module: that declares it; the ledger knows.

    Symbols are Unicode; ``_`` and ``^`` take a single sign or ``{…}``, a brace itself is ``\\{``,
    and `COMMANDS` are as in LaTeX. Latin letters in a row are one upright word (log, attn), a
    single one is a variable; two spaces stand between formulas.
    """

    id: str
    title: str
    statement: str
    measure: Callable[..., Evidence] | None = None
    label: str = ""
    expected: Verdict = Verdict.HOLDS
    false_alarm: float = 0.0
    erratum: str | Erratum | tuple[Erratum, ...] | None = None
    controls: tuple[Control, ...] = ()
    formula: str = ""
    printed: str = ""
    rests_on: tuple[str, ...] = ()
    check: CheckMethod | None = None
    rejects: str = ""
    module: str = ""

    def __post_init__(self) -> None:
        if not ID.fullmatch(self.id):
            advice = "Its first letter is the paper."
            raise bad_argument("id", "Claim", "like E-prop-4.1 or S-erratum-3", self.id, advice)
        if not 0.0 <= self.false_alarm <= 0.01:
            raise bad_argument("false_alarm", "Claim", "in [0, 0.01]", self.false_alarm)
        if isinstance(self.rests_on, str) or (self.measure is None) is not bool(self.rests_on):
            needed = "a tuple of ids for a claim without a measure, and empty for one with it"
            raise bad_argument("rests_on", "Claim", needed, self.rests_on, f"It is {self.id}.")
        if self.errata and not self._takes_form:
            needed = "one that takes form, as the claim has an Erratum"
            raise bad_argument("measure", "Claim", needed, self.measure, f"It is {self.id}.")
        set_field = object.__setattr__
        set_field(self, "expected", Verdict(self.expected))
        set_field(self, "label", self.label or _label(self.id))
        set_field(self, "check", CheckMethod(self.check or self._default_check))
        set_field(self, "rejects", self.rejects or getattr(self.measure, "rejects", ""))
        if not self.module and hasattr(self.measure, "__qualname__"):
            set_field(self, "module", self.measure.__module__)

    @property
    def _default_check(self) -> str:
        """What the measure says; else by the kind of the claim and by what is left to chance."""
        if self.rests_on:
            return CheckMethod.RESTS_ON
        if said := getattr(self.measure, "check", None):
            return said
        if self.kind == "figure":
            return CheckMethod.EXPERIMENT
        return CheckMethod.SIMULATION if self.false_alarm else CheckMethod.IDENTITY

    @property
    def errata(self) -> tuple[Erratum, ...]:
        """What the paper prints in its place, where that becomes rows of its own."""
        if isinstance(self.erratum, Erratum):
            return (self.erratum,)
        return self.erratum if isinstance(self.erratum, tuple) else ()

    @property
    def why(self) -> str | None:
        """On the row of an erratum: what is wrong in print."""
        return self.erratum if isinstance(self.erratum, str) else None

    @property
    def rows(self) -> "tuple[Claim, ...]":
        """The claim, and the rows that the ledger makes of its errata."""
        return (self, *(self._printed_row(each) for each in self.errata))

    def _printed_row(self, erratum: Erratum) -> "Claim":
        alarm = erratum.false_alarm
        return Claim(
            f"{self.paper}-erratum-{erratum.number}",
            erratum.title,
            erratum.statement or f"Of {self.id} is {erratum.title}.",
            PrintedForm(self, erratum.form),
            erratum.label or self.label,
            Verdict.FAILS,
            self.false_alarm if alarm is None else alarm,
            erratum.why,
            erratum.controls,
            erratum.formula or self.formula,
            erratum.printed,
            check=self.check,
            rejects="a printed form that holds, or a derived one that does not",
            module=self.module,
        )

    @property
    def host(self) -> "Claim | None":
        """Of a row that was made of an `Erratum`: the claim whose measure it shares."""
        return self.measure.host if isinstance(self.measure, PrintedForm) else None

    @property
    def _takes_form(self) -> bool:
        return self.measure is not None and "form" in inspect.signature(self.measure).parameters

    def evidence(self, context: Context, form: str = DERIVED) -> Evidence:
        """Measure one form here and now, in the precision of the program."""
        if self.measure is None:
            raise TypeError(f"{self.id} rests on {', '.join(self.rests_on)} and measures nothing.")
        options = {"form": form} if self._takes_form else {}
        evidence = self.measure(replace(context, claim=self.id), **options)
        if not isinstance(evidence, Evidence):
            kind = type(evidence)
            raise TypeError(f"The measure of {self.id} must return Evidence. Got {kind} instead.")
        return evidence

    @property
    def paper(self) -> str:
        """E, S or R, or F for what is ours; see ``finetti.claims.bibliography``."""
        return self.id[0]

    @property
    def kind(self) -> str:
        """``theorem`` (all that is proven), ``figure`` (all that is an experiment) or ``erratum``.

        What turns a claim red is the fourth kind, ``control``.
        """
        kind = self.id.split("-")[1]
        return "erratum" if kind == "erratum" else "figure" if kind in FIGURES else "theorem"

    @property
    def pass_rule(self) -> str:
        """When the evidence is as expected, in one sentence."""
        if self.rests_on:
            return f"All that it rests on is as expected: {', '.join(self.rests_on)}."
        if self.expected is Verdict.FAILS:
            return "Every number of the printed form breaks its rule, every derived one obeys."
        return "Every number obeys its rule, with all of its interval where it has one."

    @property
    def red_for(self) -> tuple[str, ...]:
        """What turns it red: wrong versions, what is printed, what the rules themselves reject."""
        printed = (f"what is printed ({row.id})" for row in self.rows[1:])
        resting = (f"whatever turns {each} red" for each in self.rests_on)
        rejected = (self.rejects,) if self.rejects else ()
        return (*(control.name for control in self.controls), *printed, *rejected, *resting)

    @property
    def check_words(self) -> str:
        """How it is checked, with the probability of an error or the claims it rests on."""
        words = CheckMethod(self.check or CheckMethod.IDENTITY).words
        if self.rests_on:
            return f"{words} {', '.join(self.rests_on)}"
        if not self.false_alarm:
            return words
        return f"{words}, wrong by chance in at most {format_number(100 * self.false_alarm)} %"

    @property
    def _measure(self) -> Any:
        """The measure, of a row made of an `Erratum` that of its host."""
        return self.host.measure if self.host else self.measure

    @property
    def checked_by(self) -> str:
        """The file and the function that check it, as ``finetti/claims/…/file.py: function``.

        Of a measure that is data: its class. Of a claim without a measure: what it rests on.
        """
        name = getattr(self._measure, "__qualname__", type(self._measure).__name__)
        name = f"rests on {', '.join(self.rests_on)}" if self.rests_on else name
        return f"{self.module.replace('.', '/')}.py: {name}"

    @property
    def code(self) -> dict[str, str]:
        """The code that checks it: file, function, and its source as text.

        Of a measure that is data, the source is the declaration of the claim.
        """
        file, function = self.checked_by.split(": ", 1)
        try:
            if hasattr(self._measure, "__qualname__"):
                source = inspect.getsource(self._measure)
            else:
                source = _declaration(self.module, (self.host or self).id)
        except (OSError, TypeError):
            source = ""  # typed in, not written to a file
        return {"file": file, "function": function, "source": source}

    @property
    def command(self) -> str:
        """What checks this claim alone."""
        return f"finetti reproduce --only {self.id}"

    @property
    def measured(self) -> str:
        """What is measured, in the words of the function's docstring or of the measure."""
        if self.rests_on:
            return f"Nothing of its own: it follows from {', '.join(self.rests_on)}."
        said = getattr(self._measure, "measured", None) or inspect.getdoc(self._measure) or ""
        return f"{said} As printed, beside the derived form." if self.host else said

    @property
    def citation(self) -> str:
        """Where the claim stands: authors, year, label."""
        return PAPERS[self.paper].cite(self.label)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **{name: getattr(self, name) for name in PLAIN_FIELDS.split()},
            "bibtex": PAPERS[self.paper].bibtex,
            "expected": self.expected.value,
            "false_alarm": self.false_alarm,
            "erratum": self.why,
            "check": CheckMethod(self.check or CheckMethod.IDENTITY).value,
            "rests_on": list(self.rests_on),
            "controls": [control.name for control in self.controls],
            "red_for": list(self.red_for),
        }

    def __card__(self) -> Card:
        chance = f"at most {format_number(100 * self.false_alarm)} % if the claim is true"
        fields = (
            ("statement", self.statement),
            ("formula", self.formula or None),
            ("printed", self.printed or None),
            ("source", self.citation),
            ("measured", self.measured or None),
            ("passes if", self.pass_rule),
            ("checked by", self.checked_by),
            ("alone", self.command),
            ("check", self.check_words),
            ("erratum", self.why or ", ".join(row.id for row in self.rows[1:]) or "none"),
            ("expected", self.expected.value),
            ("false alarm", chance if self.false_alarm else "never: nothing is left to chance"),
            ("turns red for", "; ".join(self.red_for) or None),
        )
        return Card(f"{self.id}: {self.title}", fields)


def _declaration(module: str, claim_id: str) -> str:
    """The text of the call ``Claim(id=…)`` in the source of ``module``."""
    if not module:
        return ""  # of no module: made in a program
    source = inspect.getsource(importlib.import_module(module))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            given = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "id")]
            if any(isinstance(each, ast.Constant) and each.value == claim_id for each in given):
                return inspect.cleandoc(ast.get_source_segment(source, node, padded=True) or "")
    return ""


def claim(
    id: str, title: str, statement: str, **fields: Any
) -> Callable[[Callable[..., Evidence]], Claim]:
    """Makes the function below it a `Claim` that it checks; ``fields`` are those of the class.

    With an ``erratum`` in words it is expected to fail, unless ``expected`` says otherwise.
    """
    fails = isinstance(fields.get("erratum"), str)
    fields.setdefault("expected", Verdict.FAILS if fails else Verdict.HOLDS)
    return lambda measure: Claim(id, title, statement, measure, **fields)

"""A claim of a paper, and how it is run. Imports without JAX."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from finetti import core  # loads NumPy on use: `finetti --help` must start at once
from finetti.claims.bibliography import PAPERS
from finetti.claims.evidence import Evidence, Verdict
from finetti.core.errors import bad_argument
from finetti.show.card import Card
from finetti.show.numbers import format_number
from finetti.show.shown import Shown

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
    "checked_by code command erratum"
)
Value = TypeVar("Value")
Formula = Callable[..., float]  # what a control may change


class Scale(StrEnum):
    """How much to compute: minutes on a laptop, or the grid that the paper prints."""

    QUICK = "quick"
    PAPER = "paper"


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
        return core.generator(claim_id, self.seed, *parts)

    def random_key(self, claim_id: str, *parts: Any) -> Any:
        """A JAX random key for this claim, seed and ``parts``."""
        return core.random_key(claim_id, self.seed, *parts)

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
    it is the claim's own with ``changes`` to its arguments, while functions of the package are
    exchanged for those of ``breaks`` (name → what makes the wrong one of the right one, see
    `finetti.claims.wrong`). Its verdict must not be the expected.
    """

    name: str
    run: Callable[[Context], Evidence] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    breaks: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


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
        formula: what is checked, in symbols (of an erratum: the derived form).
        printed: what the paper prints in its place, in symbols, where the two differ.

    Symbols are Unicode; ``_`` and ``^`` take a single sign or ``{…}``, a brace itself is ``\\{``,
    and `COMMANDS` are as in LaTeX. Latin letters in a row are one upright word (log, attn), a
    single one is a variable; two spaces stand between formulas.
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
    formula: str = ""
    printed: str = ""

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
        if self.expected is Verdict.FAILS:
            return "Every number of the printed form breaks its rule, every derived one obeys."
        return "Every number obeys its rule, with all of its interval where it has one."

    @property
    def checked_by(self) -> str:
        """The file and the function that check it, as ``finetti/claims/…/file.py: function``."""
        return f"{self.run.__module__.replace('.', '/')}.py: {self.run.__qualname__}"

    @property
    def code(self) -> dict[str, str]:
        """The code that checks it: file, function, and its source as text."""
        file, function = self.checked_by.split(": ")
        try:
            source = inspect.getsource(self.run)
        except OSError:
            source = ""  # typed in, not written to a file
        return {"file": file, "function": function, "source": source}

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
            **{name: getattr(self, name) for name in PLAIN_FIELDS.split()},
            "bibtex": PAPERS[self.paper].bibtex,
            "expected": self.expected.value,
            "false_alarm": self.false_alarm,
            "controls": [control.name for control in self.controls],
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

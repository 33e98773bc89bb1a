"""What a bound is evaluated at, and what it gives: a number in log space that explains itself."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Literal

from finetti.core.arguments import Form, as_norm, as_positive, as_whole
from finetti.core.checked_fields import Checked, checked, real
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.core.numerics.logspace import log_sum
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_number

BoundKind = Literal["scaling", "upper_bound", "unproven"]
KINDS = {
    "scaling": "scaling quantity: constants are left out, only ratios mean something",
    "upper_bound": "upper bound: all constants and logarithms are kept",
    "unproven": "no bound: as printed it rests on a step that fails, and may be too small",
}
# Held against the loss: larger than the loss itself, they say nothing.
OF_THE_LOSS = ("generalization gap", "generalization error", "risk", "excess risk")
_MAX_TERMS_SHOWN = 12


def log_of(value: float) -> float:
    """log x, −∞ for x = 0, NaN for NaN; integers may be of any size.

    >>> log_of(0), round(log_of(10**1000), 6)
    (-inf, 2302.585093)
    """
    return -math.inf if value <= 0 else math.log(value)


def format_exp(log_value: float) -> str:
    """e^x as people read it, also where no float holds it.

    >>> format_exp(math.log(0.25)), format_exp(1e4), format_exp(-1e4), format_exp(-math.inf)
    ('0.25', '10^4343', '10^-4343', '0')
    """
    if abs(log_value) < 700 or math.isinf(log_value) or math.isnan(log_value):
        return format_number(exp_of(log_value))
    return f"10^{format_number(log_value / math.log(10))}"


def exp_of(log_value: float) -> float:
    """e^x, ∞ where that is too large for a float, NaN for NaN.

    >>> exp_of(0.0), exp_of(1e4)
    (1.0, inf)
    """
    return math.inf if log_value >= 709.78 else math.exp(log_value)


@dataclass(frozen=True)
class Term:
    """One part of a value: which factor, of which layer (from 1), of which matrix.

    ``share`` is its part of the sum, in [0, 1]; None for the factor of a product.
    """

    name: str
    layer: int | None = None
    matrix: str | None = None
    log_value: float = -math.inf
    share: float | None = None

    @property
    def value(self) -> float:
        """e^log_value; ∞ where that is too large to write."""
        return exp_of(self.log_value)


def summed(terms: Iterable[Term]) -> tuple[float, tuple[Term, ...]]:
    """The log of the sum of ``terms``, and the terms with their shares.

    >>> total, terms = summed([Term("a", log_value=0.0), Term("b", log_value=math.log(3))])
    >>> round(math.exp(total), 9), [round(term.share, 9) for term in terms]
    (4.0, [0.25, 0.75])
    """
    terms = tuple(terms)
    total = float(log_sum([term.log_value for term in terms]))
    log_all = total if total > -math.inf else math.inf  # of nothing, every part is 0
    return total, tuple(
        Term(t.name, t.layer, t.matrix, t.log_value, math.exp(t.log_value - log_all)) for t in terms
    )


def split_in_proportion(name: str, log_value: float, parts: Iterable[Term]) -> list[Term]:
    """e^``log_value`` shared between layers and matrices in proportion to ``parts``.

    >>> parts = [Term("a", 1, "W", 0.0), Term("a", 2, "W", math.log(3))]
    >>> [round(term.value, 9) for term in split_in_proportion("b", math.log(8), parts)]
    [2.0, 6.0]
    """
    parts = tuple(parts)
    whole = float(log_sum([part.log_value for part in parts]))
    if log_value == -math.inf or whole == -math.inf:
        return [Term(name, log_value=log_value)]
    return [
        Term(name, part.layer, part.matrix, log_value + part.log_value - whole) for part in parts
    ]


@dataclass(frozen=True)
class BoundValue(Displayable):
    """The value of a bound at a sample, and where it comes from.

    Args:
        log_value: the logarithm of the (absolute) value; finite where the value itself overflows.
        terms: its parts.
        citation: theorem and paper.
        form: derived or printed.
        kind: scaling, upper_bound or unproven.
        quantity: what it is a bound of; only equal quantities can be compared.
        assumptions: what has to be true.
        vacuous: whether it exceeds what is trivially true; None where nothing is trivial.
        sign: −1 where a printed formula is negative.
        notes: what a reader should know of this value.
        count: the value itself where it is a whole number, of any size (samples, heads).

    >>> value = BoundValue(math.log(3.0), (), "Lemma 1, someone", "derived", "upper_bound", "gap")
    >>> round(value.value, 9), BoundValue(1e4, (), "", "derived", "upper_bound", "gap").value
    (3.0, inf)
    """

    log_value: float
    terms: tuple[Term, ...]
    citation: str
    form: Form
    kind: BoundKind
    quantity: str
    assumptions: tuple[str, ...] = ()
    vacuous: bool | None = None
    sign: int = 1
    notes: tuple[str, ...] = ()
    count: int | None = None

    @property
    def value(self) -> float:
        """The number; ∞ where it is too large to write, never an error."""
        if self.count is not None and self.log_value < 700:
            return float(self.count)
        return self.sign * exp_of(self.log_value)

    @property
    def text(self) -> str:
        """The number as people read it, also where no float holds it.

        >>> BoundValue(1e4, (), "", "derived", "upper_bound", "gap").text
        '10^4343'
        """
        if self.log_value > 700:
            return f"{'-' if self.sign < 0 else ''}{format_exp(self.log_value)}"
        small = self.count is not None and self.count < 10**7
        return str(self.count) if small else format_number(self.value)

    @property
    def number(self) -> float | str:
        """The number for a table: whole if it is a count, text where no float holds it."""
        if self.log_value > 700:
            return self.text
        return self.count if self.count is not None and self.count < 2**53 else self.value

    def compare(self, measured: float) -> "Comparison":
        """This value next to what was measured of the same quantity."""
        if self.quantity not in OF_THE_LOSS:
            raise UnsupportedError(
                f"A {self.quantity} is not measured on data, so there is nothing to compare. "
                f"Take a bound of one of: {', '.join(OF_THE_LOSS)}."
            )
        return Comparison(self, as_norm(measured, "measured", "BoundValue.compare"))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: ``value`` is None where it is too large for a float."""
        return {
            "value": finite(self.value),
            "log_value": finite(self.log_value),
            "sign": self.sign,
            "count": self.count if (self.count or 0) < 2**53 else None,
            "quantity": self.quantity,
            "kind": self.kind,
            "form": self.form,
            "citation": self.citation,
            "vacuous": self.vacuous,
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "terms": [asdict(term) | {"log_value": finite(term.log_value)} for term in self.terms],
        }

    def __card__(self) -> Card:
        fields = [
            (self.quantity, self.text),
            ("logarithm", self.log_value),
            ("source", self.citation),
            ("form", self.form),
            ("kind", KINDS[self.kind]),
        ]
        if self.vacuous is not None:
            said = "yes: it exceeds the largest possible loss" if self.vacuous else "no"
            fields.append(("vacuous", said))
        fields += [("assumes", each) for each in self.assumptions]
        tables = (self._table(),) if self.terms else ()
        return Card(
            f"{self.citation.split(',')[0]}: {self.quantity}", tuple(fields), tables, self.notes
        )

    def _table(self) -> Table:
        ordered = sorted(self.terms, key=lambda term: -term.log_value)
        shown, rest = ordered[:_MAX_TERMS_SHOWN], ordered[_MAX_TERMS_SHOWN:]
        rows = [(t.name, t.layer, t.matrix, t.log_value, _percent(t.share)) for t in shown]
        if rest:
            log_rest = float(log_sum([term.log_value for term in rest]))
            share = [t.share for t in rest if t.share is not None]
            rows.append((f"{len(rest)} more", None, None, log_rest, _percent(sum(share))))
        columns = ("term", "layer", "matrix", "log", "share")
        return Table("Terms, largest first", columns, tuple(rows))


@dataclass(frozen=True)
class Comparison(Displayable):
    """A bound next to a measured value of the same quantity."""

    bound: BoundValue
    measured: float

    @property
    def log_ratio(self) -> float:
        """log(bound / measured): how far the bound is above."""
        return self.bound.log_value - log_of(self.measured)

    @property
    def obeyed(self) -> bool | None:
        """measured ≤ bound; None for what is no upper bound and so bounds nothing by itself."""
        return self.measured <= self.bound.value if self.bound.kind == "upper_bound" else None

    def __card__(self) -> Card:
        fields = (
            (f"measured {self.bound.quantity}", self.measured),
            ("bound", self.bound.text),
            ("bound / measured", format_exp(self.log_ratio)),
            ("obeyed", self.obeyed),
            ("source", self.bound.citation),
        )
        return Card(f"{self.bound.quantity}, bounded and measured", fields)


def finite(number: float) -> float | None:
    """The number, or None: JSON has no infinity."""
    return number if math.isfinite(number) else None


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.3g} %"


class Sample(Checked):
    """The sample that a bound is evaluated at.

    Sizes are Python integers of any size, so that the answer of `samples_needed` fits whatever it
    is; formulas use ``log_samples`` and ``log_context``.

    Args:
        n_samples: m (paper S) or n (papers E and R), how many independent sequences.
        context_length: T (S) or L (E), how many tokens each of them has, without [CLS].
        input_norm: B_X, the length of the longest token.
        loss_lipschitz: the loss moves at most this much per unit of the prediction.
        loss_bound: b, the loss lies in an interval of this length; ``math.inf`` if it has none.
        delta: δ, the probability with which a bound may fail.

    >>> sample = Sample(n_samples=1000, context_length=50)
    >>> sample.loss_bound, round(sample.log_samples, 6)
    (1.0, 6.907755)
    >>> Sample(n_samples=10**5000, context_length=7)
    Sample(n_samples=10**5000, context_length=7, input_norm=1.0, loss_lipschitz=1.0, loss_bound=1.0, delta=0.05)
    >>> Sample(n_samples=0, context_length=50)
    Traceback (most recent call last):
        ...
    finetti.core.errors.InputError: The `n_samples` argument of Sample must be a whole number ≥ 1. Got 0 instead.
    """  # noqa: E501

    n_samples: int = checked(as_whole)
    context_length: int = checked(as_whole)
    input_norm: float = checked(as_norm, 1.0)
    loss_lipschitz: float = checked(as_norm, 1.0)
    loss_bound: float = checked(real("a number > 0 or inf", lambda x: x > 0), 1.0)
    delta: float = checked(real("a probability in (0, 1)", lambda x: 0 < x < 1), 0.05)

    def __repr__(self) -> str:
        # Python refuses to write integers of more than 4300 digits.
        shown = {
            each.name: value if (value := getattr(self, each.name)) < 1e18 else _rounded(value)
            for each in dataclass_fields(self)
        }
        return f"Sample({', '.join(f'{name}={value}' for name, value in shown.items())})"

    @property
    def log_samples(self) -> float:
        """log m."""
        return log_of(self.n_samples)

    @property
    def log_context(self) -> float:
        """log T."""
        return log_of(self.context_length)

    def check_gap(self, gap: float, owner: str, advice: str = "") -> float:
        """A gap that says something: positive, and below the range of the loss if it has one.

        >>> Sample(100, 10, loss_bound=4.0).check_gap(2, "samples_needed")
        2.0
        """
        number = as_positive(gap, "gap", owner)
        if number >= self.loss_bound:
            wanted = f"below {self.loss_bound:g}, the range of the loss, which no gap exceeds"
            raise bad_argument("gap", owner, wanted, f"{number:g}", advice)
        return number

    @property
    def bounded_loss(self) -> bool:
        """Whether the loss is bounded at all."""
        return math.isfinite(self.loss_bound)


def _rounded(value: float) -> str:
    return "inf" if value == math.inf else f"10**{log_of(value) / math.log(10):.6g}"

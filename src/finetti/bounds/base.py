"""What every bound is: a frozen description of a class of functions that can be evaluated."""

import abc
import math
from collections.abc import Iterator, Sequence
from dataclasses import field, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

from finetti.bounds.assumptions import NetworkShape, nearest_bound
from finetti.bounds.description import NAMES, READ, BoundSettings, Description
from finetti.bounds.inversion import samples_needed
from finetti.bounds.sample import Sample
from finetti.bounds.sensitivity import Sensitivities, sensitivity
from finetti.bounds.value import OF_THE_LOSS, BoundKind, BoundValue, Term
from finetti.core.errors import UnsupportedError
from finetti.core.forms import Form, check_form
from finetti.show.card import Card
from finetti.show.numbers import format_value
from finetti.show.shown import Shown


class Bound(Description, Shown, abc.ABC):
    """A theorem applied to a class of functions; every assumption is a field.

    A final subclass is a frozen dataclass, without a decorator, that sets the class attributes and
    gives `_evaluate`, which ends with ``return self.value(sample, log, terms)``.

    Args:
        form: "derived" (as the proof gives it) or "printed".
    """

    name: ClassVar[str]  # what the command line calls it, as S-thm-A.17; never changes
    title: ClassVar[str]  # a few words
    statement: ClassVar[str]  # the theorem in one line
    citation: ClassVar[str]  # theorem and paper, as Theorem A.17, edelman2022
    paper: ClassVar[str] = ""  # E, S, R, F, or "" where it is nobody's; the name says it
    quantity: ClassVar[str]  # what it bounds
    assumes: ClassVar[tuple[str, ...]] = ()  # what has to be true and is not a field
    needs_bounded_loss: ClassVar[bool] = False  # whether a loss without a bound is refused
    # A printed form that an erratum breaks is unproven; None: there is no printed form.
    derived_kind: ClassVar[BoundKind] = "upper_bound"
    printed_kind: ClassVar[BoundKind | None] = None

    form: Form = field(
        default="derived",
        kw_only=True,
        metadata={READ: lambda settings, *_: settings.form, NAMES: ()},
    )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        letter, dash, _ = getattr(cls, "name", "").partition("-")
        cls.paper = letter if dash and len(letter) == 1 else ""

    def __post_init__(self) -> None:
        check_form(self.form, type(self).__name__)
        if self.form == "printed" and self.printed_kind is None:
            raise UnsupportedError(f"{self.name} has no printed form. Take the derived one.")
        super().__post_init__()

    @classmethod
    def from_settings(cls, settings: BoundSettings, bound: Any = None) -> Self:
        """The bound of what ``settings`` describe, if the theorem covers such a network."""
        cls.check_network(NetworkShape.of(settings), settings.form)
        return super().from_settings(settings, bound)

    @classmethod
    def norm_names(cls) -> tuple[str, ...]:
        """The names that it reads of the norms of a `BoundSettings`, or judges a network by."""
        return tuple(sorted({*super().norm_names(), *NetworkShape.names(cls.assumes)}))

    @classmethod
    def check_network(cls, shape: NetworkShape, form: Form = "derived") -> None:
        """Refuse, by name, what the theorem does not have; name an upper bound that does."""
        failed = shape.failed(cls.assumes)
        if failed:
            raise cls.refuse("; ".join(failed), nearest_bound(cls, shape, form))

    @property
    def kind(self) -> BoundKind:
        """scaling: constants unknown; upper_bound: all of them kept; unproven: no bound."""
        kind = self.printed_kind if self.form == "printed" else self.derived_kind
        assert kind is not None  # __post_init__ refused it
        return kind

    def evaluate(self, sample: Sample) -> BoundValue:
        """The value at ``sample``, with its parts."""
        self.check(sample)
        return self._evaluate(sample)

    @abc.abstractmethod
    def _evaluate(self, sample: Sample) -> BoundValue:
        """The same, where the theorem applies."""

    def check(self, sample: Sample) -> None:
        """Refuse, by name, what the theorem does not cover; a loss without a bound, for one."""
        self.check_loss(sample)

    @classmethod
    def check_loss(cls, sample: Sample) -> None:
        """Refuse a loss without a bound; only the risks of paper R do without one."""
        if cls.needs_bounded_loss and not sample.bounded_loss:
            raise cls.refuse(
                "a bounded loss, and this one has no bound: clip it and give its range",
                "none with constants; R-thm-risk, for random heads, is a scaling quantity.",
            )

    def samples_needed(
        self, gap: float, sample: Sample, constant: float | None = None, **changes: float
    ) -> BoundValue:
        """The smallest n_samples at which the bound is at most ``gap``; the rest as in ``sample``.

        ``changes`` replace what the sample has, as ``delta=0.01``. A scaling quantity is inverted
        only with the ``constant`` to multiply it by.
        """
        return self._samples_needed(gap, replace(sample, **changes), constant)

    def _samples_needed(self, gap: float, sample: Sample, constant: float | None) -> BoundValue:
        return samples_needed(self, gap, sample, constant)

    def heads_needed(
        self, gap: float, sample: Sample, constant: float | None = None, **changes: float
    ) -> BoundValue:
        """The smallest number of heads at which the bound is at most ``gap``; those of paper R."""
        return self._heads_needed(gap, replace(sample, **changes), constant)

    def _heads_needed(self, gap: float, sample: Sample, constant: float | None) -> BoundValue:
        raise self._not_counted("heads", "a bound of paper R")

    def tokens_needed(self, error: float, sample: Sample) -> BoundValue:
        """The smallest context length at which the error is at most ``error``; E-prop-4.1's."""
        raise self._not_counted("tokens", "E-prop-4.1")

    def _not_counted(self, what: str, where: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name} cannot be solved for {what}. Take {where}, or solve for samples."
        )

    def sensitivity(self, sample: Sample) -> Sensitivities:
        """What 10 % more of each norm does to the value."""
        return sensitivity(self, sample)

    def value(
        self,
        sample: Sample,
        log_value: float,
        terms: Sequence[Term] = (),
        *,
        sign: int = 1,
        notes: Sequence[str] = (),
    ) -> BoundValue:
        """A `BoundValue` with everything that the class already knows."""
        vacuous = None
        if self.kind == "upper_bound" and self.quantity in OF_THE_LOSS and sample.bounded_loss:
            vacuous = log_value >= math.log(sample.loss_bound)
        return self._give(log_value, terms, notes, sign=sign, vacuous=vacuous)

    def counted(
        self, count: int, quantity: str, *notes: str, terms: Sequence[Term] = ()
    ) -> BoundValue:
        """A number of samples, heads or tokens that is enough."""
        return self._give(math.log(count), terms, notes, quantity=quantity, count=count)

    def _give(
        self, log_value: float, terms: Sequence[Term], notes: Sequence[str], **others: Any
    ) -> BoundValue:
        parts = {"log_value": float(log_value), "terms": tuple(terms), "notes": tuple(notes)}
        known = {"citation": self.citation, "form": self.form, "kind": self.kind}
        known |= {"quantity": self.quantity, "assumptions": self.assumes}
        return BoundValue(**{**parts, **known, **others})

    @classmethod
    def refuse(cls, assumption: str, nearest: str) -> UnsupportedError:
        """The error for a class that the theorem does not cover: what fails, what applies."""
        return UnsupportedError(f"{cls.name} assumes {assumption}. Nearest bound: {nearest}")

    def __card__(self) -> Card:
        rows = [
            ("statement", self.statement),
            ("source", self.citation),
            ("quantity", self.quantity),
            ("form", self.form),
            ("kind", self.kind),
        ]
        rows += [("assumes", each) for each in self.assumes]
        rows += [(name, value) for name, value in _described(self) if name != "form"]
        return Card(f"{self.name}: {self.title}", tuple(rows))


def _described(described: Any) -> Iterator[tuple[str, str]]:
    """The fields of a description as text; those of a description inside it with a dot."""
    for each in fields(described):
        value = getattr(described, each.name)
        if is_dataclass(value):
            yield from ((f"{each.name}.{name}", text) for name, text in _described(value))
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            first = ", ".join(f"{name} {text}" for name, text in _described(value[0]))
            alike = all(part == value[0] for part in value)
            rest = "all alike" if alike else "the first"
            yield each.name, f"{len(value)}, {rest}: {first}"
        else:
            yield each.name, format_value(value)

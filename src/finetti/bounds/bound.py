"""What every bound is: a theorem with its assumptions, for a described class of functions."""

import abc
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self, get_args

from finetti.bounds.count_solver import COUNTS, solve
from finetti.bounds.description import NAMES, READ, BoundSettings, Description
from finetti.bounds.value import OF_THE_LOSS, BoundKind, BoundValue, Sample, Term
from finetti.core.arguments import Form, as_norm, as_whole, check_form
from finetti.core.checked_fields import Checked, checked, one_of
from finetti.core.errors import UnsupportedError
from finetti.display.card import Card
from finetti.display.catalog import import_modules
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_value

PositionKind = Literal["none", "fixed", "trained"]
NormalizationKind = Literal["ball", "layer_norm", "none"]

ONE_LAYER = "one layer (a usual Transformer has many)"
ONE_HEAD = "one head per layer (a usual Transformer has several)"
NO_RESIDUALS = "no residual connections (a usual Transformer has them)"
NO_LAYER_NORM = "no LayerNorm (a usual Transformer has it)"
UNIT_BALL = (
    "tokens are projected onto the unit ball between and inside the layers (a usual Transformer "
    "has LayerNorm instead)"
)
FIXED_POSITIONS = "positions are fixed vectors, not trained (a usual Transformer may train them)"
IN_THE_TOKENS = "positions are part of the tokens, and of the length of the longest"
RBF_SCORES = "attention is softmax over −‖q − k‖²/(2σ²) (a usual Transformer has q·k/√d_k)"
REAL_BLOCKS = "every block has residual connections and LayerNorm, or its kin without a mean"
ASSUMED_OF_A_SAMPLE = (
    "the n sequences are independent of each other",
    "the loss is Lipschitz in the prediction, and bounded",
)

# By which of the settings an assumption is judged.
_SETTINGS = {
    FIXED_POSITIONS: ("positions",),
    IN_THE_TOKENS: ("position_norm",),
    UNIT_BALL: ("normalization",),
    NO_LAYER_NORM: ("normalization",),
    NO_RESIDUALS: ("skips",),
    REAL_BLOCKS: ("normalization", "skips"),
}
# The bounds to offer, the nearest first. What the last assumes can be given as numbers.
NEAREST = (
    *("S-lemma-A.12", "S-lemma-A.12-gap", "S-thm-A.17", "S-thm-A.17-gap"),
    *("E-lemma-C.8", "E-thm-C.5", "E-thm-C.4-constants"),
    *("F-chain-blocks", "F-chain-blocks-gap", "parameter-count", "parameter-count-gap"),
)


class NetworkShape(Checked):
    """Architecture features that theorems may exclude; None is unspecified and violates nothing."""

    n_layers: int = checked(as_whole, 1)
    n_heads: int = checked(as_whole, 1)
    positions: PositionKind | None = checked(one_of(*get_args(PositionKind)), None)
    normalization: NormalizationKind | None = checked(one_of(*get_args(NormalizationKind)), None)
    skips: bool | None = None
    position_norm: float | None = checked(as_norm, None)

    @classmethod
    def of(cls, settings: BoundSettings) -> "NetworkShape":
        """That of ``settings``."""
        names = {name for several in _SETTINGS.values() for name in several}
        said = {name: settings.value(name, None) for name in names}
        return cls(settings.n_layers, settings.n_heads, **said)

    @staticmethod
    def names(assumes: Sequence[str]) -> set[str]:
        """The settings by which some assumptions are judged."""
        return {name for each in assumes for name in _SETTINGS.get(each, ())}

    def failed(self, assumes: Sequence[str], layer_norm: str = "LayerNorm") -> list[str]:
        """Those of the assumptions that this network violates, in words.

        ``layer_norm`` is what the normalization of the network is called.
        """
        here = {"layer_norm": layer_norm, "ball": "the unit ball", "none": "none"}
        norm = f"this network has {here.get(self.normalization or '', '')}"
        lipschitz = ", which is only max|gain|/√ε-Lipschitz" * (self.normalization == "layer_norm")
        real = ["LayerNorm, or its kin"] * (self.normalization in ("ball", "none"))
        real += ["residual connections"] * (self.skips is False)
        failures = {
            ONE_LAYER: self.n_layers > 1 and f"a single layer, and here are {self.n_layers}",
            ONE_HEAD: self.n_heads > 1 and f"a single head per layer, and here are {self.n_heads}",
            FIXED_POSITIONS: self.positions == "trained"
            and "positions that are not trained, and this network trains them: a trained "
            "positional table has T·d parameters, a factor linear in T (A.4, edelman2022)",
            UNIT_BALL: self.normalization in ("layer_norm", "none")
            and f"a projection of the tokens onto the unit ball, and {norm}{lipschitz}",
            NO_LAYER_NORM: self.normalization in ("layer_norm", "ball")
            and f"layers without normalization, and {norm}",
            IN_THE_TOKENS: self.position_norm
            and "positions that are part of the tokens and of `input_norm`, and `position_norm` "
            f"is {self.position_norm:g}",
            NO_RESIDUALS: self.skips and "no residual connections, and this network has them",
            REAL_BLOCKS: real and f"{' and '.join(real)}, and this network has none",
        }
        return [words for each in assumes if (words := failures.get(each))]


NAMED: "list[type[Bound]]" = []  # all bounds of the modules that are imported


class Bound(Description, Displayable, abc.ABC):
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
    # The counts with which it falls (samples if it bounds a loss), and advice where none is enough.
    solves: ClassVar[Mapping[str, str]] = {}
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
        if "name" in vars(cls):
            NAMED.append(cls)
        if getattr(cls, "quantity", "") in OF_THE_LOSS and not cls.solves:
            cls.solves = {"samples": "Ask for a larger `gap`, or lower norms."}

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
        """Compute the value; `evaluate` has already checked that the theorem covers the sample."""

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
        return solve(self, "samples", gap, replace(sample, **changes), constant)

    def heads_needed(
        self, gap: float, sample: Sample, constant: float | None = None, **changes: float
    ) -> BoundValue:
        """The smallest number of heads at which the bound is at most ``gap``; those of paper R."""
        return solve(self, "heads", gap, replace(sample, **changes), constant)

    def tokens_needed(
        self, gap: float, sample: Sample, constant: float | None = None, **changes: float
    ) -> BoundValue:
        """The smallest context length at which the error is at most ``gap``; E-prop-4.1's."""
        return solve(self, "tokens", gap, replace(sample, **changes), constant)

    def with_count(self, count: str, n: int, sample: Sample) -> "tuple[Bound, Sample]":
        """The bound and the sample with n samples or tokens, in which `solve` searches."""
        return self, replace(sample, **{COUNTS[count][0]: n})

    def count_limits(self, count: str, sample: Sample) -> tuple[int, int | None]:
        """The smallest count that the theorem covers, and the largest that helps, if there is."""
        return 1, None

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


@cache
def named_bounds(package: str = "finetti.bounds") -> tuple[type[Bound], ...]:
    """The bounds with a name in all modules of ``package``."""
    modules = {each.__name__ for each in import_modules(package)}
    return tuple(each for each in NAMED if each.__module__ in modules)


def nearest_bound(bound: Any, shape: NetworkShape, form: Form) -> str:
    """The bound to take in place of a ``bound`` (or its class) that does not cover ``shape``."""
    known, kinds = {each.name: each for each in named_bounds()}, [bound.quantity]
    if bound.quantity in OF_THE_LOSS:
        kinds.append("generalization gap")
    for kind in kinds:
        found = [known[name] for name in NEAREST if known[name].quantity == kind]
        # Those of the same paper first: they speak of the same network.
        found.sort(key=lambda each: not bound.paper or each.paper != bound.paper)
        for each in found:
            if not shape.failed(each.assumes):
                derived = ", derived" * (form == "printed" and each.printed_kind is None)
                return each.name + derived + _numbers(shape) * (not each.paper) + "."
    return f"none; no bound of a {bound.quantity} covers such a network."


def _numbers(shape: NetworkShape) -> str:
    """What the count of parameters has to be told of a network that the papers do not have."""
    table = ", which counts the table (give its `position_norm`)"
    own = ", with `lipschitz` and `output_range` of your own"
    return table * (shape.positions == "trained") + own * bool(
        shape.failed((UNIT_BALL, NO_RESIDUALS))
    )

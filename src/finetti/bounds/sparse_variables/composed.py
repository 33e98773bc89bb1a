"""Classes that are composed of matrices: what they share, their covering number, and the gap."""

import abc
import math
from typing import Any, Literal

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds import description as fields
from finetti.bounds.bound import Bound, NetworkShape, PositionKind
from finetti.bounds.covering.composition import Composition
from finetti.bounds.covering.dudley import (
    TOO_RICH,
    Dudley,
    dudley_at_best,
    dudley_quadrature,
    gap_terms,
    printed_gap,
    signed_dudley_printed,
)
from finetti.bounds.description import BoundSettings, checked, one_of
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, log_of
from finetti.core.errors import bad_argument
from finetti.core.forms import Form
from finetti.core.numbers import as_norm


def _read_positions(settings: BoundSettings, name: str, bound: Any) -> str:
    return settings.value(name, "fixed" if settings.norm("position_norm", 0.0) else "none")


class SizedClass(fields.Description, abc.ABC, kw_only=True):
    """Functions with sizes, positions and a constant of softmax, covered matrix by matrix.

    Args:
        width: d, the dimension of a token; in cross-attention that of the query.
        head_dimension: k, the number of columns of W_V; the width by default.
        positions: "none", "fixed" vectors added to the tokens, or "trained" ones (refused).
        position_norm: B_P, the length of the longest of them: B_X becomes B_X + B_P (A.4).
        norm_lipschitz: C of Corollary A.7; by default 1, which is sharp (printed: 2).
    """

    width: int = fields.size("width")
    head_dimension: int | None = fields.size("head_width", None)
    positions: PositionKind = fields.choice("none", "fixed", "trained", read=_read_positions)
    position_norm: float = fields.norm(0.0)
    norm_lipschitz: float | None = fields.number(None, as_norm)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "head_dimension", self.columns)
        if self.positions == "none" and self.position_norm:
            raise bad_argument(
                "positions", type(self).__name__, "'fixed' where there is a `position_norm`", "none"
            )

    @abc.abstractmethod
    def composition(self, sample: Sample, form: Form) -> Composition:
        """All trained matrices with what their errors cost."""

    @abc.abstractmethod
    def log_range(self, sample: Sample) -> float:
        """log A: no function of the class is larger than A on the sample."""

    @property
    @abc.abstractmethod
    def scalar(self) -> bool:
        """Whether the functions give one number per sequence, as a loss needs it."""

    @property
    def columns(self) -> int:
        """k, the number of columns of W_V."""
        return self.width if self.head_dimension is None else self.head_dimension

    @property
    def constant(self) -> float:
        """C with ‖softmax(θ) − softmax(θ')‖₁ ≤ C‖θ − θ'‖_∞."""
        return softmax_constant() if self.norm_lipschitz is None else self.norm_lipschitz

    def token_norm(self, sample: Sample) -> float:
        """B_X + B_P."""
        return sample.input_norm + self.position_norm

    @property
    def shape(self) -> NetworkShape:
        """What a bound may not cover; trained positions, for one."""
        return NetworkShape(positions=self.positions, position_norm=self.position_norm)

    def notes(self) -> tuple[str, ...]:
        """That positions make the tokens longer."""
        return ("Positions make the tokens longer: B_X + B_P (A.4).",) if self.position_norm else ()


def log_log_points(sample: Sample) -> float:
    """log log(mT), the logarithm that the papers print."""
    return log_of(sample.log_samples + sample.log_context)


class ComposedCovering(Bound):
    """log N_∞ of a `SizedClass` at one ``resolution`` ε; printed: γ³/ε² · log(mT)."""

    quantity = "log covering number"
    printed_kind = "scaling"

    functions: SizedClass
    resolution: float = fields.resolution()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_network(self.functions.shape, self.form)

    def _evaluate(self, sample: Sample) -> BoundValue:
        composition = self.functions.composition(sample, self.form)
        log_resolution = math.log(self.resolution)
        if self.form == "printed":
            found = composition.scaling_terms(log_resolution, log_log_points(sample))
        else:
            found = composition.terms(log_resolution)
        return self.value(sample, *found, notes=self.functions.notes())


class ComposedGap(Bound):
    """The generalization gap of a `SizedClass`: Dudley's integral of its cover, then A.4.

    Args:
        functions: the class, with one number per sequence as output.
        route: Dudley's integral by "quadrature", or its "closed" form, which is larger.
        two_sided: bound |gap|; False: only how much the test error exceeds the training error.
        post_hoc: what log(3/δ) grows by where the class was chosen after training: `ours.Strata`.
    """

    quantity = "generalization gap"
    needs_bounded_loss = True
    printed_kind = "scaling"

    functions: SizedClass
    route: Literal["quadrature", "closed"] = checked(one_of("quadrature", "closed"), "quadrature")
    two_sided: bool = True
    post_hoc: float = checked(as_norm, 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_network(self.functions.shape, self.form)
        if self.post_hoc and self.form == "printed":
            raise bad_argument("post_hoc", type(self).__name__, "0 as printed", self.post_hoc)
        if not self.functions.scalar:
            wanted = "a number: a loss needs one output per sequence"
            raise bad_argument("readout_norm", type(self).__name__, wanted, None)

    def complexity(self, sample: Sample, composition: Composition | None = None) -> Dudley:
        """The Rademacher complexity, derived."""
        cover = composition or self.functions.composition(sample, "derived")
        method = dudley_quadrature if self.route == "quadrature" else dudley_at_best
        return method(
            lambda log_resolution: cover.log_log_cover(log_resolution, smooth=True),
            self.functions.log_range(sample),
            sample.log_samples,
        )

    def _evaluate(self, sample: Sample) -> BoundValue:
        if self.form == "printed":
            return self._printed(sample)
        composition = self.functions.composition(sample, "derived")
        found = self.complexity(sample, composition)
        # A class of one function has no complexity to be shared.
        shared = found.log_resolution > -math.inf
        parts = composition.terms(found.log_resolution)[1] if shared else ()
        notes = [*self.functions.notes(), *([TOO_RICH] if found.trivial else [])]
        total, terms = gap_terms(found.log_value, sample, parts, self.two_sided, self.post_hoc)
        return self.value(sample, total, terms, notes=notes)

    def _printed(self, sample: Sample) -> BoundValue:
        composition = self.functions.composition(sample, "printed")
        log_constant = composition.log_scaling(0.0, log_log_points(sample))
        log_range = self.functions.log_range(sample)
        return printed_gap(
            self, sample, *signed_dudley_printed(log_constant, log_range, sample.log_samples)
        )

"""The covering number and the gap of every class of networks that says what its matrices cost."""

import abc
import math
from functools import lru_cache
from typing import Any, Literal, Protocol

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound, NetworkShape
from finetti.bounds.covering.dudley import (
    TOO_RICH,
    Dudley,
    gap_terms,
    printed_gap,
)
from finetti.bounds.covering.radius_grid import RadiusGrid, RoundedClass
from finetti.bounds.value import BoundValue, Sample, Term, log_of
from finetti.core.arguments import Form
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import smallest_of

RadiiKind = Literal["fixed", "stratified"]
ASSUMED_OF_RADII = (
    "norms bound the class: fixed before training (`radii` 'fixed'), or trained ones, each moved "
    "to the next point of a grid, which costs a term ('stratified')",
)
_NOT_TRAINED = ("activation_lipschitz", "position_norm")  # norms that no training moves


class NetworkCover(Protocol):
    """The cover of a network: from one composition of the covers of its matrices, or another."""

    @property
    def log_spread(self) -> float:
        """log of the largest distance of a function to a fixed one; ∞: not known."""
        ...

    def terms(self, log_resolution: float) -> tuple[float, tuple[Term, ...]]:
        """log log N_∞(ε), and what each matrix adds to log N_∞(ε)."""
        ...

    def dudley(self, log_range: float, log_samples: float) -> Dudley:
        """Dudley's integral of √log N_∞."""
        ...


class NetworkClass(fields.Description, abc.ABC, kw_only=True):
    """Functions of given norms that are covered matrix by matrix."""

    @abc.abstractmethod
    def composition(self, sample: Sample, form: Form) -> Any:
        """All trained matrices with what their errors cost: a `NetworkCover`."""

    @abc.abstractmethod
    def log_range(self, sample: Sample) -> float:
        """log A: no function of the class is larger than A on the sample."""

    @property
    def scalar(self) -> bool:
        """Whether the functions give one number per sequence, as a loss needs it."""
        return True

    @property
    def shape(self) -> NetworkShape:
        """What a bound may not cover; trained positions, for one."""
        return NetworkShape()

    def notes(self) -> tuple[str, ...]:
        """What a reader of a value should know of this class."""
        return ()


def log_log_points(sample: Sample) -> float:
    """log log(mT), the logarithm that the papers print."""
    return log_of(sample.log_samples + sample.log_context)


class NetworkBound(Bound):
    """A bound for a `NetworkClass`, by the cover that its composition gives."""

    functions: NetworkClass

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_network(self.functions.shape, self.form)

    def composed(self, functions: Any, sample: Sample) -> NetworkCover:
        """All trained matrices of the class with what their errors cost."""
        return functions.composition(sample, self.form)


class NetworkCovering(NetworkBound):
    """log N_∞ of a class of networks at one ``resolution`` ε; printed: γ³/ε² · log(mT)."""

    quantity = "log covering number"

    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        cover: Any = self.composed(self.functions, sample)
        log_resolution = math.log(self.resolution)
        if self.form == "printed":
            found = cover.scaling_terms(log_resolution, log_log_points(sample))
        else:
            found = cover.terms(log_resolution)
        return self.value(sample, *found, notes=self.functions.notes())


class NetworkGap(NetworkBound):
    """The generalization gap of a class of networks: Dudley's integral of its cover, then A.4.

    The integral is that of the losses, whose cover at L·ε is that of the functions at ε.

    Args:
        functions: the class, with one number per sequence as output.
        radii: whether its norms were "fixed" before training; trained ones are rounded up to a
            grid and pay for it ("stratified").
    """

    quantity = "generalization gap"
    needs_bounded_loss = True

    radii: RadiiKind = fields.choice("fixed", "stratified")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radii != "fixed" and self.form == "printed":
            raise bad_argument("radii", type(self).__name__, "'fixed' as printed", self.radii)
        if not self.functions.scalar:
            wanted = "a number: a loss needs one output per sequence"
            raise bad_argument("readout_norm", type(self).__name__, wanted, None)

    @property
    def rounding(self) -> RoundedClass[Any]:
        """The class that is bounded, and the price of its radii."""
        rounded = self.radii == "stratified"
        return _rounding(self.functions) if rounded else RoundedClass(self.functions, ())

    def log_range(self, functions: Any, sample: Sample) -> float:
        """log of the largest output."""
        return functions.log_range(sample)

    def complexity(self, sample: Sample) -> Dudley:
        """The Rademacher complexity, derived."""
        return self._integral(sample)[0]

    def _integral(self, sample: Sample) -> tuple[Dudley, NetworkCover]:
        """The complexity, and the cover of which it is the integral."""
        functions = self.rounding.rounded
        cover = self.composed(functions, sample)
        # A fixed function may be subtracted from all, the one with every Δ = 0, for example. Losses
        # lie in an interval of length b, so that one is enough where ε·L exceeds half of it.
        loss = math.log(sample.loss_bound / 2) - log_of(sample.loss_lipschitz)
        log_range = smallest_of(self.log_range(functions, sample), cover.log_spread, loss)
        return cover.dudley(log_range, sample.log_samples), cover

    def _evaluate(self, sample: Sample) -> BoundValue:
        if self.form == "printed":
            return self._printed(sample)
        found, cover = self._integral(sample)
        # A class of one function has no complexity to be shared.
        shared = found.log_resolution > -math.inf
        parts = cover.terms(found.log_resolution)[1] if shared else ()
        rounding = self.rounding
        post_hoc = rounding.post_hoc
        total, terms = gap_terms(found.log_value, sample, parts, post_hoc=post_hoc)
        notes = [*self.functions.notes(), *([TOO_RICH] if found.trivial else [])]
        if rounding.radii:
            count = len(rounding.radii)
            notes.append(f"{count} radii chosen after training add {post_hoc:.4g} to log(3/δ).")
        return self.value(sample, total, terms, notes=notes)

    def _printed(self, sample: Sample) -> BoundValue:
        cover: Any = self.composed(self.functions, sample)
        log_constant = cover.log_scaling(0.0, log_log_points(sample))
        logs = log_constant, self.log_range(self.functions, sample), sample.log_samples
        return printed_gap(self, sample, *logs)


@lru_cache(maxsize=32)
def _rounding(functions: Any) -> RoundedClass[Any]:
    """Every n of an inversion asks for the same one."""
    return RadiusGrid().round_norms(functions, _NOT_TRAINED)

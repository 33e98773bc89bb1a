"""Bounds of classes that are composed of matrices: the covering number, and the gap from it."""

import math
from typing import Literal

from finetti.bounds import fields
from finetti.bounds.base import Bound
from finetti.bounds.checks import checked, one_of
from finetti.bounds.covering.composition import Composition
from finetti.bounds.covering.dudley import (
    Dudley,
    dudley_at_best,
    dudley_quadrature,
    signed_dudley_printed,
)
from finetti.bounds.covering.generalization import TOO_RICH, gap_terms, printed_gap
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.sizes import SizedClass
from finetti.bounds.value import BoundValue, log_of
from finetti.core.errors import bad_argument


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
    """

    quantity = "generalization gap"
    needs_bounded_loss = True
    printed_kind = "scaling"

    functions: SizedClass
    route: Literal["quadrature", "closed"] = checked(one_of("quadrature", "closed"), "quadrature")
    two_sided: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_network(self.functions.shape, self.form)
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
        total, terms = gap_terms(found.log_value, sample, parts, self.two_sided)
        return self.value(sample, total, terms, notes=notes)

    def _printed(self, sample: Sample) -> BoundValue:
        composition = self.functions.composition(sample, "printed")
        log_constant = composition.log_scaling(0.0, log_log_points(sample))
        log_range = self.functions.log_range(sample)
        return printed_gap(
            self, sample, *signed_dudley_printed(log_constant, log_range, sample.log_samples)
        )

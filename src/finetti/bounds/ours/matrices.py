"""Three covers of matrices as bounds: by counting, by Maurey's lemma, by Schatten norms."""

import math
from typing import Any, ClassVar

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.ours import covers
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term, log_of
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_real, as_whole

IN_SPECTRAL_NORM = "distances between matrices are spectral norms"
INSIDE = "the cover consists of matrices of the class"
OUTSIDE = "the cover may leave the class; at half the resolution it gives one inside"


def _side() -> Any:
    """As many rows (or columns) as the tokens have entries, unless the norms say otherwise."""
    return fields.setting(
        check=as_whole, read=lambda settings, name, _: settings.value(name, settings.width)
    )


def _power() -> Any:
    def check(value: Any, name: str, owner: str) -> float:
        power = as_real(value, name, owner, "a Schatten power")
        if power not in covers.POWERS:
            raise bad_argument(name, owner, "2, 1, 0.5 or 0.25", value)
        return power

    return fields.setting(1.0, check)


class MatrixCovering(Bound):
    """What the three share: d₁ × d₂ matrices and a resolution; whatever the sample is.

    Args:
        rows, columns: d₁ and d₂.
        resolution: x, in spectral norm.
    """

    quantity = "log covering number"
    inside: ClassVar[bool]

    rows: int = _side()
    columns: int = _side()

    def covered(self, sample: Sample, log_number: float, name: str, *notes: str) -> BoundValue:
        """log N, which is all due to one matrix."""
        log_value = log_of(log_number)
        term = Term(name, None, "W", log_value, 1.0)
        return self.value(sample, log_value, (term,), notes=notes)


class CountCovering(MatrixCovering):
    """log N ≤ D·log(1 + 2B/x) for ‖W‖ ≤ B, D = d₁d₂, inside: `covers.count_cover`

    >>> value = CountCovering(8, 8, weight_norm=1.0, resolution=0.1).evaluate(Sample(1, 1))
    >>> round(value.value, 9)
    194.849436014
    """

    name = "F-cover-count"
    title = "a cover of matrices, by their parameters"
    statement = "log N ≤ P·log(1 + 2B_W/ε) for matrices of spectral norm B_W, whatever T is"
    citation = "Covers without T (count), finetti"
    assumes = (IN_SPECTRAL_NORM, INSIDE)
    inside = True

    weight_norm: float = fields.norm(1.0)
    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        logs = log_of(self.weight_norm), math.log(self.resolution)
        found = covers.count_cover(self.rows * self.columns, *logs)
        return self.covered(sample, float(found), "count")


class MaureyCovering(MatrixCovering):
    """log N ≤ log C(2D + k, k), k = ⌈B₁²/x²⌉, for Σ|w_ij| ≤ B₁, outside: `covers.maurey_cover`

    >>> value = MaureyCovering(8, 8, entry_norm=2.0, resolution=0.5).evaluate(Sample(1, 1))
    >>> round(value.value, 9), value.notes
    (47.980200431, ('An average of 16 atoms is near enough.',))
    """

    name = "F-cover-maurey"
    title = "a cover of matrices, by the sum of their entries"
    statement = "log N for entries whose sum is B_1: ⌈(B_1/ε)²⌉ of 2P + 1 atoms, whatever T is"
    citation = "Covers without T (Maurey), finetti"
    assumes = (IN_SPECTRAL_NORM, OUTSIDE)
    inside = False

    entry_norm: float = fields.norm(1.0)
    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        logs = log_of(self.entry_norm), math.log(self.resolution)
        found = float(covers.maurey_cover(self.rows * self.columns, *logs))
        note = f"An average of {float(covers.maurey_atoms(*logs)):.15g} atoms is near enough."
        return self.covered(sample, found, "Maurey", note)


class SchattenCovering(MatrixCovering):
    """log N ≤ r(d₁ + d₂)·log(1 + 8B/x), r = ⌈(2B_p/x)^p⌉ − 1, outside: `covers.schatten_cover`

    Args:
        weight_norm: B ≥ ‖W‖.
        schatten_norm: B_p ≥ (Σ σ_i^p)^{1/p}.
        power: p: 2, 1, 0.5 or 0.25.

    >>> bound = SchattenCovering(8, 8, weight_norm=0.5, schatten_norm=1.0, resolution=0.25)
    >>> round(bound.evaluate(Sample(1, 1)).value, 9)
    317.319894534
    """

    name = "F-cover-schatten"
    title = "a cover of matrices, by their singular values"
    statement = "log N for a Schatten norm B_S: few ranks at log(1 + 8B_W/ε) each, whatever T is"
    citation = "Covers without T (Schatten), finetti"
    assumes = (IN_SPECTRAL_NORM, f"{OUTSIDE}; it never leaves the spectral ball")
    inside = False

    weight_norm: float = fields.norm(1.0)
    schatten_norm: float = fields.norm(1.0, like="weight_norm")
    power: float = _power()
    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_x, log_schatten = math.log(self.resolution), log_of(self.schatten_norm)
        sizes = self.rows, self.columns, log_of(self.weight_norm)
        found = float(covers.schatten_cover(*sizes, log_schatten, log_x, self.power))
        rank = float(covers.schatten_rank(log_schatten, log_x, self.power))
        note = f"Singular values after the first {rank:.15g} are too small to matter."
        if rank >= min(self.rows, self.columns):
            note = "All singular values matter: parameters are counted."
        return self.covered(sample, found, "Schatten", note)

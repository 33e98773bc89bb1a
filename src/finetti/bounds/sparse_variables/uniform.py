"""Theorem 4.6: a deep Transformer with one bound for all its spectral and column norms."""

import math
from typing import Any, Self

from finetti.bounds.base import Bound
from finetti.bounds.covering.composed import log_log_points
from finetti.bounds.covering.composition import Composition, Matrix
from finetti.bounds.fields import norm_field, number_field, resolution_field, size_field
from finetti.bounds.sample import Sample
from finetti.bounds.settings import BoundSettings
from finetti.bounds.sparse_variables.networks import ASSUMED_OF_THE_LAYERS
from finetti.bounds.sparse_variables.sizes import check_sizes
from finetti.bounds.sparse_variables.transformer_class import log_layer_constant
from finetti.bounds.value import BoundValue, Term, log_of
from finetti.core.numbers import as_norm


class UniformTransformer(Bound):
    """(C₂L_σ)^{O(L)} · B_X²B_w²d²C_∞²/ε² · log(mT), for B_X ≤ 1          Theorem 4.6, edelman2022

    Derived: Theorem A.17 with each of its 3L + 1 costs replaced by the largest possible,
    B_wB_X·d·C_∞·P^L with P = L_σC₂²(1 + 2C₂) and C₂, L_σ ≥ 1: an upper bound with all constants.
    The readout's own cost, B_w r_{L+1} ≤ B_wB_X·L_σ‖W_C‖‖W_V‖·P^{L−1}, has C_∞ by ‖W_C‖ ≤ √d·C_∞:
    a matrix with at most d columns of length C_∞ has at most that spectral norm.
    Norms of 1 give 3 per layer; that networks grow less then needs another proof
    (S-thm-4.6-depth), which is not in this bound. Printed: any B_X, and an exponent that the
    paper leaves open, here ``depth_exponent``·L.

    Args:
        n_layers: L.
        width: d, at least the head dimension.
        spectral_norm: C₂, for W_C, W_V and W_QK of all layers.
        column_norm: C_∞, for the columns of W_C and W_V and the rows of W_QK.
        activation_lipschitz: L_σ.
        readout_norm: B_w.
        resolution: ε.
        depth_exponent: of the printed form; P² ≤ 9(C₂L_σ)⁶ suggests 6.

    >>> bound = UniformTransformer(n_layers=2, width=8, form="printed")
    >>> value = bound.evaluate(Sample(n_samples=100, context_length=100))
    >>> round(value.value, 6) == round(8**2 / 0.1**2 * math.log(1e4), 6)
    True
    """

    name = "S-thm-4.6"
    title = "the capacity of a deep Transformer, by two norms"
    statement = "log N_∞ of L layers ≤ (C₂L_σ)^O(L) B_X²B_w²d²C_∞²/ε² · log(nT)"
    citation = "Theorem 4.6, edelman2022"
    quantity = "log covering number"
    assumes = (
        *ASSUMED_OF_THE_LAYERS,
        "tokens of length at most 1, and heads no wider than they",
    )
    printed_kind = "scaling"

    n_layers: int = size_field("n_layers")
    width: int = size_field("width")
    spectral_norm: float = norm_field(1.0)
    column_norm: float = norm_field(1.0, like="spectral_norm")
    activation_lipschitz: float = norm_field(1.0)
    readout_norm: float = norm_field(1.0)
    resolution: float = resolution_field()
    depth_exponent: float = number_field(6.0, as_norm)

    def _evaluate(self, sample: Sample) -> BoundValue:
        common = [
            Term("input norm", log_value=log_of(sample.input_norm)),
            Term("readout norm", log_value=log_of(self.readout_norm)),
            Term("width", log_value=math.log(self.width)),
            Term("column norm", log_value=log_of(self.column_norm)),
        ]
        if self.form == "printed":
            depth = self.depth_exponent * self.n_layers
            grown = depth * (log_of(self.spectral_norm) + log_of(self.activation_lipschitz))
            squares = 2 * (sum(term.log_value for term in common) - math.log(self.resolution))
            total = grown + squares + log_log_points(sample)
            return self.value(sample, total, (Term("depth", log_value=grown / 2), *common))
        if sample.input_norm > 1:
            raise self.refuse(
                f"tokens of length at most 1, and here it is {sample.input_norm:g}: B_X² is "
                "wrong there (erratum 10)",
                "S-thm-A.17.",
            )
        steep, size = max(1.0, self.activation_lipschitz), max(1.0, self.spectral_norm)
        grown = self.n_layers * log_layer_constant(steep, size, size, size)
        cost = grown + sum(term.log_value for term in common)
        points = sample.log_samples + log_of(sample.context_length + 1)
        parts = (Matrix("any", None, cost, 1, points),) * (3 * self.n_layers + 1)
        total = Composition(parts).log_log_cover(math.log(self.resolution))
        return self.value(sample, total, (Term("depth", log_value=grown), *common))

    @classmethod
    def from_settings(cls, settings: BoundSettings, bound: Any = None) -> Self:
        """Any number of layers of one head."""
        check_sizes(cls, settings)
        return super().from_settings(settings, bound)

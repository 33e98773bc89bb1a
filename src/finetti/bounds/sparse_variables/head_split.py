"""Theorem 4.2: the error of a head, shared between its scores and its values at its best."""

import math
from typing import Any

import numpy as np
import scipy

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds import description as fields
from finetti.bounds.covering.linear_covering import log_log_linear_cover
from finetti.bounds.covering.network_bounds import NetworkBound, log_log_points
from finetti.bounds.sparse_variables.head_class import HeadClass
from finetti.bounds.sparse_variables.transformer_theorems import ASSUMED_OF_A_HEAD
from finetti.bounds.value import BoundValue, Sample, Term, summed
from finetti.core.errors import bad_argument
from finetti.core.numerics.logspace import log_sum


class HeadSplit(NetworkBound):
    """min over α of log N(F_Score; αε/(C L_out B_in B_X)) + log N(F_in; (1−α)ε/L_out)

    Theorem 4.2, edelman2022, with both covers by Lemma 4.5. Corollary 4.4 takes α = c_QK^{2/3}/γ,
    the best for the leading part (Lemma A.8); around it the minimum is searched numerically, and
    Corollary 4.4 is never smaller. Any α gives a bound: the ceilings of Lemma 4.5 make steps, which
    are not searched one by one. Printed: with C = 2, a scaling quantity. Without a readout.

    >>> from finetti.bounds.sparse_variables import HeadCovering
    >>> head = HeadClass(width=8, value_norm=.9, value_column_norm=.7, score_row_norm=.8)
    >>> sample = Sample(n_samples=1000, context_length=50)
    >>> split, closed = (each(head, 0.3).evaluate(sample) for each in (HeadSplit, HeadCovering))
    >>> 0.999 < split.value / closed.value <= 1
    True
    """

    name = "S-thm-4.2"
    title = "the capacity of a head from those of its scores and values"
    statement = "log N_∞ of a head ≤ those of its scores and its values, which share ε at best"
    citation = "Theorem 4.2, edelman2022"
    quantity = "log covering number"
    assumes = ASSUMED_OF_A_HEAD
    printed_kind = "scaling"

    functions: HeadClass = fields.part(HeadClass)
    resolution: float = fields.resolution()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.functions.scalar:
            got, advice = self.functions.readout_norm, "S-cor-4.4 has the readout."
            raise bad_argument("readout_norm", "HeadSplit", "left out", got, advice)

    def _evaluate(self, sample: Sample) -> BoundValue:
        head, cover = self.functions, self.functions.composition(sample, "derived")
        log_costs = np.array(cover.log_costs)
        if self.form == "printed" and head.norm_lipschitz is None:
            log_costs[1] += math.log(softmax_constant("printed"))

        def parts(logit: float) -> np.ndarray:
            """log log N of the values at 1 − α and of the scores at α, for log(α/(1 − α))."""
            log_shares = -np.logaddexp(0.0, [logit, -logit])
            log_ratio = log_costs - math.log(self.resolution) - log_shares
            if self.form == "printed":
                return 2 * log_ratio + log_log_points(sample)
            return log_log_linear_cover(log_ratio, cover.log_outputs, cover.log_points)

        value, score = cover.log_costs
        best = 700.0 if value == -math.inf else -700.0
        if min(value, score) > -math.inf:
            center = (score - value) * 2 / 3
            found: Any = scipy.optimize.minimize_scalar(
                lambda logit: log_sum(parts(logit)),
                bounds=(center - 3, center + 3),
                method="bounded",
                options={"xatol": 1e-10},
            )
            best = min(center, float(found.x), key=lambda logit: float(log_sum(parts(logit))))
        terms = (
            Term("log covering number", None, matrix.name, float(part))
            for matrix, part in zip(cover.matrices, parts(best), strict=True)
        )
        note = f"The scores get the part {math.exp(-np.logaddexp(0.0, -best)):.4g} of the error."
        return self.value(sample, *summed(terms), notes=(note, *head.notes()))

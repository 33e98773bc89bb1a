"""Theorem 4.2: the error of a head, shared between its scores and its values at its best."""

import math
from typing import Any

import numpy as np
import scipy

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds import description as fields
from finetti.bounds.covering.linear import log_log_matrix_cover
from finetti.bounds.covering.network_bounds import NetworkBound, log_log_points
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.head_class import HeadClass
from finetti.bounds.sparse_variables.transformer_theorems import ASSUMED_OF_A_HEAD
from finetti.bounds.value import BoundValue, Term, log_of, summed
from finetti.core.errors import bad_argument
from finetti.core.logspace import log_add


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

    def parts(self, log_share: float, log_rest: float, sample: Sample) -> tuple[float, float]:
        """log log N of the scores at α and of the values at 1 − α, for log α and log(1 − α)."""
        head = self.functions
        token = log_of(head.token_norm(sample))
        query = token if head.query_norm is None else log_of(head.query_norm + head.position_norm)
        given = head.norm_lipschitz
        constant = softmax_constant(self.form) if given is None else given
        multiplier = log_of(constant) + log_of(head.value_norm) + token + query
        log_resolution = math.log(self.resolution) - log_of(head.out_lipschitz)

        def cover(norm: float, outputs: int, resolution: float) -> float:
            logs = log_of(norm), math.log(outputs), token, resolution
            if self.form == "printed":
                return 2 * (sum(logs[:3]) - resolution) + log_log_points(sample)
            return log_log_matrix_cover(*logs, head.log_points(sample))

        score = cover(head.score_row_norm, head.width, log_resolution - multiplier + log_share)
        return score, cover(head.value_column_norm, head.columns, log_resolution + log_rest)

    def best_share(self, sample: Sample) -> float:
        """log(α/(1 − α)) of the best split that was found, around that of Lemma A.8."""
        value, score = self.functions.log_costs(self.functions, sample, "derived")
        if math.isinf(value) or math.isinf(score):
            return 700.0 if math.isinf(value) else -700.0
        center = (score - value) * 2 / 3

        def total(logit: float) -> float:
            return float(log_add(*self.parts(*_log_shares(logit), sample)))

        bounds, options = (center - 3, center + 3), {"xatol": 1e-10}
        found: Any = scipy.optimize.minimize_scalar(
            total, bounds=bounds, method="bounded", options=options
        )
        return min(center, float(found.x), key=total)

    def _evaluate(self, sample: Sample) -> BoundValue:
        shares = _log_shares(self.best_share(sample))
        parts = zip(("W_QK", "W_V"), self.parts(*shares, sample), strict=True)
        terms = (Term("log covering number", None, name, part) for name, part in parts)
        note = f"The scores get the part {math.exp(shares[0]):.4g} of the error."
        return self.value(sample, *summed(terms), notes=(note, *self.functions.notes()))


def _log_shares(logit: float) -> tuple[float, float]:
    """log α and log(1 − α) for log(α/(1 − α))."""
    return -float(np.logaddexp(0.0, -logit)), -float(np.logaddexp(0.0, logit))

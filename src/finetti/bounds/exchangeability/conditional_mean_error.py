"""Proposition 4.1: how far CME attention is from the conditional mean it estimates."""

import math
from typing import ClassVar

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.value import BoundValue, Sample, Term, log_of, summed


def log_mean_deviation(
    ridge: float, dimension: float, log_length: float, delta: float
) -> tuple[float, float]:
    """The two logs of (2 + λ^{−1/2})(2/(λL) + √(Γ(λ)/(λL))) log(4/δ)          (B.10), zhang2022

    For K ≤ 1 and ‖v‖ ≤ 1: (B.8) and (B.9) with the constant 1 and half of δ each, and (B.5) with
    its second term; the paper has λ^{−1/2}(…) log(2/δ), times an unknown constant. Γ is
    ``dimension``.

    >>> parts = log_mean_deviation(0.25, 4.0, math.log(1600.0), 4 / math.e**2)  # 2·4/200 and 2·4/10
    >>> [round(math.exp(part), 9) for part in parts]
    [0.04, 0.8]
    """
    log_scaled = math.log(ridge) + log_length
    front = math.log(2 + ridge**-0.5) + math.log(math.log(4 / delta))
    return front + math.log(2) - log_scaled, front + (log_of(dimension) - log_scaled) / 2


class ConditionalMeanError(Bound):
    """sup_q ‖attn_CME − E[V|K=q]‖ ≤ ‖v‖(2 + λ^{−1/2})(2/(λL) + √(Γ(λ)/(λL))) log(4/δ) + λ‖h‖

    for attn_CME with the ridge Lλ, L the sample's ``context_length``. Its terms are the two parts
    of the distance to the λ-regularized population value (B.10), and the bias (B.11) of the ridge.
    Printed: L^{−1/2} log(1/δ) + λ, whose constant hides λ^{−1}Γ(λ)^{1/2} (erratum 3).

    Args:
        ridge: λ.
        effective_dimension: Γ(λ); `finetti.attention.effective_dimension` estimates it from keys.
        value_norm: the longest value, ‖v‖.
        source_norm: ‖h‖ in the kernel's space, where E[V|K=·] = C_KK h.

    >>> bound = ConditionalMeanError(0.25, effective_dimension=4.0, source_norm=2.0)
    >>> found = bound.evaluate(Sample(1, context_length=1600, delta=0.05))
    >>> round(found.value, 6)                                          # 4·0.105·log 80 + 0.5
    2.340451
    >>> [round(term.value, 6) for term in found.terms]
    [0.087641, 1.752811, 0.5]
    """

    name = "E-prop-4.1"
    title = "CME attention and the conditional mean"
    statement = "‖CME attention − E[v|q]‖ ≤ (2 + λ^(−1/2))(2/(λT) + √(Γ/(λT)))·log(4/δ) + λ‖h‖"
    citation = "Proposition 4.1, zhang2022"
    quantity = "error of the attention"
    printed_kind = "scaling"
    assumes = (
        "tokens are independent given the latent variable",
        "K ≤ 1",
        "the source condition E[v|·] = C_K·h",
    )

    solves: ClassVar = {
        "tokens": "Ask for a larger `gap`, or a smaller `ridge`: the bias of the ridge stays."
    }

    ridge: float = fields.number(0.1)
    effective_dimension: float = fields.norm(1.0)
    value_norm: float = fields.norm(1.0)
    source_norm: float = fields.norm(1.0)

    @property
    def log_bias(self) -> float:
        """log(λ‖h‖), which is left at any context length                      (B.11), zhang2022

        If E[V|K=·] = C_KK h and K ≤ 1. Printed: λ, times an unknown constant.
        """
        return math.log(self.ridge) + (log_of(self.source_norm) if self.form == "derived" else 0.0)

    def _evaluate(self, sample: Sample) -> BoundValue:
        if self.form == "printed":
            log_rate = math.log(-math.log(sample.delta)) - sample.log_context / 2
            deviation = [Term("deviation: T^(−1/2)", log_value=log_rate)]
        else:
            arguments = self.ridge, self.effective_dimension, sample.log_context, sample.delta
            few, many = (log_of(self.value_norm) + part for part in log_mean_deviation(*arguments))
            deviation = [
                Term("deviation: 2/(λT)", log_value=few),
                Term("deviation: √(Γ/(λT))", log_value=many),
            ]
        terms = [*deviation, Term("bias of the ridge", log_value=self.log_bias)]
        return self.value(sample, *summed(terms))

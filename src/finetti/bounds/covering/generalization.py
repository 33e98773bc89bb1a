"""Lemma 2.2 and A.4: from Rademacher complexity to the generalization gap."""

import math
from collections.abc import Iterable

from finetti.bounds.base import Bound
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term, log_of, summed
from finetti.core.forms import Form, check_form
from finetti.core.logspace import log_subtract, log_sum

TOO_RICH = "The class is too rich for this sample: the complexity is the largest output."
NEGATIVE = (
    "The printed closed form is negative here, and bounds nothing (erratum 12). "
    "Take the derived form."
)


def log_confidence(sample: Sample, form: Form = "derived", two_sided: bool = True) -> float:
    """log of 3b√(log(3/δ)/(2m)), one-sided log(2/δ)              Lemma 2.2 and A.4, edelman2022

    Printed: 2b√(log(1/δ)/(2m)), which is enough for one side (S-lemma-2.2).

    >>> round(math.exp(log_confidence(Sample(200, 1))), 6)  # 3√(log 60 / 400)
    0.303517
    """
    check_form(form, "log_confidence")
    events = 3 if two_sided else 2
    factor, inside = (3, events / sample.delta) if form == "derived" else (2, 1 / sample.delta)
    log_scale = math.log(factor) + math.log(sample.loss_bound)
    return log_scale + (math.log(math.log(inside)) - math.log(2) - sample.log_samples) / 2


def gap_terms(
    log_rademacher: float, sample: Sample, parts: Iterable[Term] = (), two_sided: bool = True
) -> tuple[float, tuple[Term, ...]]:
    """2L·Rad + confidence, derived: the log of the sum, and its terms.

    ``parts`` are those of the covering number at Dudley's resolution: the complexity is shared
    between the matrices as the covering number is.
    """
    complexity = math.log(2) + log_of(sample.loss_lipschitz) + log_rademacher
    parts = tuple(parts)
    whole = float(log_sum([part.log_value for part in parts]))
    split = [Term("complexity", log_value=complexity)]
    if whole > -math.inf:
        split = [
            Term("complexity", part.layer, part.matrix, complexity + part.log_value - whole)
            for part in parts
        ]
    confidence = Term("confidence", log_value=log_confidence(sample, two_sided=two_sided))
    return summed([*split, confidence])


def printed_gap(bound: Bound, sample: Sample, log_size: float, sign: int) -> BoundValue:
    """4L·y + 2b√(log(1/δ)/2m), for the log |y| and sign of `signed_dudley_printed`."""
    complexity = math.log(4) + log_of(sample.loss_lipschitz) + log_size
    confidence = log_confidence(sample, "printed")
    name = "complexity" if sign > 0 else "complexity, negative"
    terms = (Term(name, log_value=complexity), Term("confidence", log_value=confidence))
    if sign > 0:
        return bound.value(sample, *summed(terms))
    low, high = sorted((complexity, confidence))
    log_value = float(log_subtract(high, low))
    total = -1 if complexity > confidence else 1
    return bound.value(sample, log_value, terms, sign=total, notes=(NEGATIVE,))

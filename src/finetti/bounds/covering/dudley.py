"""From covering numbers to Rademacher complexity (Dudley) and the gap (Lemma 2.2).

All in log space; ``log_log_cover`` is a function of log ε that gives log log N_∞(ε), decreasing.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from finetti.bounds.bound import Bound
from finetti.bounds.value import BoundValue, Sample, Term, log_of, split_in_proportion, summed
from finetti.core.arguments import Form, check_form
from finetti.core.numerics.extremes import smallest_of
from finetti.core.numerics.logspace import log_subtract, log_sum

# log ε ↦ log log N_∞(ε), for one or many ε.
Cover = Callable[[Any], Any]
LOG_3, LOG_12 = math.log(3), math.log(12)
# The steps of an upper sum: so many in a unit of log ε, found so many at a time.
_PER_UNIT, _BLOCK, _MAX_BLOCKS = 16, 64, 1000
_NEGLIGIBLE = 18.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


@dataclass(frozen=True)
class Dudley:
    """log Rad ≤ ``log_value``, reached at resolution e^``log_resolution``; trivial if Rad ≤ A."""

    log_value: float
    log_resolution: float
    trivial: bool


def best_resolution(log_log_cover: Cover, log_range: float, log_samples: float) -> float:
    """log δ with log N(δ) = m/9, where 4δ + (12/√m)∫_δ^A √log N is smallest; at most log A.

    >>> round(best_resolution(lambda u: -2 * u, 0.0, math.log(900)), 9) == round(math.log(0.1), 9)
    True
    """
    target = log_samples - 2 * LOG_3
    if log_range == -math.inf or log_log_cover(log_range) >= target:
        return log_range
    step = 1.0
    while log_log_cover(log_range - step) < target:
        step *= 2
        if step > 1e9:  # a finite class: its covering number stops growing
            return log_range - 745.0
    root = scipy.optimize.root_scalar(
        lambda u: float(log_log_cover(u)) - target,
        bracket=(log_range - step, log_range),
        method="brentq",
        xtol=1e-13,
    )
    return float(root.root)


def _panels(length: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in [0, length] and the logs of their weights: panels that double in width.

    A class of few parameters has its integral near 0 (the range), one with log N = C/ε² all over.
    """
    count = max(1, math.ceil(math.log2(max(length, 1.0)))) + 1
    edges = np.minimum(np.r_[0.0, 2.0 ** np.arange(count)], length)
    edges = np.unique(np.r_[edges, length])
    half = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + half * (1 + _NODES)
    return nodes.ravel(), np.log(half * _WEIGHTS).ravel()


def dudley_quadrature(log_log_cover: Cover, log_range: float, log_samples: float) -> Dudley:
    """Rad ≤ min( A, inf_δ 4δ + (12/√m) ∫_δ^A √log N_∞(ε) dε )                 A.2, edelman2022

    The integral over log ε is by Gauss–Legendre in panels; A bounds the functions, so Rad ≤ A.

    >>> found = dudley_quadrature(lambda u: -2 * u, 0.0, math.log(1e6))
    >>> closed = dudley_closed(0.0, 0.0, math.log(1e6))
    >>> abs(found.log_value - closed) < 1e-10
    True
    """
    low = best_resolution(log_log_cover, log_range, log_samples)
    if low == log_range:
        return Dudley(log_range, log_range, True)
    nodes, log_weights = _panels(log_range - low)
    heights = log_log_cover(log_range - nodes) / 2 + log_range - nodes
    integral = float(log_sum(heights + log_weights))
    found = float(np.logaddexp(math.log(4) + low, LOG_12 - log_samples / 2 + integral))
    return Dudley(smallest_of(found, log_range), low, found >= log_range)


def dudley_upper_sum(log_log_cover: Cover, log_range: float, log_samples: float) -> Dudley:
    """The same by an upper sum, for any cover: steps, jumps and poor optima included

        4ε_k + (12/√m) Σ_{i≤k} (ε_{i−1} − ε_i)√log N(ε_i),   ε_i = A·e^{−i/16},   at the best k

    What covers at ε_i covers at every larger ε, so that a step lies above the integral.

    >>> above = dudley_upper_sum(lambda u: -2 * u, 0.0, math.log(1e6)).log_value
    >>> 1 < math.exp(above - dudley_closed(0.0, 0.0, math.log(1e6))) < 1.04
    True
    """
    if log_range == -math.inf:
        return Dudley(log_range, log_range, False)
    integral, best = -math.inf, (log_range, log_range)
    for block in range(_MAX_BLOCKS):
        u = log_range - np.arange(1 + block * _BLOCK, 1 + (block + 1) * _BLOCK) / _PER_UNIT
        heights = np.asarray(log_log_cover(u), dtype=np.float64) / 2
        steps = heights + u + math.log(math.expm1(1 / _PER_UNIT))
        integrals = np.logaddexp.accumulate(np.r_[integral, steps])[1:]
        deviations = LOG_12 - log_samples / 2 + integrals
        found = np.logaddexp(math.log(4) + u, deviations)
        k = int(found.argmin())
        best = min(best, (float(found[k]), float(u[k])))
        integral = float(integrals[-1])
        # Further down the integral grows faster than 4ε falls, or 4ε is nothing beside it.
        steep = heights[-1] >= log_samples / 2 - LOG_3
        if steep or math.log(4) + u[-1] < deviations[-1] - _NEGLIGIBLE:
            break
    return Dudley(smallest_of(best[0], log_range), best[1], best[0] >= log_range)


def dudley_closed(log_constant: float, log_range: float, log_samples: float) -> float:
    """log of A·min(1, 12(1 + log(x/3))/x) for x = A√(m/C_F) ≥ 3, else of A       A.3, edelman2022

    For a class with log N_∞(ε) ≤ C_F/ε² (``log_constant``) and |f| ≤ A (``log_range``).

    >>> round(math.exp(dudley_closed(0.0, 0.0, math.log(1e6))), 12)   # 0.012(1 + log(1000/3))
    0.081709715884
    """
    if -math.inf in (log_constant, log_range):  # one function, or only zero
        return -math.inf
    log_x = log_range + (log_samples - log_constant) / 2
    if log_x < LOG_3:
        return log_range
    return log_range + smallest_of(0.0, LOG_12 + math.log1p(log_x - LOG_3) - log_x)


def dudley_printed(log_constant: float, log_range: float, log_samples: float) -> tuple[float, int]:
    """log|y| and the sign of y = √(C_F/m)(1 + log(A√(m/C_F))), up to a constant

    A.3, edelman2022, as printed: negative for A√(m/C_F) < 1/e (erratum 12).

    >>> dudley_printed(log_constant=4.0, log_range=0.0, log_samples=0.0)
    (2.0, -1)
    """
    if -math.inf in (log_constant, log_range):
        return -math.inf, 1
    log_x = log_range + (log_samples - log_constant) / 2
    return log_of(abs(1 + log_x)) + log_range - log_x, 1 if log_x >= -1 else -1


TOO_RICH = "The class is too rich for this sample: its complexity is the largest possible."
NEGATIVE = (
    "The printed closed form is negative here, and bounds nothing (erratum 12). "
    "Take the derived form."
)


def log_confidence(
    sample: Sample, form: Form = "derived", two_sided: bool = True, post_hoc: float = 0.0
) -> float:
    """log of 3b√(log(3/δ)/(2m)), one-sided log(2/δ)              Lemma 2.2 and A.4, edelman2022

    Printed: 2b√(log(1/δ)/(2m)), which is enough for one side (S-lemma-2.2). For a class that was
    chosen after training, of many, ``post_hoc`` is added to the logarithm: that of 1/weight.

    >>> round(math.exp(log_confidence(Sample(200, 1))), 6)  # 3√(log 60 / 400)
    0.303517
    """
    check_form(form, "log_confidence")
    events = 3 if two_sided else 2
    factor, inside = (3, events / sample.delta) if form == "derived" else (2, 1 / sample.delta)
    log_scale = math.log(factor) + math.log(sample.loss_bound)
    return (
        log_scale + (math.log(math.log(inside) + post_hoc) - math.log(2) - sample.log_samples) / 2
    )


def gap_terms(
    log_rademacher: float,
    sample: Sample,
    parts: Iterable[Term] = (),
    two_sided: bool = True,
    post_hoc: float = 0.0,
) -> tuple[float, tuple[Term, ...]]:
    """2L·Rad + confidence, derived: the log of the sum, and its terms.

    ``parts`` are those of the covering number at Dudley's resolution: the complexity is shared
    between the matrices as the covering number is.
    """
    complexity = math.log(2) + log_of(sample.loss_lipschitz) + log_rademacher
    split = split_in_proportion("complexity", complexity, parts)
    log_sure = log_confidence(sample, two_sided=two_sided, post_hoc=post_hoc)
    confidence = Term("confidence", log_value=log_sure)
    return summed([*split, confidence])


def printed_gap(
    bound: Bound, sample: Sample, log_constant: float, log_range: float, log_samples: float
) -> BoundValue:
    """4L·y + 2b√(log(1/δ)/2m), y of `dudley_printed`."""
    log_size, sign = dudley_printed(log_constant, log_range, log_samples)
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

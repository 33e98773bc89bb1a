"""Lemma 2.2 and A.2–A.4: from covering numbers to the generalization gap."""

import math
from itertools import product

import numpy as np
import scipy

from finetti.bounds import Sample
from finetti.bounds import sparse_variables as bounds
from finetti.bounds.covering.dudley import (
    dudley_closed,
    dudley_printed,
    dudley_quadrature,
    gap_terms,
    log_confidence,
)
from finetti.claims.claim import CheckMethod, Context, Erratum, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close, within
from finetti.core.arguments import Form
from finetti.core.numerics.extremes import largest_of, smallest_of

_SIZES, _DELTAS = (10, 50, 400), (0.2, 0.1, 0.01)
_DRAWN = 3  # samples of the enumeration
_POINTS = 8  # of the enumeration of losses that memorize


def memorizing_complexity() -> float:
    """The Rademacher complexity of losses that are 0 on finitely many points and 1 elsewhere.

    Points with the sign −1 are memorized, the others are not.

    >>> memorizing_complexity()
    0.5
    """
    signs = list(product((-1, 1), repeat=_POINTS))
    return sum(sum(sign > 0 for sign in row) for row in signs) / (_POINTS * len(signs))


def memorizing_gap_over_bound(two_sided: bool) -> float:
    """The gap of such losses over the bound for 10⁶ samples.

    Points are drawn from a continuous law, so that the loss which is 0 on the sample has training
    error 0 and test error 1: the gap is 1 on every sample.
    """
    sample = Sample(10**6, 1, delta=0.05)
    log_complexity = math.log(memorizing_complexity())
    return math.exp(-gap_terms(log_complexity, sample, two_sided=two_sided)[0])


def _bounded_differences() -> tuple[float, float]:
    """By how much one sample can change the complexity and the largest gap, times m.

    All classes of losses {0, 1} on three points, all samples of three points, all signs.
    """
    functions = np.array(list(product((0.0, 1.0), repeat=3)))
    signs = np.array(list(product((-1.0, 1.0), repeat=_DRAWN)))
    members = np.array(list(product((False, True), repeat=len(functions))))[1:]
    samples = np.array(list(product(range(3), repeat=_DRAWN)))
    losses = functions[:, samples]  # function, sample, point of the sample
    outside = np.where(members, 0.0, -np.inf)[:, :, None]  # class, function

    def largest(of_function: np.ndarray) -> np.ndarray:
        return (of_function + outside).max(axis=1)

    by_sign = np.stack([largest(losses @ sign) for sign in signs])
    complexity = by_sign.mean(axis=0) / _DRAWN
    gap = largest(functions.mean(axis=1)[:, None] - losses.mean(axis=2))
    apart = (samples[:, None] != samples[None]).sum(axis=2) == 1
    return tuple(  # pyright: ignore[reportReturnType]
        _DRAWN * float(np.abs(each[:, :, None] - each[:, None, :])[:, apart].max())
        for each in (complexity, gap)
    )


@claim(
    id="S-lemma-2.2",
    title="training and test error differ by the complexity and a confidence term",
    statement="With probability 1 − δ, test and training error of all functions of a class differ "
    "by at most its complexity and a confidence term, for an L-Lipschitz loss in an interval of "
    "length b; one-sided with log(2/δ). Printed for one side, 4L·Rad + 2b√(log(1/δ)/2m).",
    formula=r"|E ℓ(f) − \hat{E} ℓ(f)| ≤ 2 L Rad + 3b \sqrt{\frac{log(3/δ)}{2m}}",
    label="Lemma 2.2, A.4",
    check=CheckMethod.TIGHT,
    rejects="a confidence term half as large or twice as large, a factor of Rad that is 1 % off",
)
def s_lemma_2_2(context: Context) -> Evidence:
    """The confidence term through McDiarmid's inequality, and exact probabilities.

    One sample changes the complexity by b/2m and the gap by b/m, found by enumeration: both are
    attained, and give 2b√(log(1/δ)/2m) for one side. The statement's 3b is the textbook's, and
    larger. The gaps are those of one function, for which the complexity is 0: they say the order of
    the term, and cannot see its factor. That of 2L·Rad is seen by losses that are 0 on finitely
    many points and 1 elsewhere: Rad = 1/2, and the gap is 1 on every sample.
    """

    def confidence(m: int, delta: float, two_sided: bool) -> float:
        sample = Sample(m, 1, delta=delta)
        return math.exp(log_confidence(sample, two_sided=two_sided))

    complexity, gap = _bounded_differences()
    # sup gap − 2·Rad changes by c/m with one sample, so that it exceeds its mean, which is at most
    # 0, by c√(log(1/δ)/2m) with probability at most δ; both sides at once: log(2/δ).
    change = gap + 2 * complexity
    least = smallest_of(
        confidence(200, delta, two_sided) / (change * math.sqrt(math.log(events / delta) / 400))
        for delta in _DELTAS
        for two_sided, events in ((True, 2), (False, 1))
    )
    used = {True: 0.0, False: 0.0}
    for m, delta, two_sided in product(_SIZES, _DELTAS, used):
        chance = delta / 2 if two_sided else delta
        # Training errors of a function whose test error is 1/2: their number is binomial.
        gap_of_chance = 0.5 - scipy.stats.binom.ppf(chance, m, 0.5) / m
        share = gap_of_chance / confidence(m, delta, two_sided)
        used[two_sided] = largest_of(used[two_sided], share)
    memorized = [memorizing_gap_over_bound(two_sided=each) for each in used]
    return Evidence(
        close("change of the complexity by one sample, minus 1/2m", complexity - 0.5, 1e-12),
        close("change of the largest gap by one sample, minus 1/m", gap - 1, 1e-12),
        within("least confidence term / McDiarmid's with these", least, 1.0, 2.0),
        within("two-sided: largest gap of probability δ / bound", used[True], 0.1, 1.0),
        within("one-sided: largest gap of probability δ / bound", used[False], 0.1, 1.0),
        within("losses that memorize 10⁶ points: gap / bound", memorized[0], 0.99, 1.0),
        within("the same, one-sided", memorized[1], 0.99, 1.0),
    )


def _log_constant(m: int) -> float:
    """log C_F of one head of width 64 with spectral norms 1 at T = 400."""
    # Spread over all columns, a matrix of spectral norm 1 has columns of length 1/√d.
    width, length = 64, 400
    norms = bounds.SoftmaxHeadNorms(value_column_norm=width**-0.5, score_row_norm=width**-0.5)
    head = bounds.MultiHeadClass(heads=(norms,), width=width)
    scaling = head.composition(Sample(m, length), "printed").log_scaling
    return scaling(0.0, math.log(math.log(m * length)))


@claim(
    id="S-app-A.3",
    title="Dudley's integral, by quadrature and in closed form",
    statement="The complexity is at most Dudley's integral of the log covering number, which has a "
    "closed form where that is C_F/ε².",
    formula=r"Rad ≤ inf_δ 4δ + \frac{12}{\sqrt{m}} ∫_δ^A \sqrt{log N_∞(ε)} dε;  log N_∞ ≤ "
    r"\frac{C_F}{ε^2} ⇒ Rad ≤ A min(1, \frac{12 (1 + log(x/3))}{x}),  x = A \sqrt{m/C_F} ≥ 3",
    label="A.2, A.3",
    rejects="a closed form that is 1e-10 off",
    erratum=Erratum(
        12,
        title="printed: Dudley's integral in closed form",
        statement="The printed closed form is a complexity: positive, and falling with m.",
        formula=r"Rad ≤ A min(1, \frac{12 (1 + log(x/3))}{x}),  x = A \sqrt{m/C_F} ≥ 3",
        printed=r"Rad ≤ c \sqrt{\frac{C_F}{m}} (1 + log(A \sqrt{\frac{m}{C_F}}))",
        label="A.3",
        why="With x = A√(m/C_F) the printed form is negative for x < 1/e and grows with m for "
        "x < 1. Derived: A·min(1, 12(1 + log(x/3))/x) for x ≥ 3, else A.",
    ),
)
def s_app_a_3(context: Context, form: Form = "derived") -> Evidence:
    """The two routes where log N = C/ε² exactly; and the closed form for one head of width 64 with
    spectral norms 1, T = 400, and how it moves with m."""
    few, more, many = 200, 400, 10**12
    if form == "printed":
        found = (dudley_printed(_log_constant(m), 0.0, math.log(m)) for m in (few, more))
        low, high = (sign * math.exp(log_size) for log_size, sign in found)
        return Evidence(
            at_least("complexity at T = 400, m = 200", low, 0.0),
            at_most("complexity at m = 400 minus that at m = 200", high - low, 0.0),
            note="The derived form gives the largest output: 200 and 400 samples are too few.",
        )
    rng, exact = context.draws(), 0.0
    for _ in range(100):
        log_constant, log_range, log_samples = rng.uniform((-5, -3, 0), (30, 3, 60))
        closed = dudley_closed(log_constant, log_range, log_samples)
        found = dudley_quadrature(lambda u, c=log_constant: c - 2 * u, log_range, log_samples)
        exact = largest_of(exact, abs(found.log_value - closed))
    low, high, last = (
        math.exp(dudley_closed(_log_constant(m), 0.0, math.log(m))) for m in (few, more, many)
    )
    return Evidence(
        close("log N = C/ε²: log of closed / quadrature", exact, 1e-10),
        close("complexity at m = 200, minus the largest output", low - 1, 1e-12),
        at_most("complexity at m = 400 minus that at m = 200", high - low, 0.0),
        within("complexity at m = 10¹²", last, 0.0, 1 - 1e-9),
    )

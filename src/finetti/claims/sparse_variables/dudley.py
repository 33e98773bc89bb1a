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
    log_confidence,
)
from finetti.claims import memorizers
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close, within
from finetti.claims.wrong import log_plus
from finetti.core.numbers import largest_of, smallest_of

_SIZES, _DELTAS = (10, 50, 400), (0.2, 0.1, 0.01)
_DRAWN = 3  # samples of the enumeration


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


def _a_third(sample: Sample, *, two_sided: bool) -> float:
    return log_confidence(sample, two_sided=two_sided) - math.log(3)


@claim(
    id="S-lemma-2.2",
    title="training and test error differ by the complexity and a confidence term",
    statement="With probability 1 − δ, |test − training error| ≤ 2L·Rad + 3b√(log(3/δ)/2m) for all "
    "functions of a class, for an L-Lipschitz loss in an interval of length b; one-sided with "
    "log(2/δ).",
    formula=r"|E ℓ(f) − \hat{E} ℓ(f)| ≤ 2 L Rad + 3b \sqrt{\frac{log(3/δ)}{2m}}",
    printed=r"E ℓ(f) − \hat{E} ℓ(f) ≤ 4 L Rad + 2b \sqrt{\frac{log(1/δ)}{2m}}",
    label="Lemma 2.2, A.4",
    controls=(
        Control("a third of the confidence term", changes={"confidence": _a_third}),
        Control("Rad in the place of 2·Rad", changes={"rademacher": memorizers.half}),
    ),
)
def s_lemma_2_2(
    context: Context,
    confidence: Formula = log_confidence,
    rademacher: Formula = memorizers.complexity,
) -> Evidence:
    """The confidence term by hand and through McDiarmid's inequality, and exact probabilities.

    One sample changes the complexity by b/2m and the gap by b/m, found by enumeration: both are
    attained, and give 2b√(log(1/δ)/2m) for one side. The statement's 3b is the textbook's, and
    larger. The gaps are those of one function, for which the complexity is 0: they say the order of
    the term, and cannot see its factor. That of 2L·Rad is seen by losses that are 0 on finitely
    many points and 1 elsewhere: Rad = 1/2, and the gap is 1 on every sample.
    """
    complexity, gap = _bounded_differences()
    # sup gap − 2·Rad changes by c/m with one sample, so that it exceeds its mean, which is at most
    # 0, by c√(log(1/δ)/2m) with probability at most δ; both sides at once: log(2/δ).
    change = gap + 2 * complexity
    least = smallest_of(
        math.exp(confidence(Sample(200, 1, delta=delta), two_sided=two_sided))
        / (change * math.sqrt(math.log((1 + two_sided) / delta) / 400))
        for delta in _DELTAS
        for two_sided in (True, False)
    )
    value = math.exp(confidence(Sample(200, 1, delta=0.05), two_sided=True))
    by_hand = 0.30351730  # 3√(log 60 / 400), log 60 = 4.09434456
    used = {True: 0.0, False: 0.0}
    for m, delta in product(_SIZES, _DELTAS):
        for two_sided in used:
            allowed = math.exp(confidence(Sample(m, 1, delta=delta), two_sided=two_sided))
            chance = delta / 2 if two_sided else delta
            # Training errors of a function whose test error is 1/2: their number is binomial.
            gap_of_chance = 0.5 - scipy.stats.binom.ppf(chance, m, 0.5) / m
            used[two_sided] = largest_of(used[two_sided], gap_of_chance / allowed)
    return Evidence(
        close("3√(log 60 / 400) = 0.30351730, relative", value / by_hand - 1, 1e-7),
        close("change of the complexity by one sample, minus 1/2m", complexity - 0.5, 1e-12),
        close("change of the largest gap by one sample, minus 1/m", gap - 1, 1e-12),
        at_least("least confidence term / McDiarmid's with these", least, 1.0),
        within("two-sided: largest gap of probability δ / bound", used[True], 0.1, 1.0),
        within("one-sided: largest gap of probability δ / bound", used[False], 0.1, 1.0),
        within(
            "losses that remember 10⁶ points: gap / bound",
            memorizers.used(rademacher(), two_sided=True),
            0.99,
            1.0,
        ),
    )


@claim(
    id="S-app-A.3",
    title="Dudley's integral, by quadrature and in closed form",
    statement="Rad ≤ inf_δ 4δ + (12/√m)∫_δ^A √log N_∞(ε) dε; where log N_∞(ε) ≤ C_F/ε² this is "
    "A·min(1, 12(1 + log(x/3))/x) with x = A√(m/C_F) ≥ 3.",
    formula=r"Rad ≤ inf_δ 4δ + \frac{12}{\sqrt{m}} ∫_δ^A \sqrt{log N_∞(ε)} dε;  log N_∞ ≤ "
    r"\frac{C_F}{ε^2} ⇒ Rad ≤ A min(1, \frac{12 (1 + log(x/3))}{x}),  x = A \sqrt{m/C_F} ≥ 3",
    label="A.2, A.3",
    controls=(
        Control(
            "a closed form 1 % too large",
            breaks={"finetti.claims.sparse_variables.dudley.dudley_closed": log_plus(1.01)},
        ),
    ),
)
def s_app_a_3(context: Context) -> Evidence:
    """The two routes where log N = C/ε² exactly, and on the covers of random heads."""
    draws = 100
    rng = context.generator(s_app_a_3.id)
    exact, least = 0.0, math.inf
    for _ in range(draws):
        log_constant, log_range, log_samples = rng.uniform((-5, -3, 0), (30, 3, 60))
        closed = dudley_closed(log_constant, log_range, log_samples)
        found = dudley_quadrature(lambda u, c=log_constant: c - 2 * u, log_range, log_samples)
        exact = largest_of(exact, abs(found.log_value - closed))
        names = "value_norm", "value_column_norm", "score_row_norm"
        norms = dict(zip(names, 10.0 ** rng.uniform(-1, 1, size=3), strict=True))
        head, sample = bounds.HeadClass(width=8, readout_norm=1.0, **norms), Sample(10**14, 1000)
        log_range = head.log_range(sample)
        found = head.composition(sample, "derived").dudley(log_range, sample.log_samples)
        # √log N(ε) ≤ (δ/ε)√(m/9) above δ, where C_F grows as ε falls.
        log_delta = found.log_resolution
        closed = math.log(4) + log_delta + math.log1p(log_range - log_delta)
        least = smallest_of(least, smallest_of(closed, log_range) - found.log_value)
    return Evidence(
        close("log N = C/ε²: log of closed / quadrature", exact, 1e-10),
        at_least(f"{draws} heads: least log of closed / quadrature", least, -1e-12),
    )


@claim(
    id="S-erratum-12",
    title="printed: Dudley's integral in closed form",
    statement="A class with log N_∞(ε) ≤ C_F/ε² has a Rademacher complexity of at most "
    "c√(C_F/m)(1 + log(A√(m/C_F))), which is positive and falls with m.",
    formula=r"Rad ≤ A min(1, \frac{12 (1 + log(x/3))}{x}),  x = A \sqrt{m/C_F} ≥ 3",
    printed=r"Rad ≤ c \sqrt{\frac{C_F}{m}} (1 + log(A \sqrt{\frac{m}{C_F}}))",
    label="A.3",
    erratum="With x = A√(m/C_F) the printed form is negative for x < 1/e and grows with m for "
    "x < 1. Derived: A·min(1, 12(1 + log(x/3))/x) for x ≥ 3, else A.",
    controls=(
        Control(
            "a closed form 1 % too large",
            breaks={"finetti.claims.sparse_variables.dudley.dudley_closed": log_plus(1.01)},
        ),
    ),
)
def s_erratum_12(context: Context) -> Evidence:
    """The printed form for one head of width 64 with spectral norms 1, and how it moves with m."""
    width, length, many = 64, 400, 10**12
    # Spread over all columns, a matrix of spectral norm 1 has columns of length 1/√d.
    column = width**-0.5
    heads = (bounds.SoftmaxHeadNorms(value_column_norm=column, score_row_norm=column),)
    layer = bounds.MultiHeadClass(heads=heads, width=width)

    def constant(m: int) -> float:
        scaling = layer.composition(Sample(m, length), "printed").log_scaling
        return scaling(0.0, math.log(math.log(m * length)))

    few, more = (dudley_printed(constant(m), 0.0, math.log(m)) for m in (200, 400))
    logs = [dudley_closed(constant(m), 0.0, math.log(m)) for m in (200, 400, many)]
    derived = [math.exp(log) for log in logs]
    # At m = 10¹² x = √(m/C_F) is large enough for the closed form itself.
    x = math.exp((math.log(many) - constant(many)) / 2)
    miss = derived[2] / (12 * (1 + math.log(x / 3)) / x) - 1
    return Evidence(
        at_least("complexity at T = 400, m = 200", few, 0.0),
        at_most("complexity at m = 400 minus that at m = 200", more - few, 0.0),
        derived=(
            close("complexity at m = 200, minus the largest output", derived[0] - 1, 1e-12),
            at_most("complexity at m = 400 minus that at m = 200", derived[1] - derived[0], 0.0),
            close("complexity at m = 10¹², relative to 12(1 + log(x/3))/x", miss, 1e-12),
            within("the same", derived[2], 0.0, 1.0),
        ),
        note="The derived form gives the largest output: 200 and 400 samples are too few.",
    )

"""How many samples, heads or tokens a bound asks for: monotone root finding in log n."""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from typing import Any

import scipy

from finetti.bounds.value import OF_THE_LOSS, BoundValue, Sample, Term, format_exp
from finetti.core.arguments import as_positive
from finetti.core.errors import InputError, UnsupportedError, bad_argument

# What can be solved for: the size that it is, and the bounds that fall with it.
COUNTS = {
    "samples": ("n_samples", f"a bound on a {', '.join(OF_THE_LOSS[:-1])}, or {OF_THE_LOSS[-1]}"),
    "heads": ("n_heads", "R-thm-risk or R-thm-biased-risk"),
    "tokens": ("context_length", "E-prop-4.1"),
}
_MAX_LOG_COUNT = 2.0**20  # e to this power has half a million digits
_MAX_EXACT_COUNT = 2**53


def whole_exp(log_value: float) -> int:
    """⌊e^x⌉ as a Python integer, to 15 digits, for any x ≥ 0.

    >>> whole_exp(math.log(1000)), round(math.log(whole_exp(1e4)), 9)
    (1000, 10000.0)
    """
    if log_value < 40:
        return round(math.exp(log_value))
    bits = log_value / math.log(2)
    shift = int(bits) - 52
    return round(2.0 ** (bits - shift)) << shift


def smallest_count(
    excess: Callable[[int], float], least: int = 1, most: int | None = None
) -> int | None:
    """The smallest n from ``least`` to ``most`` at which the ``excess`` is not positive, if any.

    The excess falls up to there. Exact up to 2⁵³, to 12 digits of log n beyond.

    >>> smallest_count(lambda n: math.log(1e7) - 2 * math.log(n))
    3163
    """
    if excess(least) <= 0:
        return least
    largest = _MAX_LOG_COUNT if most is None else math.log(most)
    low, high = math.log(least), min(max(1.0, 2 * math.log(least)), largest)  # positive at e^low
    while excess(whole_exp(high)) > 0:
        if high >= largest:
            return None
        low, high = high, min(2 * high, largest)
    low, high = _neighborhood(excess, low, high)
    while high - low > 1e-12 * high and whole_exp(high) > _MAX_EXACT_COUNT:
        middle = (low + high) / 2
        low, high = (low, middle) if excess(whole_exp(middle)) <= 0 else (middle, high)
    first, last = max(least, whole_exp(low)), whole_exp(high)
    if last > _MAX_EXACT_COUNT:
        return last
    return first + bisect_left(range(first, last), True, key=lambda n: excess(n) <= 0)


def _neighborhood(excess: Callable[[int], float], low: float, high: float) -> tuple[float, float]:
    """A narrow part of (low, high), in log n, at whose ends the excess has the same signs."""
    found = scipy.optimize.root_scalar(
        lambda u: excess(whole_exp(u)), bracket=(low, high), method="brentq", xtol=1e-12
    )
    root = float(found.root)
    step = 1e-11
    while True:
        first, last = max(low, root - step), min(high, root + step)
        if excess(whole_exp(first)) > 0 >= excess(whole_exp(last)):
            return first, last
        step *= 64


def check_goal(solve: str | None, gap: float | None, constant: float | None = None) -> None:
    """Refuse a part of what `solve` needs."""
    if (solve is None) != (gap is None):
        raise InputError('`solve` and `gap` go together, for example solve="samples", gap=0.1.')
    if constant is not None and solve is None:
        raise InputError('`constant` needs `solve`, for example solve="samples", gap=0.1.')


def solve(
    bound: Any, count: str, gap: float, sample: Sample, constant: float | None = None
) -> BoundValue:
    """The smallest number of samples, heads or tokens at which ``bound`` is at most ``gap``.

    Args:
        bound: one that falls with this number: its `Bound.solves`.
        count: "samples", "heads" or "tokens".
        gap: the largest value that is wanted.
        sample: everything else.
        constant: multiplies a scaling quantity; only the user can know it.
    """
    _check_solvable(bound, count, constant)
    log_gap = math.log(as_positive(gap, "gap", "solve"))
    if bound.kind == "upper_bound" and bound.quantity in OF_THE_LOSS:
        sample.check_gap(gap, "solve", "Give `loss_bound` if the loss has another range.")
    factor = 1.0 if constant is None else as_positive(constant, "constant", "solve")

    @cache
    def excess(n: int) -> float:
        sized, there = bound.with_count(count, n, sample)
        found = sized.evaluate(there)
        if found.sign < 0:
            raise UnsupportedError(
                f"{bound.name} ({bound.form}) is negative at log n = {math.log(n):.3g}, so it "
                "cannot be inverted. Take the derived form."
            )
        return math.log(factor) + found.log_value - log_gap

    least, most = bound.count_limits(count, sample)
    found = smallest_count(excess, least, most)
    if found is None:
        left = excess(whole_exp(_MAX_LOG_COUNT) if most is None else most) + log_gap
        raise InputError(
            f"No number of {count} is large enough: {bound.name} stays at {format_exp(left)} or "
            f"above. {bound.solves[count]}"
        )
    reached = Term(f"{bound.quantity} at this size", log_value=excess(found) + log_gap)
    likely = f"with probability {1 - sample.delta:g}"
    notes = [f"Then the {bound.quantity} is {gap:g} at most, {likely}."]
    notes += [] if constant is None else ["As good as the constant that was given."]
    return bound.counted(found, count, *notes, terms=(reached,))


def _check_solvable(bound: Any, count: str, constant: float | None) -> None:
    """Refuse what does not fall with the count, and what has no constants or too many."""
    if count not in COUNTS:
        raise bad_argument("solve", "solve", "samples, heads or tokens", repr(count))
    if count not in bound.solves:
        others = f"Solve for {' or '.join(bound.solves)}, or take" if bound.solves else "Take"
        raise UnsupportedError(
            f"{bound.name} bounds the {bound.quantity}, which does not fall with the number of "
            f"{count}. {others} {COUNTS[count][1]}."
        )
    said = f"{bound.name} ({bound.form}) is"
    if bound.kind == "unproven":
        raise UnsupportedError(
            f"{said} unproven: an erratum breaks its proof, so it asks for no number of {count}. "
            "Take the derived form."
        )
    if bound.kind == "scaling" and constant is None:
        raise UnsupportedError(
            f"{said} a scaling quantity: its constants are unknown, so it asks for no definite "
            f"number of {count}. Give the `constant` yourself, or take an upper bound."
        )
    if bound.kind == "upper_bound" and constant is not None:
        raise UnsupportedError(
            f"{said} an upper bound, which has all its constants. Leave out `constant`: it "
            "multiplies a scaling quantity."
        )

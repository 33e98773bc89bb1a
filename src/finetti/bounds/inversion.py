"""How many samples a bound asks for: monotone root finding in log n."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from scipy import optimize

from finetti.bounds.sample import Sample
from finetti.bounds.value import OF_THE_LOSS, BoundValue, Term
from finetti.core.errors import InputError, UnsupportedError, bad_argument
from finetti.core.numbers import as_positive

_MAX_LOG_COUNT = 2.0**20  # e to this power has half a million digits
_MAX_EXACT_COUNT = 2**53
_FIELDS = {"samples": "n_samples", "heads": "n_heads", "tokens": "context_length"}


@dataclass(frozen=True)
class Goal:
    """A ``gap`` to reach with as few samples, heads or tokens as possible.

    A scaling quantity is multiplied by the ``constant``; only the user can know it.
    """

    gap: float
    count: Literal["samples", "heads", "tokens"] = "samples"
    constant: float | None = None

    def __post_init__(self) -> None:
        if self.count not in _FIELDS:
            raise bad_argument("solve", "Goal", "samples, heads or tokens", repr(self.count))

    @property
    def field(self) -> str:
        """The size that is found."""
        return _FIELDS[self.count]

    def needed(self, bound: Any, sample: Sample) -> BoundValue:
        """The smallest count for ``bound``; everything else is as in ``sample``."""
        if self.count == "tokens":
            _refuse_constant(bound, self.constant)
            return bound.tokens_needed(self.gap, sample)
        solve = bound.samples_needed if self.count == "samples" else bound.heads_needed
        return solve(self.gap, sample, self.constant)


def _refuse_constant(bound: Any, constant: float | None) -> None:
    """Refuse to make an upper bound smaller than what was proven."""
    if bound.kind == "upper_bound" and constant is not None:
        raise UnsupportedError(
            f"{bound.name} ({bound.form}) is an upper bound, which has all its constants. Leave "
            "out `constant`: it multiplies a scaling quantity."
        )


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
    small_enough: Callable[[int], bool],
    what: str,
    excess: Callable[[int], float] | None = None,
) -> int:
    """The smallest n ≥ 1 with ``small_enough(n)``, for a condition that stays true once it is.

    Exact up to 2⁵³, to 12 digits of log n beyond. ``excess``, which is positive exactly where the
    condition is false, finds the neighborhood in fewer steps.

    >>> smallest_count(lambda n: n * n >= 1e7, "n")
    3163
    """
    if small_enough(1):
        return 1
    low, high = 0.0, 1.0  # false at e^low, true at e^high
    while not small_enough(whole_exp(high)):
        low, high = high, 2 * high
        if high > _MAX_LOG_COUNT:
            raise InputError(f"No {what} is large enough. Ask for a larger `gap`, or lower norms.")
    if excess is not None:
        low, high = _neighborhood(excess, low, high)
    while high - low > 1e-12 * high and whole_exp(high) > _MAX_EXACT_COUNT:
        middle = (low + high) / 2
        low, high = (low, middle) if small_enough(whole_exp(middle)) else (middle, high)
    first, last = whole_exp(low), whole_exp(high)
    if last > _MAX_EXACT_COUNT:
        return last
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (first, middle) if small_enough(middle) else (middle, last)
    return last


def _neighborhood(excess: Callable[[int], float], low: float, high: float) -> tuple[float, float]:
    """A narrow part of (low, high), in log n, at whose ends the excess has the same signs."""
    found = optimize.root_scalar(
        lambda u: excess(whole_exp(u)), bracket=(low, high), method="brentq", xtol=1e-12
    )
    root = float(found.root)
    step = 1e-11
    while True:
        first, last = max(low, root - step), min(high, root + step)
        if excess(whole_exp(first)) > 0 >= excess(whole_exp(last)):
            return first, last
        step *= 64


def samples_needed(
    bound: Any, gap: float, sample: Sample, constant: float | None = None
) -> BoundValue:
    """The smallest n with bound(n) ≤ gap, as a value of the quantity "samples"; see `Goal`."""
    owner = "samples_needed"
    log_gap = math.log(as_positive(gap, "gap", owner))
    if bound.quantity not in OF_THE_LOSS:
        raise UnsupportedError(
            f"{bound.name} bounds a {bound.quantity}, which does not fall with the sample size. "
            f"Take a bound on a {', '.join(OF_THE_LOSS[:-1])}, or {OF_THE_LOSS[-1]}."
        )
    if bound.kind == "unproven":
        raise UnsupportedError(
            f"{bound.name} ({bound.form}) is unproven: an erratum breaks its proof, so it asks for "
            "no number of samples. Take the derived form."
        )
    if bound.kind == "scaling" and constant is None:
        raise UnsupportedError(
            f"{bound.name} ({bound.form}) is a scaling quantity: its constants are unknown, so it "
            "asks for no definite number of samples. Give the `constant` yourself, or take an "
            "upper bound."
        )
    _refuse_constant(bound, constant)
    if bound.kind == "upper_bound":
        sample.check_gap(gap, owner, "Give `loss_bound` if the loss has another range.")
    factor = 1.0 if constant is None else as_positive(constant, "constant", owner)
    log_constant = math.log(factor)

    @cache
    def excess(n: int) -> float:
        found = bound.evaluate(replace(sample, n_samples=n))
        if found.sign < 0:
            raise UnsupportedError(
                f"{bound.name} ({bound.form}) is negative at log n = {math.log(n):.3g}, so it "
                "cannot be inverted. Take the derived form."
            )
        return log_constant + found.log_value - log_gap

    n = smallest_count(lambda n: excess(n) <= 0, "number of samples", excess)
    reached = excess(n) + log_gap
    return bound.counted(
        n,
        "samples",
        f"Enough for a {bound.quantity} of {gap:g} with probability {1 - sample.delta:g}.",
        terms=(Term(f"{bound.quantity} at this size", log_value=reached),),
    )

"""What a verification found: errors, a counterexample, a bound on all inputs, or why not."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.core.numerics.extremes import largest_of

EXACT_RTOL = 1e-9  # largest error in float64, relative to the largest value
MAX_ROUNDING_RTOL = 1e-3  # what rounding may do at worst, relative to the smallest value
USABLE_RTOL = 1e-2  # largest error of a precision that can be used
MAX_ROUNDED_ERROR = 0.5  # what is nearer to a value of 0 or 1 than this is rounded to it


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input at which the network is wrong.

    Args:
        bits: the input, shape (T,).
        output: what the network says.
        value: what the rule says.
    """

    bits: NDArray[np.uint8]
    output: float
    value: float

    @property
    def ones(self) -> tuple[int, ...]:
        """Where the input is 1."""
        return tuple(map(int, np.flatnonzero(self.bits)))

    def __str__(self) -> str:
        ones = ", ".join(f"x{i}" for i in self.ones[:12])
        more = f" and {len(self.ones) - 12} more" if len(self.ones) > 12 else ""
        where = f"{ones}{more} = 1, the rest 0" if self.ones else "all bits 0"
        return f"at {where}: the network says {self.output:.6g}, the rule {self.value:.6g}"


@dataclass(frozen=True, eq=False, repr=False)
class Check:
    """What a verification ran and found.

    Args:
        method: what was run, in words.
        n_inputs: how many inputs.
        complete: whether these are all 2^T.
        error64: the largest error in float64, relative to the largest value of the rule; values lie
            within a factor of 10⁶, so that 1e-9 of the largest is a thousandth of the smallest.
        error32: the largest error in float32, relative to the value that the rule has there (where
            it is 0, to its smallest value that is not).
        counterexample: the worst input, if the network is wrong in float64.
        error_bound: the error on ALL 2^T inputs is at most this, however sums are
            taken; None where that was not computed, for the ``reason``.
        tolerance: what counts as exact, 1e-9 unless another was asked for, with what rounding makes
            of the sums.
        reason: why there is no proof, in half a sentence; empty if there is one.
        rounding: how far sums in another order may move a value at worst, relative to the smallest
            value of the rule; 0 where that is less than exact.
        binary: whether the rule has the values 0 and 1, so that the network's can be rounded.
    """

    method: str
    n_inputs: int
    complete: bool
    error64: float
    error32: float
    counterexample: Counterexample | None
    error_bound: float | None = None
    tolerance: float = EXACT_RTOL
    reason: str = ""
    rounding: float = 0.0
    binary: bool = False

    @property
    def exact(self) -> bool:
        """Whether no input was wrong."""
        return self.counterexample is None

    @property
    def proven(self) -> bool:
        """Whether the network is exact on all 2^T inputs: all were run, or the bound says so; and
        whether it stays so when its sums are taken in another order."""
        bound = self._largest_error
        bounded = bound is not None and bound <= self.tolerance
        return self.exact and bounded and self.rounding <= MAX_ROUNDING_RTOL

    @property
    def _largest_error(self) -> float | None:
        """On all inputs, if it is known: where all were run, what was seen."""
        return self.error64 if self.complete else self.error_bound

    @property
    def rounded(self) -> bool:
        """Whether the network computes the rule if its values are rounded at 1/2: proven on all
        inputs, however its sums are taken."""
        bound = self._largest_error
        return self.binary and bound is not None and bound + self.rounding < MAX_ROUNDED_ERROR

    @property
    def rounded_text(self) -> str:
        """The verdict on rounded values, in a sentence; empty if they cannot be rounded."""
        bound = self._largest_error
        if not self.binary or bound is None:
            return ""
        if self.rounded:
            error = f"error ≤ {format_bound(bound)} on all inputs"
            return f"Rounded at 1/2 it computes the rule: proven, {error}."
        return f"Rounded at 1/2 it is not proven either: error ≤ {format_bound(bound)} only."

    @property
    def usable32(self) -> bool:
        """Whether float32 gets every input right that was run, up to a hundredth; or errs no more
        than float64 does, which is not its fault."""
        return self.error32 <= largest_of(USABLE_RTOL, 2 * self.error64)

    def __repr__(self) -> str:
        verdict = "proven" if self.proven else "not proven" if self.exact else "wrong"
        return f"<Check: {verdict}; {self.method}; error {self.error64:.2g}>"

    @property
    def why_not(self) -> str:
        """Why the network is not proven, in half a sentence."""
        if self.rounding > MAX_ROUNDING_RTOL:
            return f"rounding alone may move its value by {self.rounding:.3g}"
        if self.complete:
            return f"its error is {self.error64:.3g}, and rounding may be the reason"
        if self.reason or self.error_bound is None:
            return self.reason or "no bound was computed"
        return f"the error is bounded by {format_bound(self.error_bound)} only"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        wrong = self.counterexample
        return {
            "method": self.method,
            "n_inputs": self.n_inputs,
            "complete": self.complete,
            "exact": self.exact,
            "proven": self.proven,
            "proven_rounded_at_half": self.rounded,
            "why_not_proven": None if self.proven or wrong is not None else self.why_not,
            "error_float64": finite_or_none(self.error64),
            "error_float32": finite_or_none(self.error32),
            "float32_usable": self.usable32,
            "error_bound": finite_or_none(self._largest_error),
            "tolerance": self.tolerance,
            "rounding": finite_or_none(self.rounding),
            "counterexample": None
            if wrong is None
            else {
                "ones": list(wrong.ones),
                "network": finite_or_none(wrong.output),
                "rule": wrong.value,
            },
        }


def format_bound(number: float | None, digits: int = 3) -> str:
    """An upper bound as text that is still one.

    >>> format_bound(0.0140059), format_bound(0.5), format_bound(7.2e-12)
    ('0.0141', '0.5', '7.2e-12')
    """
    assert number is not None
    text = f"{number:.{digits}g}"
    if float(text) >= number:
        return text
    unit = 10.0 ** (math.floor(math.log10(number)) - digits + 1)
    return f"{number + unit / 2:.{digits}g}"


def finite_or_none(number: float | None) -> float | None:
    """A number for JSON, which has no infinity."""
    return number if number is not None and np.isfinite(number) else None

"""Is a predictor right often enough? Decided exactly, with as few samples as it takes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

BLOCK = 1000  # samples that are scored at once
SUCCESS_ACCURACY = 0.99  # above which a rule counts as found, unless a trial says otherwise


@dataclass(frozen=True)
class ErrorCount:
    """Errors among the samples that were scored.

    >>> ErrorCount(errors=3, n_scored=100).accuracy
    0.97
    """

    errors: int
    n_scored: int

    @property
    def accuracy(self) -> float:
        """The share of the scored samples that were right."""
        return (self.n_scored - self.errors) / self.n_scored


def allowed_errors(n_samples: int, level: float) -> int:
    """The largest number of errors with (n_samples − errors)/n_samples > level; −1 if none is.

    >>> allowed_errors(10_000, 0.99), allowed_errors(10_000, 0.5), allowed_errors(10, 0.99)
    (99, 4999, 0)
    """
    return math.ceil(n_samples * (1 - Fraction(str(level)))) - 1


def score_until(errors_in: Callable[[int, int], int], n_samples: int, allowed: int) -> ErrorCount:
    """Score block after block until the errors are more than ``allowed``, or all is scored.

    The decision "at most ``allowed`` errors in all" is that of scoring everything.

    Args:
        errors_in: ``errors_in(start, stop)``, the number of errors in a range of samples.
        n_samples: all samples.
        allowed: scoring stops as soon as there are more errors than this.

    >>> score_until(lambda start, stop: (stop - start) // 8, 10_000, allowed=99)
    ErrorCount(errors=125, n_scored=1000)
    >>> score_until(lambda start, stop: 1, 10_000, allowed=99)
    ErrorCount(errors=10, n_scored=10000)
    """
    errors = stop = 0
    while stop < n_samples and errors <= allowed:
        start, stop = stop, min(stop + BLOCK, n_samples)
        errors += errors_in(start, stop)
    return ErrorCount(errors, stop)

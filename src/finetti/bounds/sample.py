"""What is known of the data: how many sequences, how long, how large, and how they are judged."""

import math
from dataclasses import fields

from finetti.bounds.value import log_of
from finetti.core.arguments import as_norm, as_positive, as_whole
from finetti.core.checked_fields import Checked, checked, real
from finetti.core.errors import bad_argument


class Sample(Checked):
    """The sample that a bound is evaluated at.

    Sizes are Python integers of any size, so that the answer of `samples_needed` fits whatever it
    is; formulas use ``log_samples`` and ``log_context``.

    Args:
        n_samples: m (paper S) or n (papers E and R), how many independent sequences.
        context_length: T (S) or L (E), how many tokens each of them has, without [CLS].
        input_norm: B_X, the length of the longest token.
        loss_lipschitz: the loss moves at most this much per unit of the prediction.
        loss_bound: b, the loss lies in an interval of this length; ``math.inf`` if it has none.
        delta: δ, the probability with which a bound may fail.

    >>> sample = Sample(n_samples=1000, context_length=50)
    >>> sample.loss_bound, round(sample.log_samples, 6)
    (1.0, 6.907755)
    >>> Sample(n_samples=10**5000, context_length=7)
    Sample(n_samples=10**5000, context_length=7, input_norm=1.0, loss_lipschitz=1.0, loss_bound=1.0, delta=0.05)
    >>> Sample(n_samples=0, context_length=50)
    Traceback (most recent call last):
        ...
    finetti.core.errors.InputError: The `n_samples` argument of Sample must be a whole number ≥ 1. Got 0 instead.
    """  # noqa: E501

    n_samples: int = checked(as_whole)
    context_length: int = checked(as_whole)
    input_norm: float = checked(as_norm, 1.0)
    loss_lipschitz: float = checked(as_norm, 1.0)
    loss_bound: float = checked(real("a number > 0 or inf", lambda x: x > 0), 1.0)
    delta: float = checked(real("a probability in (0, 1)", lambda x: 0 < x < 1), 0.05)

    def __repr__(self) -> str:
        # Python refuses to write integers of more than 4300 digits.
        shown = {
            each.name: value if (value := getattr(self, each.name)) < 1e18 else _rounded(value)
            for each in fields(self)
        }
        return f"Sample({', '.join(f'{name}={value}' for name, value in shown.items())})"

    @property
    def log_samples(self) -> float:
        """log m."""
        return log_of(self.n_samples)

    @property
    def log_context(self) -> float:
        """log T."""
        return log_of(self.context_length)

    def check_gap(self, gap: float, owner: str, advice: str = "") -> float:
        """A gap that says something: positive, and below the range of the loss if it has one.

        >>> Sample(100, 10, loss_bound=4.0).check_gap(2, "samples_needed")
        2.0
        """
        number = as_positive(gap, "gap", owner)
        if number >= self.loss_bound:
            wanted = f"below {self.loss_bound:g}, the range of the loss, which no gap exceeds"
            raise bad_argument("gap", owner, wanted, f"{number:g}", advice)
        return number

    @property
    def bounded_loss(self) -> bool:
        """Whether the loss is bounded at all."""
        return math.isfinite(self.loss_bound)


def _rounded(value: float) -> str:
    return "inf" if value == math.inf else f"10**{log_of(value) / math.log(10):.6g}"

"""What is known of the data: how many sequences, how long, how large, and how they are judged."""

import math
from dataclasses import dataclass, fields

from finetti.bounds.checks import log_of
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_norm, as_positive, as_real, as_whole


@dataclass(frozen=True)
class Sample:
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

    n_samples: int
    context_length: int
    input_norm: float = 1.0
    loss_lipschitz: float = 1.0
    loss_bound: float = 1.0
    delta: float = 0.05

    def __post_init__(self) -> None:
        owner = "Sample"
        checked = {
            "n_samples": as_whole(self.n_samples, "n_samples", owner),
            "context_length": as_whole(self.context_length, "context_length", owner),
            "input_norm": as_norm(self.input_norm, "input_norm", owner),
            "loss_lipschitz": as_norm(self.loss_lipschitz, "loss_lipschitz", owner),
            "delta": as_positive(self.delta, "delta", owner),
            "loss_bound": as_real(self.loss_bound, "loss_bound", owner, "a number > 0 or inf"),
        }
        if not checked["loss_bound"] > 0:
            raise bad_argument("loss_bound", owner, "a number > 0 or inf", self.loss_bound)
        if checked["delta"] >= 1:
            raise bad_argument("delta", owner, "a probability in (0, 1)", self.delta)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

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

    @property
    def bounded_loss(self) -> bool:
        """Whether the loss is bounded at all."""
        return math.isfinite(self.loss_bound)


def _rounded(value: float) -> str:
    return "inf" if value == math.inf else f"10**{log_of(value) / math.log(10):.6g}"

"""What every certificate is: a bound on the risk of one predictor, which pays for its length.

Losses ℓ_1, …, ℓ_n in [0, b] of one predictor on a sequence; R̂ is their mean, and the risk R̄ the
mean of E[ℓ_i | past]: for independent data the expected loss of a new example. A predictor fixed
before the data costs nothing; one found by looking at them pays for the L nats that describe it.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.value import Sample, log_of
from finetti.core.arguments import as_real, as_whole
from finetti.core.errors import InputError, bad_argument

FIXED_CODE = "the code that describes the predictor was fixed before the data were seen"
ON_A_SEQUENCE = "the losses are those of one predictor; each may depend on those before it"
INDEPENDENT = "the losses are independent and of one distribution"


def description_nats(bits: int, choices: int = 1) -> float:
    """L = C ln 2 + ln C + ln(C + 1) + ln K of a predictor written in C bits, one of K free choices.

    The weights e^−L of all files of all lengths C ≥ 1 and all choices add up to at most 1. With no
    bits the predictor was fixed before the data were seen, up to the choices.

    Args:
        bits: C, the length of the file, compressed or not.
        choices: K, how many quantizers, compressors, smoothings, … were there to choose from.

    >>> round(description_nats(800), 9), description_nats(0)
    (567.888217123, 0.0)
    """
    bits = as_whole(bits, "bits", "description_nats", least=0)
    choices = as_whole(choices, "choices", "description_nats")
    length = bits * math.log(2) + math.log(bits) + math.log(bits + 1) if bits else 0.0
    return length + math.log(choices)


def smoothed_loss_range(smoothing: float, vocabulary: int) -> tuple[float, float]:
    """(least, b): log losses of (1 − a)p + a/V lie in [least, least + b].

    b = ln(1 + (1 − a)V/a) and least = −ln((1 − a) + a/V), which is what smoothing costs at most.

    Args:
        smoothing: a, the weight of the uniform law, in (0, 1).
        vocabulary: V, the number of symbols.

    >>> least, width = smoothed_loss_range(0.1, 49152)
    >>> round(least / math.log(2), 4), round(width, 4)
    (0.152, 12.9999)
    """
    owner = "smoothed_loss_range"
    rate = as_real(smoothing, "smoothing", owner, "a number in (0, 1)")
    if not 0 < rate < 1:
        raise bad_argument("smoothing", owner, "a number in (0, 1)", smoothing)
    symbols = as_whole(vocabulary, "vocabulary", owner, least=2)
    least = -math.log1p(-rate * (1 - 1 / symbols))
    return least, math.log1p((1 - rate) * symbols / rate)


def _not_negative(value: Any, name: str, owner: str) -> int:
    return as_whole(value, name, owner, least=0)


class RiskCertificate(Bound, kw_only=True):
    """Abstract: a bound for all predictors at once, each with the nats that describe it.

    Args:
        bits: C, the length of the predictor's file; 0 for one that was fixed before the data.
        choices: K, how many free choices were made beside.
    """

    quantity = "risk"
    needs_bounded_loss = True
    assumes = (ON_A_SEQUENCE, FIXED_CODE)
    solves: ClassVar = {"samples": "Take fewer bits, a lower loss, or a larger `gap`."}

    bits: int = fields.setting(0, _not_negative)
    choices: int = fields.setting(1, as_whole)

    def log_odds(self, sample: Sample, delta: float | None = None) -> float:
        """log(L + ln(1/δ)): what the description and the confidence cost together, in nats."""
        chance = sample.delta if delta is None else delta
        return log_of(description_nats(self.bits, self.choices) - math.log(chance))

    def most_bits(self, gap: float, sample: Sample) -> int:
        """The largest number of bits at which the bound is at most ``gap``; −1 if there is none.

        >>> from finetti.bounds.certificates import AzumaGap
        >>> AzumaGap().most_bits(0.1, Sample(10**6, 1))
        28819
        """
        sample.check_gap(gap, f"{type(self).__name__}.most_bits")
        goal = math.log(gap)

        def holds(bits: int) -> bool:
            return replace(self, bits=bits).evaluate(sample).log_value <= goal

        if not holds(0):
            return -1
        most = 1
        while holds(most):
            most *= 2
        least = most // 2
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if holds(middle) else (least, middle)
        return least


def needed_loss(bound: RiskCertificate, sample: Sample, name: str, value: float | None) -> float:
    """A measured loss of a certificate, which has to be given and in the range of the loss."""
    if value is None:
        raise InputError(
            f"{bound.name} is about measured losses. Give `{name}`, or take F-certificate-azuma, "
            "the gap alone."
        )
    if value > sample.loss_bound:
        wanted = f"at most {sample.loss_bound:g}, the range of the loss"
        raise bad_argument(name, bound.name, wanted, f"{value:g}")
    return value

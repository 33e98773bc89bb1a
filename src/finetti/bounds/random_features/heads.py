"""What the risks of random heads share: the rate in samples and heads, and its inversion."""

import abc
import math
from dataclasses import replace
from typing import Any

from scipy import optimize

from finetti.bounds.base import Bound
from finetti.bounds.inversion import smallest_count, whole_exp
from finetti.bounds.random_features.norms import ASSUMED_OF_RANDOM_HEADS
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, log_of, text_of
from finetti.core.errors import InputError, UnsupportedError
from finetti.core.logspace import log_add
from finetti.core.numbers import as_positive

LOSS = "the loss is 1-Lipschitz in the prediction with ℓ(0, y) ≤ 1"
STATED_THEOREM = (
    "The theorem is stated from knowledge of fu2023: its O~ form is surer than its logarithms."
)


def log_rates(dimension: int, n_heads: int, sample: Sample) -> tuple[float, float]:
    """log √((log(dM)log(nNM) + log(1/δ))/n) and log √((d² + log M)/(δM))             fu2023

    What the norm √B is multiplied by: the samples' part and the heads' part.

    >>> samples, heads = log_rates(4, 10_000, Sample(10_000, 16))
    >>> round(math.exp(2 * heads), 6)                       # (16 + log 10⁴)/500
    0.050421
    """
    log_heads = math.log(n_heads)
    logs = (math.log(dimension) + log_heads) * (sample.log_samples + sample.log_context + log_heads)
    samples = math.log(logs - math.log(sample.delta)) - sample.log_samples
    heads = float(log_add(2 * math.log(dimension), log_of(log_heads)))
    return samples / 2, (heads - math.log(sample.delta) - log_heads) / 2


def _log_least_heads(delta: float) -> float:
    """log of the smallest M > 1/δ, for any δ."""
    return math.log(math.floor(1 / delta) + 1) if delta > 1e-9 else 1e-9 - math.log(delta)


class HeadsBound(Bound):
    """A risk with M heads: falls with n until the heads' part is left, and with M likewise."""

    quantity = "excess risk"
    derived_kind = "scaling"
    assumes = (*ASSUMED_OF_RANDOM_HEADS, LOSS)

    @abc.abstractmethod
    def with_heads(self, n_heads: int) -> "HeadsBound":
        """The same with another number of heads."""

    @property
    @abc.abstractmethod
    def sizes(self) -> tuple[int, int]:
        """d and M."""

    def check(self, sample: Sample) -> None:
        """Refuse M ≤ 1/δ and n ≤ log(dM), where the theorem says nothing."""
        dimension, n_heads = self.sizes
        if math.log(n_heads) + math.log(sample.delta) <= 1e-12:
            raise InputError(
                f"{self.name} assumes H > 1/δ = {text_of(-math.log(sample.delta))} heads. Got "
                f"{n_heads}. Take more heads or a larger δ."
            )
        if sample.n_samples <= math.log(dimension * n_heads):
            raise InputError(
                f"{self.name} assumes n > log(dH) = {math.log(dimension * n_heads):.3g} samples. "
                f"Got {sample.n_samples}."
            )

    def _samples_needed(self, gap: float, sample: Sample, constant: float | None) -> BoundValue:
        log_gap = self._log_target(gap, constant)
        dimension, n_heads = self.sizes
        least = max(1, math.floor(math.log(dimension * n_heads)) + 1)

        def log_value(n: int) -> float:
            return self.evaluate(replace(sample, n_samples=n)).log_value

        floor = log_value(10**250)
        if floor > log_gap:
            raise InputError(
                f"With {text_of(math.log(n_heads))} heads the bound stays above "
                f"{text_of(floor - log_gap + math.log(gap))} "
                "for any number of samples. Take more heads, or a larger gap."
            )
        n = smallest_count(lambda n: n >= least and log_value(n) <= log_gap, "number of samples")
        return self._found(n, "samples", gap, sample)

    def _heads_needed(self, gap: float, sample: Sample, constant: float | None) -> BoundValue:
        """The smallest M at which ``constant`` times the bound is at most ``gap``.

        More heads cost a logarithm in the samples' part, so there is a best M; if the bound is too
        large even there, more samples are needed, and the error says so.
        """
        log_gap = self._log_target(gap, constant)
        dimension, _ = self.sizes
        low = _log_least_heads(sample.delta)

        def log_value(n_heads: int) -> float:
            return self.with_heads(n_heads).evaluate(sample).log_value

        # Beyond, n ≤ log(dM); and e^600 times the least is enough for anybody.
        high = min(min(sample.n_samples, 10**6) - math.log(dimension), low + 600.0) - 1e-6
        if high <= low:
            raise InputError(
                f"{self.name} assumes n > log(dH) samples, and {sample.n_samples} are not for "
                "any H > 1/δ. Take more samples."
            )
        best: Any = optimize.minimize_scalar(
            lambda log_heads: log_value(whole_exp(log_heads)), bounds=(low, high), method="bounded"
        )
        if best.fun > log_gap:
            raise InputError(
                f"Even with the best number of heads the bound is "
                f"{text_of(best.fun - log_gap + math.log(gap))}. Take more samples, or a larger "
                "gap."
            )
        ceiling, least = whole_exp(best.x), whole_exp(low)
        m = smallest_count(
            lambda m: m >= ceiling or (m >= least and log_value(m) <= log_gap), "number of heads"
        )
        return self.with_heads(m)._found(m, "heads", gap, sample)

    def _log_target(self, gap: float, constant: float | None) -> float:
        if constant is None:
            raise UnsupportedError(
                f"{self.name} is a scaling quantity: its constant is unknown, so it asks for no "
                "definite number. Give the `constant` that multiplies it yourself."
            )
        gap = as_positive(gap, "gap", "HeadsBound")
        return math.log(gap) - math.log(as_positive(constant, "constant", "HeadsBound"))

    def _found(self, count: int, quantity: str, gap: float, sample: Sample) -> BoundValue:
        note = f"Enough for an excess risk of {gap:g} with probability {1 - sample.delta:g}."
        return self.counted(count, quantity, note, "As good as the constant that was given.")

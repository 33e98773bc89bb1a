"""The excess risk of random-feature attention with M heads and n samples, and its inversion."""

import abc
import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.count_solver import whole_exp
from finetti.bounds.description import BoundSettings
from finetti.bounds.random_features.correlation_targets import MAX_SERIES_TERMS, CorrelationTarget
from finetti.bounds.random_features.polynomial_targets import Target
from finetti.bounds.random_features.target_norms import (
    ASSUMED_OF_RANDOM_HEADS,
    BIASED_HEADS,
    attention_terms,
)
from finetti.bounds.value import BoundValue, Sample, Term, format_exp, log_of, summed
from finetti.core.arguments import Form, as_positive
from finetti.core.errors import InputError, bad_argument
from finetti.core.numerics.logspace import log_sum

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
    heads = float(np.logaddexp(2 * math.log(dimension), log_of(log_heads)))
    return samples / 2, (heads - math.log(sample.delta) - log_heads) / 2


def _log_least_heads(delta: float) -> float:
    """log of the smallest M > 1/δ, for any δ."""
    return math.log(math.floor(1 / delta) + 1) if delta > 1e-9 else 1e-9 - math.log(delta)


class HeadsBound(Bound):
    """A risk with M heads: falls with n until the heads' part is left, and with M likewise."""

    quantity = "excess risk"
    derived_kind = "scaling"
    assumes = (*ASSUMED_OF_RANDOM_HEADS, LOSS)
    solves: ClassVar = {
        "samples": "Take more heads, or a larger `gap`.",
        "heads": "Take more samples, or a larger `gap`.",
    }

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
                f"{self.name} assumes H > 1/δ = {format_exp(-math.log(sample.delta))} heads. Got "
                f"{n_heads}. Take more heads or a larger δ."
            )
        if sample.n_samples <= math.log(dimension * n_heads):
            raise InputError(
                f"{self.name} assumes n > log(dH) = {math.log(dimension * n_heads):.3g} samples. "
                f"Got {sample.n_samples}."
            )

    def with_count(self, count: str, n: int, sample: Sample) -> tuple[Bound, Sample]:
        """The bound with n heads, or the sample with n sequences."""
        if count == "heads":
            return self.with_heads(n), sample
        return super().with_count(count, n, sample)

    def count_limits(self, count: str, sample: Sample) -> tuple[int, int | None]:
        """From where the theorem holds: n > log(dM), or M > 1/δ up to the best M.

        More heads cost a logarithm in the samples' part, so there is a best M.
        """
        dimension, n_heads = self.sizes
        if count == "samples":
            return max(1, math.floor(math.log(dimension * n_heads)) + 1), None
        low = _log_least_heads(sample.delta)
        # Beyond, n ≤ log(dM); and e^600 times the least is enough for anybody.
        high = min(min(sample.n_samples, 10**6) - math.log(dimension), low + 600.0) - 1e-6
        if high <= low:
            raise InputError(
                f"{self.name} assumes n > log(dH) samples, and {sample.n_samples} are not for "
                "any H > 1/δ. Take more samples."
            )
        best: Any = scipy.optimize.minimize_scalar(
            lambda log_heads: self.with_heads(whole_exp(log_heads)).evaluate(sample).log_value,
            bounds=(low, high),
            method="bounded",
        )
        return whole_exp(low), whole_exp(best.x)


def _read_target(settings: BoundSettings, name: str, bound: Any) -> Target | None:
    given = {*settings.norms} & {*Target.norm_names()}
    if settings.value("squared_norm", None) is None:
        return Target.from_settings(settings)
    if given:
        raise bad_argument("squared_norm", "the norms", f"left out beside `{min(given)}`", "both")
    return None


class RandomFeatureClass(fields.Description):
    """Attention with M random heads on tokens of dimension d, and how large its target is.

    That is a ``target`` f*, or its ``squared_norm`` B, where it is known as a number.

    >>> features = RandomFeatureClass(16, 1000, Target.key_power(2))
    >>> round(math.exp(features.log_norm("derived")), 2)
    12.87
    """

    dimension: int = fields.size("width")
    n_heads: int = fields.size("n_heads")
    target: Target | None = fields.setting(None, read=_read_target, names=Target.norm_names())
    squared_norm: float | None = fields.norm(None, as_positive)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.target is None) == (self.squared_norm is None):
            raise InputError("RandomFeatureClass takes either a target or a squared_norm.")

    def log_norm(self, form: Form) -> float:
        """log B: derived or as printed for the target, or as given."""
        if self.target is not None:
            return attention_terms(self.target, form)[0]
        assert self.squared_norm is not None  # __post_init__ refused it
        return math.log(self.squared_norm)

    @classmethod
    def from_arrays(cls, values: Any) -> "RandomFeatureClass":
        """The class of trained ReLU heads of mean zero: B = M Σ_m ‖v_m‖², since v_m = v(W_m)/M.

        Args:
            values: the v_m, (M, d+1) or (M, d+1, d_out), as `RandomFeatureAttention.values`.

        >>> RandomFeatureClass.from_arrays(np.ones((2, 5))).squared_norm           # 2·10
        20.0
        """
        array = np.asarray(values, dtype=np.float64)
        owner = "RandomFeatureClass.from_arrays"
        if array.ndim not in (2, 3):
            wanted = "an array (M, d + 1) or (M, d + 1, d_out)"
            raise bad_argument("values", owner, wanted, f"shape {array.shape}")
        if not array.any():
            raise InputError(
                "All values are zero, as they are before training, and a class of norm 0 holds "
                "nothing else. Train first, or give `squared_norm` or a target."
            )
        n_heads, width = array.shape[:2]
        return cls(width - 1, n_heads, squared_norm=float(n_heads * np.sum(array**2)))


class RandomFeatureRisk(HeadsBound):
    """L(f̂) − L(f*) ≲ √B(f*) [√((log(dM)log(nNM) + log(1/δ))/n) + √((d² + log M)/(δM))]

    For the empirical risk minimizer over Σ‖v_m‖ ≤ C√B, Σ‖v_m‖² ≤ CB/(δM), with M > 1/δ and
    n > log(dM). Printed: B with the stated C_k; derived: with the sharp 1/κ_rs.

    >>> bound = RandomFeatureRisk(RandomFeatureClass(4, 10_000, squared_norm=4.0))
    >>> value = bound.evaluate(Sample(10_000, 16))
    >>> [term.name for term in value.terms], round(math.exp(value.terms[1].log_value), 6)
    (['samples', 'heads'], 0.449091)
    """

    name = "R-thm-risk"
    title = "excess risk of random-feature attention"
    statement = (
        "risk(f̂) − risk(f*) ≲ √B_RFA·[√((log(d·H)·log(n·T·H) + log(1/δ))/n) + √((d² + log H)/(δH))]"
    )
    citation = "excess-risk theorem, fu2023"
    printed_kind = "scaling"

    features: RandomFeatureClass = fields.part(RandomFeatureClass)

    @property
    def sizes(self) -> tuple[int, int]:
        """d and M."""
        return self.features.dimension, self.features.n_heads

    def with_heads(self, n_heads: int) -> "RandomFeatureRisk":
        """The same with another number of heads."""
        return replace(self, features=replace(self.features, n_heads=n_heads))

    def _evaluate(self, sample: Sample) -> BoundValue:
        samples, heads = log_rates(*self.sizes, sample)
        root = self.features.log_norm(self.form) / 2 + log_of(sample.loss_lipschitz)
        terms = Term("samples", log_value=root + samples), Term("heads", log_value=root + heads)
        return self.value(sample, *summed(terms), notes=(STATED_THEOREM,))


class BiasedRisk(HeadsBound):
    """inf_L √B(f*, L) [as in `RandomFeatureRisk`] + ε_L‖F‖_∞‖β‖, L ≤ 60

    B(f*, L) is the derived, d-free norm of `BiasedNorm` for f*, a function of correlations.

    >>> bound = BiasedRisk(4, 10_000, CorrelationTarget((0.0, 1.0)))
    >>> value = bound.evaluate(Sample(10**6, 16))
    >>> [term.name for term in value.terms]
    ['samples', 'heads', 'truncation']
    """

    name = "R-thm-biased-risk"
    title = "excess risk of biased random-feature attention"
    statement = (
        "risk(f̂) − risk(f*) ≲ √B_BRFA·[samples + heads] + ε_J‖F‖_∞ for the best J, "
        "free of d but for heads"
    )
    citation = "theorem on biased attention, fu2023"
    assumes = (*HeadsBound.assumes, BIASED_HEADS)

    dimension: int = fields.size("width")
    n_heads: int = fields.size("n_heads")
    target: CorrelationTarget = fields.part(CorrelationTarget)

    @property
    def sizes(self) -> tuple[int, int]:
        """d and M."""
        return self.dimension, self.n_heads

    def with_heads(self, n_heads: int) -> "BiasedRisk":
        """The same with another number of heads."""
        return replace(self, n_heads=n_heads)

    def _evaluate(self, sample: Sample) -> BoundValue:
        rates = log_rates(*self.sizes, sample)
        slope = log_of(sample.loss_lipschitz)
        found = []
        for terms in range(1, MAX_SERIES_TERMS + 1):
            root = slope + self.target.log_norm(terms) / 2
            truncation = slope + log_of(self.target.error(terms))
            parts = root + rates[0], root + rates[1], truncation
            found.append((float(log_sum(parts)), terms, parts))
        _, terms, logs = min(found)
        named = zip(("samples", "heads", "truncation"), logs, strict=True)
        parts = summed(Term(name, log_value=log) for name, log in named)
        notes = (f"The best number of terms is {terms}.", STATED_THEOREM)
        return self.value(sample, *parts, notes=notes)

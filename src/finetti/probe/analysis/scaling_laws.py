"""Scaling laws of critical sample sizes: m = a + b·log T and m = c·T^α, compared."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy

from finetti.core.errors import bad_argument
from finetti.core.plain_data import field_values, to_plain
from finetti.core.statistics.intervals import Interval, percentile_interval
from finetti.display import Card, Displayable, Table, format_interval, format_number
from finetti.probe.analysis.critical_size import CriticalSize
from finetti.probe.analysis.curve_fits import Floats

LawName = Literal["logarithmic", "power"]
FORMULAS: dict[LawName, str] = {"logarithmic": "m = a + b·log T", "power": "m = c·T^α"}
PARAMETERS: dict[LawName, tuple[str, str]] = {"logarithmic": ("a", "b"), "power": ("c", "α")}
LEAST_ERROR = 1e-3  # of log m
BAD_FIT = 0.01
ITERATIONS = 60


@dataclass(frozen=True)
class ScalingLaw(Displayable):
    """One law, fitted by weighted least squares of log m; errors from the resampled trials."""

    name: LawName
    parameters: tuple[float, float]
    chi_square: float
    aic: float
    fit_p_value: float | None  # of the law itself; None with two points, which it always meets
    replicates: Floats = field(repr=False, compare=False)  # (R, 2)

    def interval(self, confidence: float = 0.95) -> tuple[Interval, Interval]:
        """Return the intervals of both parameters: percentiles over the resamples."""
        first, second = (percentile_interval(self.replicates[:, i], confidence) for i in (0, 1))
        return first, second

    def predict(self, context_length: float, confidence: float = 0.95) -> tuple[float, Interval]:
        """The critical size at any T, and its interval if the law is true there."""
        if not context_length >= 1:
            raise bad_argument("context_length", "predict", "at least 1", context_length)
        value = float(law_values(self.name, np.array([self.parameters]), context_length)[0])
        drawn = law_values(self.name, self.replicates, context_length)
        return value, percentile_interval(drawn, confidence)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return to_plain({**field_values(self), "intervals": self.interval()})

    def __card__(self) -> Card:
        rows = zip(PARAMETERS[self.name], self.parameters, self.interval(), strict=True)
        fields = [(n, format_interval(v, (i.low, i.high))) for n, v, i in rows]
        fields += [("AIC", format_number(self.aic)), ("p-value", self.fit_p_value)]
        return Card(FORMULAS[self.name], tuple(fields))


@dataclass(frozen=True)
class HeldOut:
    """The largest T, predicted by a law that was fitted without it."""

    context_length: int
    observed: float
    predicted: float
    interval: Interval  # of what would be observed: of the law and of the observation


@dataclass(frozen=True)
class ScalingLaws(Displayable):
    """Both laws on the same critical sizes.

    Args:
        points: T → critical size, those that are used.
        laws: the two fits.
        held_out: per law; empty with fewer than three points.
        excluded: T → why it is not used.
    """

    points: Mapping[int, float]
    laws: Mapping[LawName, ScalingLaw]
    held_out: Mapping[LawName, HeldOut]
    excluded: Mapping[int, str]

    @property
    def preferred(self) -> LawName | None:
        """The law of lower AIC; None without a third point, which could tell them apart."""
        if len(self.points) < 3:
            return None
        return min(self.laws, key=lambda name: self.laws[name].aic)

    @property
    def aic_weights(self) -> dict[LawName, float]:
        """Akaike's weights e^(−AIC/2), normalized."""
        aic = np.array([law.aic for law in self.laws.values()])
        weight = np.exp(-(aic - aic.min()) / 2) if len(aic) else aic
        return {name: float(w / weight.sum()) for name, w in zip(self.laws, weight, strict=True)}

    def predict(
        self, context_length: float, confidence: float = 0.95
    ) -> dict[LawName, tuple[float, Interval]]:
        """The critical size at any T by each law."""
        return {n: law.predict(context_length, confidence) for n, law in self.laws.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """Return warnings and remarks for the reader."""
        notes = []
        for length, why in self.excluded.items():
            said = [f"{FORMULAS[n]} gives {v:.0f}" for n, (v, _) in self.predict(length).items()]
            notes.append(f"T = {length} is left out: {'; '.join([why, *said])}.")
        if not self.laws:
            notes.append("A law needs critical sizes at two context lengths or more.")
        elif len(self.points) == 2:
            notes.append("Two points: every law meets them, and nothing tells the laws apart.")
        bad = [
            law.fit_p_value is not None and law.fit_p_value < BAD_FIT for law in self.laws.values()
        ]
        if bad and all(bad):
            notes.append("Neither law fits: intervals of extrapolations are too narrow.")
        return tuple(notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return to_plain(field_values(self, "preferred", "aic_weights", "notes"))

    def __card__(self) -> Card:
        rows = []
        for name, law in self.laws.items():
            values = zip(PARAMETERS[name], law.parameters, law.interval(), strict=True)
            told = ", ".join(f"{p} = {format_interval(v, (i.low, i.high))}" for p, v, i in values)
            out = self.held_out.get(name)
            guess = out and format_interval(out.predicted, (out.interval.low, out.interval.high))
            weight = f"{self.aic_weights[name]:.2f}"
            rows.append((FORMULAS[name], told, law.aic, weight, law.fit_p_value, guess))
        out = next(iter(self.held_out.values()), None)
        last = f"T = {out.context_length}: {format_number(out.observed)}" if out else "held-out T"
        columns = ("law", "parameters", "AIC", "weight", "p of the fit", last)
        tables = (Table("Scaling laws", columns, tuple(rows)),) if rows else ()
        return Card("Critical sample size against T", (), tables, self.notes)


def fit_laws(critical: Mapping[int, CriticalSize]) -> ScalingLaws:
    """Both laws through critical sizes, weighted by their errors.

    ``minimize Σ_T (log m̂_T − log m(T))²/σ_T²``, with σ_T the spread of log m̂_T over the resamples,
    so that both laws have the same likelihood. Resample by resample the laws are fitted again: the
    intervals carry the error of the trials through curves and critical sizes.

    Args:
        critical: T → critical size. Censored ones are left out, and said.
    """
    used = {length: critical[length] for length in sorted(critical) if critical[length].value}
    excluded = {
        length: each.reason for length, each in sorted(critical.items()) if each.value is None
    }
    points = {length: float(each.value or 0) for length, each in used.items()}
    if len(points) < 2:
        return ScalingLaws(points, {}, {}, excluded)
    lengths = np.array(list(points), np.float64)
    log_m = np.log(list(points.values()))
    replicates = np.stack([each.log_replicates for each in used.values()], axis=1)
    low, high = np.quantile(replicates, [0.15865, 0.84135], axis=0)
    error = np.maximum((high - low) / 2, LEAST_ERROR)  # not moved by a few that are far away
    names: tuple[LawName, ...] = ("logarithmic", "power")
    laws: dict[LawName, ScalingLaw] = {
        name: _law(name, lengths, log_m, replicates, error) for name in names
    }
    held: dict[LawName, HeldOut] = {}
    if len(points) > 2:
        for name in names:
            law = _law(name, lengths[:-1], log_m[:-1], replicates[:, :-1], error[:-1])
            held[name] = _held_out(law, int(lengths[-1]), log_m[-1], error[-1])
    return ScalingLaws(points, laws, held, excluded)


def law_values(name: LawName, parameters: Floats, context_length: float) -> Floats:
    """m(T) of each row of parameters."""
    first, second = parameters.T
    log_length = math.log(context_length)
    return (
        first + second * log_length
        if name == "logarithmic"
        else first * np.exp(second * log_length)
    )


def _law(
    name: LawName, lengths: Floats, log_m: Floats, replicates: Floats, error: Floats
) -> ScalingLaw:
    found = fit_law(name, lengths, np.concatenate([log_m[None], replicates]), error)
    value = np.array([law_values(name, found[:1], length)[0] for length in lengths])
    chi_square = float((((log_m - np.log(value)) / error) ** 2).sum())
    freedom = len(lengths) - 2
    return ScalingLaw(
        name,
        (float(found[0, 0]), float(found[0, 1])),
        chi_square,
        chi_square + float(np.log(2 * np.pi * error**2).sum()) + 4,
        float(scipy.stats.chi2.sf(chi_square, freedom)) if freedom else None,
        found[1:],
    )


def _held_out(law: ScalingLaw, length: int, log_m: float, error: float) -> HeldOut:
    predicted, interval = law.predict(length)
    # Of the sum of two independent errors: their reaches add up as squares.
    center = math.log(max(predicted, 1.0))
    noise = scipy.stats.norm.ppf((1 + interval.confidence) / 2) * error
    down = math.hypot(center - math.log(max(interval.low, 1.0)), noise)
    up = math.hypot(math.log(max(interval.high, 1.0)) - center, noise)
    ends = Interval(
        math.exp(center - down), math.exp(center + up), interval.confidence, "bootstrap"
    )
    return HeldOut(length, math.exp(log_m), predicted, ends)


def fit_law(name: LawName, lengths: Floats, log_m: Floats, error: Floats) -> Floats:
    """Weighted least squares of log m, for all rows of ``log_m`` at once: (R, J) → (R, 2)."""
    weight = 1 / error**2
    weight = weight / weight.sum()
    center = weight @ np.log(lengths)
    t = np.log(lengths) - center
    if name == "power":
        slope = (log_m * (weight * t)).sum(1) / (weight @ t**2)
        return np.stack([np.exp(log_m @ weight - slope * center), slope], axis=1)
    middle, slope = _positive_line(t, log_m, weight)
    return np.stack([middle - slope * center, slope], axis=1)


def _positive_line(t: Floats, log_m: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """minimize Σ w (log m − log(A + B t))² by damped Gauss–Newton; A + B t stays positive."""
    middle = np.exp(log_m @ weight)
    point = np.stack([middle, np.zeros_like(middle)], axis=1)
    design = np.stack([np.ones_like(t), t], axis=1)  # (J, 2)

    def loss(at: Floats) -> Floats:
        line = at @ design.T
        log_line = np.log(np.maximum(line, 1e-300))
        return np.where((line > 0).all(1), ((log_m - log_line) ** 2) @ weight, np.inf)

    value, damping = loss(point), np.full(len(point), 1e-6)
    for _ in range(ITERATIONS):
        line = point @ design.T
        slopes = design / line[:, :, None]
        normal = np.einsum("j,rja,rjb->rab", weight, slopes, slopes)
        toward = np.einsum("j,rja,rj->ra", weight, slopes, log_m - np.log(line))
        diagonal = np.einsum("rii->ri", normal)
        diagonal *= 1 + damping[:, None]
        there = point + np.linalg.solve(normal, toward[:, :, None])[:, :, 0]
        reached = loss(there)
        better = reached < value
        point[better], value = there[better], np.minimum(value, reached)
        damping = np.where(better, damping / 10, np.minimum(damping * 10, 1e12))
    return point[:, 0], point[:, 1]

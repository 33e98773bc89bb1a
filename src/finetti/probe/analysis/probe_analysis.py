"""All that a table of trials says: success, curves, critical sample sizes, scaling laws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from finetti.core.errors import bad_argument
from finetti.core.numerics.random_keys import generator
from finetti.core.plain_data import to_plain
from finetti.display import Card, Displayable, Table, format_interval
from finetti.probe.analysis.critical_size import (
    CriticalSize,
    critical_size,
    first_size_above,
    success_counts,
)
from finetti.probe.analysis.scaling_laws import ScalingLaws, fit_laws
from finetti.probe.analysis.success_curve import SuccessCurve, fit_curve
from finetti.probe.analysis.trial_tables import (
    Frame,
    count_cells,
    iterate_groups,
    read_trials,
)

Key = tuple[Any, ...]  # the values of `by`, and T where there is one


@dataclass(frozen=True)
class Analysis(Displayable):
    """Success rates, curves, critical sizes and laws of a table of trials; see `analyze`.

    Args:
        by: the columns that tell learners apart.
        level: of success.
        success: one row per cell: trials, successes, rate, and Wilson's interval low, high.
        curves: (…, T) → curve; not there where the trials show no curve.
        sizes: (…, T) → critical size at ``level``.
        first_sizes: (…, T) → smallest m with a rate above ``level`` and its standard error.
        laws: (…) → both laws of the critical sizes.
        notes: what a reader should know.
    """

    by: tuple[str, ...]
    level: float
    success: Frame
    curves: Mapping[Key, SuccessCurve]
    sizes: Mapping[Key, CriticalSize]
    first_sizes: Mapping[Key, tuple[float | None, float | None]]
    laws: Mapping[Key, ScalingLaws]
    notes: tuple[str, ...] = ()

    @property
    def critical(self) -> Frame:
        """One row per learner and T.

        ``critical`` (NaN if censored) with ``low`` and ``high`` (0 and ∞ where open), ``censored``
        and ``reason``; the paper's ``first_above`` and its ``first_above_error``; ``ceiling`` with
        its interval and ``p_no_ceiling``, the p-value of λ = 0.
        """
        rows = []
        for key, size in self.sizes.items():
            curve = self.curves.get(key)
            first, error = self.first_sizes[key]
            ends = curve.ceiling_interval if curve else None
            rows.append(
                {
                    **dict(zip((*self.by, "context_length"), key, strict=True)),
                    "critical": size.value,
                    "low": size.interval.low,
                    "high": size.interval.high,
                    "censored": size.censored,
                    "reason": size.reason,
                    "first_above": first,
                    "first_above_error": error,
                    "ceiling": curve.ceiling if curve else None,
                    "ceiling_low": ends.low if ends else None,
                    "ceiling_high": ends.high if ends else None,
                    "p_no_ceiling": curve.p_value if curve else None,
                }
            )
        return pd.DataFrame(rows).astype({"critical": float, "first_above": float})

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        names = (*self.by, "context_length")

        def records(found: Mapping[Key, Any]) -> list[dict[str, Any]]:
            return [dict(zip(names, key, strict=False)) | to_plain(v) for key, v in found.items()]

        shown = {name: getattr(self, name) for name in ("level", "success", "critical", "notes")}
        return to_plain(shown) | {"curves": records(self.curves), "laws": records(self.laws)}

    def __card__(self) -> Card:
        names = (*self.by, "T")
        rows = []
        for key, size in self.sizes.items():
            curve, (first, error) = self.curves.get(key), self.first_sizes[key]
            ends = curve and (curve.ceiling_interval.low, curve.ceiling_interval.high)
            told = None if first is None else f"{first:g} ± {error:.2g}" if error else f"{first:g}"
            ceiling = format_interval(curve.ceiling, ends) if curve else None
            rows.append((*key, size.text, told, ceiling))
        columns = (*names, f"m at {self.level:g}", "first m above", "ceiling")
        tables = [Table("Critical sample size", columns, tuple(rows))]
        for key, laws in self.laws.items():
            for table in laws.__card__().tables:
                title = " · ".join([table.title, *map(str, key)])
                tables.append(Table(title, table.columns, table.rows))
        of_laws: dict[str, list[str]] = {}
        for key, laws in self.laws.items():
            for note in laws.notes:
                of_laws.setdefault(note, []).append(" ".join(map(str, key)))
        several = len(self.laws) > 1
        told_of_laws = [f"{', '.join(k)}: {n}" if several else n for n, k in of_laws.items()]
        of_curves = [
            f"{', '.join(f'{n} = {v}' for n, v in zip(names, key, strict=True))}: {curve.reason}"
            for key, curve in self.curves.items()
            if curve.reason
        ]
        fields = (
            ("trials", int(self.success["trials"].sum())),
            ("cells", len(self.success)),
            ("level", self.level),
        )
        return Card("Probe", fields, tuple(tables), (*self.notes, *of_curves, *told_of_laws))


def analyze(
    table: Frame,
    level: float = 0.5,
    by: Sequence[str] | None = None,
    confidence: float = 0.95,
    n_resamples: int = 500,
    seed: int = 0,
    sizes: Mapping[Key, CriticalSize] | None = None,
) -> Analysis:
    """Success rates, curves, critical sizes and scaling laws of a table of trials.

    Args:
        table: one row per trial with context_length, n_samples and success (0 or 1); where trials
            have a ``seed``, whole seeds are resampled instead of trials. Trials without an outcome
            are left out, and said.
        level: success probability of the critical size.
        by: columns that tell learners apart; ``learner`` by default, if there is one.
        confidence: of all intervals.
        n_resamples: of the bootstrap.
        seed: of the bootstrap.
        sizes: (…, T) → critical sizes that are known already, as from a search.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = [(T, m, rng.random() < 1 / (1 + (20 * np.log(T) / m) ** 9))
    ...         for T in (50, 100, 400) for m in range(40, 201, 20) for _ in range(20)]
    >>> table = pd.DataFrame(rows, columns=["context_length", "n_samples", "success"])
    >>> analysis = analyze(table, n_resamples=100)
    >>> analysis.critical["critical"].round().tolist()
    [81.0, 95.0, 122.0]
    >>> analysis.laws[()].preferred
    'logarithmic'
    """
    owner = "analyze"
    for name, value in (("level", level), ("confidence", confidence)):
        if not 0 < value < 1:
            raise bad_argument(name, owner, "in (0, 1)", value)
    if n_resamples < 20:
        raise bad_argument("n_resamples", owner, "at least 20", n_resamples)
    by = tuple(by) if by is not None else ("learner",) if "learner" in table else ()
    trials, notes = read_trials(table, by, owner)
    success = count_cells(trials, by, confidence)
    curves: dict[Key, SuccessCurve] = {}
    found = dict(sizes or {})
    first_sizes: dict[Key, tuple[float | None, float | None]] = {}
    laws: dict[Key, ScalingLaws] = {}
    for group, rows in iterate_groups(trials, by):
        for (length,), here in iterate_groups(rows, ("context_length",)):
            key = (*group, int(length))
            rng = generator("first above", seed, int(length))
            m, hits, n = success_counts(here)
            first_sizes[key] = first_size_above(m, hits, n, level, rng)
            if len(m) > 1 and 0 < hits.sum() < n.sum():
                curves[key] = fit_curve(m, hits, n, confidence)
            if key not in found:
                found[key] = critical_size(here, level, confidence, n_resamples, seed)
        laws[group] = fit_laws({key[-1]: each for key, each in found.items() if key[:-1] == group})
    return Analysis(by, level, success, curves, found, first_sizes, laws, notes)

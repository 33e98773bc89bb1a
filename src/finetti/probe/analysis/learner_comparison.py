"""Learners compared on the same data: paired differences with intervals and tests."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from finetti.core.errors import InputError, bad_argument
from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.core.numerics.random_keys import generator
from finetti.core.statistics.intervals import Interval, percentile_interval
from finetti.display import Card, Displayable, Table, format_interval, format_number
from finetti.probe.analysis.critical_size import CriticalSize, critical_size
from finetti.probe.analysis.curve_fits import Floats
from finetti.probe.analysis.paired_statistics import holm, paired_interval, sign_flip_test
from finetti.probe.analysis.resampling import resample_seeds
from finetti.probe.analysis.trial_tables import Frame, read_trials


@dataclass(frozen=True)
class CriticalDifference:
    """Critical size of the second learner minus that of the first, at one context length."""

    context_length: int
    first: CriticalSize
    second: CriticalSize
    value: float | None  # None if one of them is censored, or the interval open on both sides
    interval: Interval  # paired bootstrap; ±∞ where the sizes tried do not tell

    @property
    def text(self) -> str:
        """The difference with its interval, or that it is not known."""
        ends = (float(self.interval.low), float(self.interval.high))
        if self.value is None:
            return f"not known [{format_number(ends[0])}, {format_number(ends[1])}]"
        return format_interval(self.value, ends)


@dataclass(frozen=True)
class LearnerComparison(Displayable):
    """Two learners on the same data, all seeds counted; see `compare_learners`.

    Args:
        learners: first and second; differences are second minus first.
        cells: per T and m: pairs, both rates, how often only the first or only the second
            succeeded, difference with low and high (`paired_interval`), McNemar's exact p_value and
            its Holm-adjusted p_adjusted.
        seeds: per seed: pairs, and the share of them that each learner solved. The whole
            distribution, never the best one.
        difference: in success, over all pairs.
        interval: of the difference: `paired_interval` if each seed has one pair, else by
            resampling seeds, with 0 inside where ``p_value`` does not reject it.
        p_value: that both are alike, by flipping the signs of whole seeds.
        sizes: critical sizes of both, as `analyze` gives them of these trials, and their
            difference, per T.
        notes: what a reader should know.
    """

    learners: tuple[str, str]
    cells: Frame
    seeds: Frame
    difference: float
    interval: Interval
    p_value: float
    sizes: tuple[CriticalDifference, ...]
    notes: tuple[str, ...] = ()

    def __card__(self) -> Card:
        first, second = self.learners
        share = self.seeds[["first", "second"]]
        fields = [
            (
                f"success of {second} − {first}",
                format_interval(self.difference, (self.interval.low, self.interval.high)),
            ),
            ("p-value (signs of whole seeds flipped)", self.p_value),
        ]
        for name, column in (("first", first), ("second", second)):
            low, middle, high = share[name].quantile([0, 0.5, 1])
            told = f"{middle:.2f} (from {low:.2f} to {high:.2f}, {len(share)} seeds)"
            fields.append((f"solved per seed by {column}: median", told))
        rows = tuple(
            (row.context_length, row.n_samples, row.pairs, row.first, row.second,
             format_interval(float(row.difference), (float(row.low), float(row.high))),
             row.p_value, row.p_adjusted)
            for row in self.cells.itertuples()
        )  # fmt: skip
        columns = ("T", "m", "pairs", first, second, "difference", "p (McNemar)", "p (Holm)")
        tables = [Table("Success on the same data", columns, rows)]
        if self.sizes:
            sizes = tuple(
                (each.context_length, each.first.text, each.second.text, each.text)
                for each in self.sizes
            )
            columns = ("T", first, second, "difference")
            tables.append(Table("Critical sample size", columns, sizes))
        return Card(f"{first} and {second}", tuple(fields), tuple(tables), self.notes)


def compare_learners(
    table: Frame,
    first: str,
    second: str,
    level: float = 0.5,
    column: str = "learner",
    confidence: float = 0.95,
    n_resamples: int = 500,
    seed: int = 0,
) -> LearnerComparison:
    """Second minus first learner, on the trials that both had with the same data.

    Pairs are trials of one context_length, n_samples and ``seed`` (``replicate``, if there is no
    seed: then the study must have had ``seed_by = "replicate"``). Trials without a partner or an
    outcome are left out, and said.

    Args:
        table: one row per trial of both learners, and of others that are ignored.
        first: value of ``column``.
        second: value of ``column``.
        level: success probability of the critical sizes.
        column: that names the learner.
        confidence: of the intervals.
        n_resamples: of the bootstrap over seeds.
        seed: of the bootstrap.

    >>> rows = [(name, 10, 20, seed, seed % n > 0) for name, n in (("a", 2), ("b", 8))
    ...         for seed in range(40)]
    >>> names = ["learner", "context_length", "n_samples", "seed", "success"]
    >>> found = compare_learners(pd.DataFrame(rows, columns=names), "a", "b")
    >>> round(found.difference, 3), round(found.p_value, 5), found.cells["only_second"].tolist()
    (0.375, 6e-05, [15])
    """
    owner = "compare_learners"
    for name, value in (("level", level), ("confidence", confidence)):
        if not 0 < value < 1:
            raise bad_argument(name, owner, "in (0, 1)", value)
    wide, key, notes = _pairs(table, first, second, column, owner)
    cells = _compare_cells(wide, confidence)
    by_seed = wide.groupby(level="seed")
    gaps = by_seed["second"].sum() - by_seed["first"].sum()
    difference = float((wide["second"] - wide["first"]).mean())
    drawn = _resampled_difference(wide, n_resamples, generator("learner comparison", seed))
    one_pair = len(gaps) == len(wide)
    p_value = sign_flip_test(gaps)
    if one_pair:
        up, down = (int((gaps == sign).sum()) for sign in (1, -1))
        interval = paired_interval(up, down, len(wide), confidence)
    else:
        interval = _around(difference, drawn, confidence, p_value)
    seeds = by_seed.agg(pairs=("first", "size"), first=("first", "mean"), second=("second", "mean"))
    return LearnerComparison(
        (first, second),
        cells,
        seeds.reset_index(),
        difference,
        interval,
        p_value,
        _compare_sizes(wide, key == "seed", level, confidence, n_resamples, seed),
        notes,
    )


def _pairs(
    table: Frame, first: str, second: str, column: str, owner: str
) -> tuple[Frame, str, tuple[str, ...]]:
    """Success of both learners, by (context_length, n_samples, seed); and what pairs them."""
    trials, notes = read_trials(table, (column,), owner)
    key = "seed" if "seed" in trials else "replicate"
    if key not in trials:
        got = f"the columns {', '.join(map(str, table))}"
        raise bad_argument("table", owner, "a table with a column seed (or replicate)", got)
    chosen = {}
    for role, name in (("first", first), ("second", second)):
        chosen[role] = trials[trials[column] == name]
        if chosen[role].empty:
            known = ", ".join(sorted(map(str, trials[column].unique())))
            raise bad_argument(role, owner, f"one of {known}", repr(name))
    both = pd.concat(chosen, names=["role"]).reset_index(level="role")
    index = ["context_length", "n_samples", key]
    if both.duplicated(["role", *index]).any():
        raise InputError(
            f"A learner has several trials of one context_length, n_samples and {key}. Select one "
            "setting of each learner before they are compared."
        )
    wide = both.pivot(index=index, columns="role", values="success")
    lonely = int(wide.isna().any(axis=1).sum())
    wide = wide.dropna().rename_axis(index=["context_length", "n_samples", "seed"])
    if wide.empty:
        raise InputError(
            f"No trial of {first} has a partner of {second} with the same {key}. Run both in one "
            'study with seed_by = "replicate", so that they see the same data.'
        )
    told = [*notes]
    if lonely:
        told.append(f"{lonely} trials have no partner with the same data and are left out.")
    if key == "replicate":
        told.append("Paired by replicate: the data are the same only if seed_by was replicate.")
    return wide, key, tuple(told)


def _compare_cells(wide: Frame, confidence: float) -> Frame:
    rows = []
    for (length, size), pairs in wide.groupby(level=["context_length", "n_samples"]):
        gap = (pairs["second"] - pairs["first"]).to_numpy()
        n, up, down = len(gap), int((gap > 0).sum()), int((gap < 0).sum())
        interval = paired_interval(up, down, n, confidence)
        rows.append(
            {
                "context_length": int(length),
                "n_samples": int(size),
                "pairs": n,
                "first": float(pairs["first"].mean()),
                "second": float(pairs["second"].mean()),
                "only_first": down,
                "only_second": up,
                "difference": (up - down) / n,
                "low": interval.low,
                "high": interval.high,
                "p_value": sign_flip_test(gap),
            }
        )
    cells = pd.DataFrame(rows)
    return cells.assign(p_adjusted=holm(cells["p_value"].tolist()))


def _around(value: float, drawn: Floats, confidence: float, p_value: float) -> Interval:
    """Percentiles, moved so that their middle is the estimate: tossed coins pull toward 0.

    With few seeds they are too narrow: 0 is inside unless the exact test rejects it.
    """
    ends = percentile_interval(drawn, confidence)
    low, high = np.clip(np.array([ends.low, ends.high]) + value - drawn.mean(), -1.0, 1.0)
    if p_value > 1 - confidence:
        low, high = smallest_of(low, 0.0), largest_of(high, 0.0)
    return Interval(float(low), float(high), confidence, "bootstrap")


def _resampled_difference(wide: Frame, n_resamples: int, rng: np.random.Generator) -> Floats:
    """The mean difference of resampled seeds."""
    outcomes = wide.unstack(["context_length", "n_samples"])
    hits = resample_seeds(outcomes, n_resamples, rng)
    signs = np.where(outcomes.columns.get_level_values("role") == "second", 1.0, -1.0)
    return hits @ signs / len(wide)


def _compare_sizes(
    wide: Frame,
    by_seed: bool,
    level: float,
    confidence: float,
    n_resamples: int,
    seed: int,
) -> tuple[CriticalDifference, ...]:
    """Compare critical sizes where there are two sizes or more, resampling seeds of both alike."""
    found = []
    for length, here in wide.groupby(level="context_length"):
        if here.index.get_level_values("n_samples").nunique() < 2:
            continue
        shown, paired = [], []
        for role, coins in (("first", ""), ("second", "second")):
            trials = here[role].rename("success").reset_index()
            options = level, confidence, n_resamples, seed
            paired.append(critical_size(trials, *options, coins=coins))
            if not by_seed:  # an analysis does not take replicates of several m as one draw
                trials = trials.drop(columns="seed")
            shown.append(critical_size(trials, *options))
        first, second = shown
        interval = _size_gap(paired[0], paired[1], confidence)
        known = math.isfinite(interval.low) or math.isfinite(interval.high)
        value = None
        if first.value is not None and second.value is not None and known:
            value = second.value - first.value
        found.append(CriticalDifference(int(length), first, second, value, interval))
    return tuple(found)


def _size_gap(first: CriticalSize, second: CriticalSize, confidence: float) -> Interval:
    """The interval of the difference of paired resamples.

    Where one of the two is outside the sizes tried it is open on that side, also if all outcomes
    are equal: that two learners fail alike at every size tried does not say that they need the
    same number of samples.
    """
    sizes = [np.exp(each.log_replicates) for each in (first, second)]
    ends = (first.m_min * (1 - 1e-9), first.m_max * (1 + 1e-9))
    (under_1, over_1), (under_2, over_2) = ((m < ends[0], m > ends[1]) for m in sizes)
    gap = sizes[1] - sizes[0]
    # Lower and upper limits of each resample's difference, as far as the sizes tell.
    least = np.where(under_2 | over_1, -np.inf, gap)
    most = np.where(over_2 | under_1, np.inf, gap)
    low = percentile_interval(least, confidence, observed=True).low
    high = percentile_interval(most, confidence, observed=True).high
    return Interval(low, high, confidence, "paired bootstrap")

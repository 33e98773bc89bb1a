"""Learners on the same data: exact tests, paired intervals."""

import functools
import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from finetti.core.errors import InputError
from finetti.core.plain_data import to_plain
from finetti.probe.analysis import learner_comparison as comparison
from finetti.probe.analysis.paired_statistics import (
    holm,
    paired_interval,
    score_interval,
    sign_flip_test,
)
from finetti.probe.analysis.probe_analysis import analyze

STANDARD_ERRORS = 4
compare_learners = functools.partial(comparison.compare_learners, n_resamples=200)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 5))
def test_of_single_pairs_it_is_mcnemars_exact_test(up, down, ties):
    expected = stats.binomtest(up, up + down).pvalue if up + down else 1.0
    found = sign_flip_test([1] * up + [-1] * down + [0] * ties)
    assert found == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.integers(-4, 4), max_size=9))
def test_of_seeds_it_is_the_enumeration_of_all_signs(differences):
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    expected = np.mean(np.array(sums) >= abs(sum(differences)))
    assert sign_flip_test(differences) == pytest.approx(expected, rel=1e-12)


def test_holm_keeps_the_order_and_the_error():
    assert holm([0.01, 0.02, 0.03, 0.9]) == pytest.approx([0.04, 0.06, 0.06, 0.9])
    assert holm([0.6, 0.6]) == [1.0, 1.0]


@pytest.mark.parametrize("bad", [[0.5], [[1, 0]]])
def test_the_test_refuses(bad):
    with pytest.raises(InputError, match="`differences`"):
        sign_flip_test(bad)


def two_learners(rng, shift, n_seeds=40, sizes=(50, 70, 90, 120, 160, 200), lengths=(10,)):
    """Both learners meet the same difficulty of the same data; the second needs e^shift times m."""
    rows = []
    for T, m, seed in itertools.product(lengths, sizes, range(n_seeds)):
        easy = rng.random()
        for name, move in (("a", 0.0), ("b", shift)):
            chance = special.expit(8 * (math.log(m) - math.log(95) - move))
            rows.append((name, T, m, seed, float(easy < chance)))
    names = ["learner", "context_length", "n_samples", "seed", "success"]
    return pd.DataFrame(rows, columns=names)


def test_cells_count_what_they_say():
    table = two_learners(np.random.default_rng(0), 0.3)
    found = compare_learners(table, "a", "b")
    for row in found.cells.itertuples():
        cell = table[table["n_samples"] == row.n_samples]
        a, b = (cell[cell["learner"] == x].set_index("seed")["success"] for x in "ab")
        assert (row.first, row.second) == (a.mean(), b.mean())
        assert (row.only_first, row.only_second) == ((a > b).sum(), (b > a).sum())
        assert row.difference == pytest.approx(b.mean() - a.mean())
        assert row.low <= row.difference <= row.high
        discordant = row.only_first + row.only_second
        expected = stats.binomtest(row.only_first, discordant).pvalue if discordant else 1.0
        assert row.p_value == pytest.approx(expected)
    assert found.difference == pytest.approx(found.cells["difference"].mean())
    assert len(found.seeds) == 40
    assert found.seeds["second"].mean() - found.seeds["first"].mean() == pytest.approx(
        found.difference
    )


def test_pairs_know_the_difference_better_than_independent_data():
    size = compare_learners(two_learners(np.random.default_rng(1), 0.05), "a", "b").sizes[0]
    apart = math.hypot(size.first.interval.width, size.second.interval.width)
    assert size.interval.width < 0.8 * apart
    assert 95 * (math.exp(0.05) - 1) in size.interval


def test_a_difference_is_seen():
    rng = np.random.default_rng(1)
    found = compare_learners(two_learners(rng, 0.25), "a", "b")
    size = found.sizes[0]
    assert found.p_value < 0.001
    assert found.interval.high < 0
    assert 95 * (math.exp(0.25) - 1) in size.interval
    assert size.value == pytest.approx(size.second.value - size.first.value)
    assert size.interval.low > 0
    assert "40 seeds" in str(found)
    json.dumps(to_plain(found), allow_nan=False)


def test_equal_learners_are_not_told_apart():
    """Of 80 comparisons of equal learners, 5 % have p ≤ 0.05 or an interval without 0, up to 4
    standard errors."""
    rng = np.random.default_rng(2)
    n, false, missed = 80, 0, 0
    for _ in range(n):
        rows = [(x, 10, 50, seed, float(rng.random() < 0.5)) for x in "ab" for seed in range(30)]
        names = ["learner", "context_length", "n_samples", "seed", "success"]
        found = compare_learners(pd.DataFrame(rows, columns=names), "a", "b")
        false += found.p_value <= 0.05
        missed += 0.0 not in found.interval
    limit = 0.05 + STANDARD_ERRORS * math.sqrt(0.05 * 0.95 / n)
    assert false / n < limit
    assert missed / n < limit


def test_sizes_that_are_not_reached_leave_the_difference_open():
    found = compare_learners(two_learners(np.random.default_rng(3), 2.0), "a", "b")
    size = found.sizes[0]
    assert size.second.censored == "right"
    assert size.value is None
    assert size.interval.high == math.inf
    assert size.interval.low > 50
    assert "not known [" in str(found)
    json.dumps(to_plain(found), allow_nan=False)


def test_trials_without_a_partner_are_said():
    table = two_learners(np.random.default_rng(4), 0.2)
    lonely = table[(table["learner"] == "a") | (table["seed"] > 2)]
    found = compare_learners(lonely, "a", "b")
    assert found.notes == ("18 trials have no partner with the same data and are left out.",)
    assert found.cells["pairs"].tolist() == [37] * 6
    by_replicate = compare_learners(table.rename(columns={"seed": "replicate"}), "a", "b")
    assert "seed_by was replicate" in by_replicate.notes[0]
    assert by_replicate.difference == compare_learners(table, "a", "b").difference


def test_bad_comparisons_are_refused():
    table = two_learners(np.random.default_rng(5), 0.2, n_seeds=3)
    with pytest.raises(
        InputError, match="`second` argument of compare_learners must be one of a, b"
    ):
        compare_learners(table, "a", "c")
    apart = table.assign(seed=table["seed"] + 10 * (table["learner"] == "b"))
    with pytest.raises(InputError, match="has a partner"):
        compare_learners(apart, "a", "b")
    with pytest.raises(InputError, match="several trials"):
        compare_learners(pd.concat([table, table]), "a", "b")
    with pytest.raises(InputError, match="a column seed"):
        compare_learners(table.drop(columns="seed"), "a", "b")
    with pytest.raises(InputError, match="`level`"):
        compare_learners(table, "a", "b", level=0)


def score(delta, up, down, n):
    """Tango's statistic with the restricted maximum of the likelihood found by search."""
    p_down = optimize.minimize_scalar(
        lambda q: (
            -(
                special.xlogy(up, q + delta)
                + special.xlogy(down, q)
                + special.xlogy(n - up - down, 1 - 2 * q - delta)
            )
        ),
        bounds=(max(0.0, -delta), (1 - delta) / 2),
        method="bounded",
        options={"xatol": 1e-12},
    ).x
    return (up - down - n * delta) / math.sqrt(n * (2 * p_down + delta * (1 - delta)))


@pytest.mark.parametrize(("up", "down", "n"), [(9, 2, 40), (20, 15, 60), (12, 1, 30)])
def test_with_many_pairs_the_interval_inverts_the_score_test(up, down, n):
    ends = score_interval(up, down, n, 0.95)
    for end, z in zip(ends, (1.959964, -1.959964), strict=True):
        assert score(end, up, down, n) == pytest.approx(z, abs=1e-4)


def test_without_discordant_pairs_the_score_interval_is_wilsons():
    z = stats.norm.ppf(0.975)
    end = z**2 / (10 + z**2)
    assert score_interval(0, 0, 10, 0.95) == pytest.approx((-end, end))


def test_with_discordant_pairs_of_one_kind_only_one_end_is_open():
    low, high = score_interval(0, 10, 10, 0.95)
    assert low == -1
    assert score(high, 0, 10, 10) == pytest.approx(-1.959964, abs=1e-4)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_interval_and_exact_test_agree(up, down, ties):
    n = up + down + ties
    if n == 0:
        return
    found = paired_interval(up, down, n, 0.95)
    assert -1 <= found.low <= (up - down) / n <= found.high <= 1
    p_value = sign_flip_test([1] * up + [-1] * down)
    assert (0.0 in found) == (p_value > 0.05)
    mirrored = paired_interval(down, up, n, 0.95)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low), abs=1e-9)


def test_the_paired_interval_covers():
    """Exactly, over all outcomes of 12 and 30 pairs: no less than 94 %."""
    for n, up, down in ((12, 0.4, 0.0), (12, 0.5, 0.2), (12, 0.02, 0.02), (30, 0.3, 0.1)):
        covered = 0.0
        for b in range(n + 1):
            for c in range(n + 1 - b):
                chance = stats.multinomial.pmf([b, c, n - b - c], n, [up, down, 1 - up - down])
                if chance > 1e-9 and up - down in paired_interval(b, c, n, 0.95):
                    covered += chance
        assert covered > 0.94


def few_pairs(sizes):
    rows = [(x, 10, m, seed, float(x == "a" and seed < 4)) for x in "ab" for m in sizes
            for seed in range(10)]  # fmt: skip
    names = ["learner", "context_length", "n_samples", "seed", "success"]
    return pd.DataFrame(rows, columns=names)


@pytest.mark.parametrize("sizes", [(50,), (50, 100)])
def test_few_pairs_claim_no_more_than_the_exact_test(sizes):
    found = compare_learners(few_pairs(sizes), "a", "b")
    assert found.p_value == 0.125
    assert found.cells["p_value"].tolist() == [0.125] * len(sizes)
    for low, high in (*found.cells[["low", "high"]].to_numpy(),
                      (found.interval.low, found.interval.high)):  # fmt: skip
        assert low < -0.4 < 0 <= high
    said = str(found)
    assert "p (McNemar)" in said
    assert "signs of whole seeds" in said


def test_sizes_are_those_of_the_analysis():
    table = two_learners(np.random.default_rng(6), 0.2, lengths=(10, 20))
    by_replicate = table.rename(columns={"seed": "replicate"})
    apart = table.assign(seed=table["seed"] + 1000 * table["n_samples"])
    for each in (table, by_replicate, apart):
        found, sizes = compare_learners(each, "a", "b"), analyze(each, n_resamples=200).sizes
        for size in found.sizes:
            assert size.first == sizes["a", size.context_length]
            assert size.second == sizes["b", size.context_length]


def with_twin(table, name):
    table = table[table["learner"] == name]
    return pd.concat([table, table.assign(learner="twin")])


def test_a_learner_differs_from_its_twin_by_no_more_than_its_trials_tell():
    """Equal outcomes: the difference is 0, and its interval shrinks with more trials."""
    widths = []
    for n_seeds in (10, 40, 160):
        table = two_learners(np.random.default_rng(7), 0.0, n_seeds=n_seeds)
        found = compare_learners(with_twin(table, "b"), "b", "twin")
        size = found.sizes[0]
        assert size.value == 0
        assert size.interval.low < 0 < size.interval.high
        assert (found.difference, found.p_value) == (0, 1)
        widths.append(size.interval.width)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def same_outcomes(*solved, n_seeds=3):
    """Two learners with equal outcomes of some trials at 20, 40 and 80 samples."""
    names = ["learner", "context_length", "n_samples", "seed", "success"]
    cells = zip((20, 40, 80), solved, strict=True)
    rows = [
        (name, 10, m, seed, float(seed < count))
        for m, count in cells
        for name in "ab"
        for seed in range(n_seeds)
    ]
    return pd.DataFrame(rows, columns=names)


@pytest.mark.parametrize("solved", [(0, 0, 0), (3, 3, 3), (1, 2, 2), (1, 1, 2)])
def test_where_neither_size_is_known_neither_is_their_difference(solved):
    size = compare_learners(same_outcomes(*solved), "a", "b").sizes[0]
    assert size.first == size.second
    ends = size.first.interval
    assert ends.low == 0 or ends.high == math.inf
    assert size.value is None
    assert (size.interval.low, size.interval.high) == (-math.inf, math.inf)
    assert size.text == "not known [-∞, ∞]"


def test_equal_outcomes_of_few_trials_are_no_certainty():
    """A rise between two neighboring sizes may be anywhere there, for each learner."""
    size = compare_learners(same_outcomes(0, 0, 12, n_seeds=12), "a", "b").sizes[0]
    assert size.value == 0
    assert size.interval.low < -10
    assert size.interval.high > 10

"""Critical sample sizes: coverage of the bootstrap in simulation, censoring, whole tables."""

import dataclasses
import functools
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import special

from finetti.core.errors import InputError
from finetti.probe.analysis import probe_analysis as analysis
from finetti.probe.analysis.critical_size import first_size_above, size_of_curve
from finetti.probe.analysis.curve_fits import fit_curves
from finetti.probe.analysis.resampling import resample_cells, resample_seeds

STANDARD_ERRORS = 4
N_DATA, N_RESAMPLES = 120, 100
analyze = functools.partial(analysis.analyze, n_resamples=200)


def rows_of(fits, rows):
    parts = {f.name: getattr(fits, f.name) for f in dataclasses.fields(fits)}
    return dataclasses.replace(fits, **{k: v[rows] for k, v in parts.items() if k != "log_sizes"})


@pytest.mark.parametrize(
    ("sizes", "trials", "steepness", "ceiling"),
    [(range(50, 201, 30), 12, 10.0, 1.0), (range(50, 201, 30), 12, 10.0, 0.8),
     (range(50, 201, 10), 50, 12.0, 1.0), (range(50, 201, 10), 50, 12.0, 0.9)],
    ids=["coarse", "coarse with a ceiling", "the paper's", "the paper's with a ceiling"],
)  # fmt: skip
def test_bootstrap_interval_covers(sizes, trials, steepness, ceiling):
    """Of 120 simulated studies the 95 % interval misses no more than 5 % + 4 standard errors."""
    rng = np.random.default_rng(7)
    m, midpoint = np.array(sizes, float), math.log(93)
    truth = ceiling * special.expit(steepness * (np.log(m) - midpoint))
    n = np.full(len(m), float(trials))
    hits = rng.binomial(trials, truth, (N_DATA, len(m))).astype(float)
    drawn = np.concatenate([resample_cells(row, n, N_RESAMPLES, rng) for row in hits])
    fits, resampled = fit_curves(m, hits, n), fit_curves(m, drawn, n)
    critical = math.exp(midpoint + special.logit(0.5 / ceiling) / steepness)
    covered, narrow, widths = [], [], []
    for i in range(N_DATA):
        one = rows_of(fits, slice(i, i + 1))
        many = rows_of(resampled, slice(i * N_RESAMPLES, (i + 1) * N_RESAMPLES))
        cells = (hits[i], n)
        size = size_of_curve(one, many, cells, 0.5, 0.95, rng)
        covered.append(critical in size.interval)
        widths.append(math.log(size.interval.high / max(size.interval.low, m[0])))
        narrow.append(critical in size_of_curve(one, many, cells, 0.5, 0.5, rng).interval)
    error = math.sqrt(0.95 * 0.05 / N_DATA)
    assert np.mean(covered) > 0.95 - STANDARD_ERRORS * error
    assert np.mean(narrow) < 0.5 + STANDARD_ERRORS * math.sqrt(0.25 / N_DATA)
    assert np.median(widths) < 3 * np.diff(np.log(m)).max()


def table_of(cells, learner=None, seed=0):
    """One row per trial, from (T, m, successes, trials)."""
    rows = [(T, m, int(i < k), i) for T, m, k, n in cells for i in range(n)]
    table = pd.DataFrame(rows, columns=["context_length", "n_samples", "success", "replicate"])
    return table if learner is None else table.assign(learner=learner)


@pytest.mark.parametrize(
    ("hits", "censored", "reason"),
    [([12, 12, 12], "left", "already passed at m_min = 50"),
     ([0, 0, 0], "right", "not reached up to m_max = 200"),
     ([0, 0, 3], "right", "not reached up to m_max = 200"),
     ([9, 10, 11], "left", "already passed at m_min = 50")],
)  # fmt: skip
def test_what_is_not_reached_is_said(hits, censored, reason):
    found = analyze(table_of([(10, m, k, 12) for m, k in zip((50, 100, 200), hits, strict=True)]))
    size = found.sizes[(10,)]
    assert (size.value, size.censored) == (None, censored)
    assert reason in size.reason
    assert size.interval.low == 0 if censored == "left" else size.interval.high == math.inf
    assert not np.isnan(size.interval.low)
    assert math.isnan(found.critical["critical"][0])
    assert not found.laws[()].laws
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_ceiling_below_the_level_is_the_reason():
    rates = zip((50, 100, 200, 400, 800), (0, 12, 13, 12, 13), strict=True)
    cells = [(10, m, k, 60) for m, k in rates]
    found = analyze(table_of(cells))
    assert found.sizes[(10,)].censored == "right"
    assert "the ceiling is below 0." in found.sizes[(10,)].reason


def test_one_size_tells_a_side():
    size = analyze(table_of([(10, 50, 12, 12)])).sizes[(10,)]
    assert (size.censored, size.interval.low, size.interval.high) == ("left", 0, 50)
    size = analyze(table_of([(10, 50, 0, 12)])).sizes[(10,)]
    assert (size.censored, size.interval.low, size.interval.high) == ("right", 50, math.inf)
    found = analyze(table_of([(10, 50, 6, 12)]))
    size = found.sizes[(10,)]
    assert (size.censored, size.interval.low, size.interval.high) == ("right", 0, math.inf)
    assert "only one size" in size.reason
    assert not found.curves
    json.dumps(found.to_dict(), allow_nan=False)


def test_of_a_step_the_whole_bracket_is_the_interval():
    size = analyze(table_of([(10, m, 50 * (m > 90), 50) for m in range(50, 151, 20)])).sizes[(10,)]
    assert size.value == pytest.approx(math.sqrt(90 * 110))
    assert size.interval.low < 94
    assert size.interval.high > 106
    assert size.interval.low > 80


def test_critical_size_is_where_the_curve_is_at_the_level():
    cells = [
        (10, m, k, 20) for m, k in zip(range(50, 201, 30), (0, 4, 11, 17, 19, 18), strict=True)
    ]
    for level in (0.3, 0.5, 0.8):
        found = analyze(table_of(cells), level=level)
        curve, size = found.curves[(10,)], found.sizes[(10,)]
        assert float(curve.probability(size.value)) == pytest.approx(level, abs=1e-9)
        assert size.value in size.interval


def test_the_papers_definition():
    m, n = np.array([50.0, 60, 70, 80]), np.full(4, 50.0)
    rng = np.random.default_rng(0)
    assert first_size_above(m, np.array([0, 25, 26, 50.0]), n, 0.5, rng)[0] == 70
    assert first_size_above(m, np.array([0, 0, 50.0, 50]), n, 0.5, rng) == (70, 0.0)
    assert first_size_above(m, np.array([0, 0, 1.0, 2]), n, 0.5, rng) == (None, None)
    # Against every outcome of two cells: m = 50 with P(Binomial > 1), else m = 60.
    value, error = first_size_above(m[:2], np.array([1.0, 2.0]), np.array([2.0, 2.0]), 0.5, rng)
    assert value == 60
    assert error == pytest.approx(10 * math.sqrt(0.25 * 0.75), abs=2.5)


def test_resampled_cells_have_the_rates_they_should():
    rng = np.random.default_rng(0)
    hits, n = np.array([0.0, 3, 12]), np.array([12.0, 12, 12])
    drawn = resample_cells(hits, n, 20_000, rng)
    rate = (hits + 0.5) / 13
    error = np.sqrt(rate * (1 - rate) * 12 / 20_000)
    assert np.all(np.abs(drawn.mean(0) - 12 * rate) < STANDARD_ERRORS * error)
    assert drawn.var(0) == pytest.approx(12 * rate * (1 - rate), rel=0.1)


def test_resampled_seeds_stay_together():
    """Cells that agree within every seed agree in the resamples, and independent ones do not."""
    rng = np.random.default_rng(0)
    easy = (np.arange(40) < 20).astype(float)
    together = resample_seeds(pd.DataFrame({50: easy, 60: easy}), 4000, rng)
    apart = resample_cells(np.array([20.0, 20]), np.array([40.0, 40]), 4000, rng)
    assert np.corrcoef(together.T)[0, 1] > 0.9
    assert abs(np.corrcoef(apart.T)[0, 1]) < STANDARD_ERRORS / math.sqrt(4000)
    # Seeds that were tried in different cells do not replace each other.
    single = pd.DataFrame({50: [1.0, 0.0, np.nan, np.nan], 60: [np.nan, np.nan, 1.0, 1.0]})
    drawn = resample_seeds(single, 4000, rng)
    assert drawn.max(0).tolist() == [2, 2]
    assert drawn.mean(0) == pytest.approx([1, 2 * 2.5 / 3], abs=0.06)


def test_shared_seeds_widen_the_interval():
    rng = np.random.default_rng(5)
    rows = [(10, m, float(93 * math.exp(0.3 * shift) < m), seed)
            for seed, shift in enumerate(rng.standard_normal(30))
            for m in range(40, 201, 10)]  # fmt: skip
    names = ["context_length", "n_samples", "success", "seed"]
    table = pd.DataFrame(rows, columns=names)
    shared = analyze(table).sizes[(10,)]
    alone = analyze(table.drop(columns="seed")).sizes[(10,)]
    assert shared.value == alone.value
    assert shared.interval.width > 1.5 * alone.interval.width


def test_learners_are_told_apart_and_mixtures_refused():
    cells = [(T, m, k, 10) for T in (10, 20) for m, k in ((50, 0), (100, 5), (200, 10))]
    a, b = table_of(cells, "a"), table_of([(T, m, n - k, n) for T, m, k, n in cells], "b")
    both = pd.concat([a, b])
    found = analyze(both)
    assert set(found.laws) == {("a",), ("b",)}
    alone = analyze(a).critical.set_index("context_length")["critical"]
    mine = found.critical[found.critical["learner"] == "a"]
    assert mine.set_index("context_length")["critical"].equals(alone)
    with pytest.raises(InputError, match="mixes trials of different learner"):
        analyze(both, by=())
    with pytest.raises(InputError, match=r"by=\('learner', 'sparsity'\)"):
        analyze(pd.concat([a.assign(sparsity=3), a.assign(sparsity=4)]))
    with pytest.raises(InputError, match=r"mixes trials of different settings\.dropout"):
        analyze(
            pd.concat([a.assign(**{"settings.dropout": 0.1}), a.assign(**{"settings.dropout": 0})])
        )


def test_the_answer_depends_on_the_trials_and_the_seed_only():
    cells = [(10, m, k, 12) for m, k in ((50, 1), (80, 5), (110, 9), (140, 12))]
    table = table_of(cells)
    found = analyze(table).to_dict()
    assert analyze(table.sample(frac=1, random_state=1)).to_dict() == found
    assert analyze(table, seed=1).to_dict() != found
    (curve,) = found["curves"]
    assert curve["context_length"] == 10
    assert curve["ceiling"] == analyze(table).curves[(10,)].ceiling


@pytest.mark.parametrize("kind", ["float64", "Int64", "object"])
def test_lost_trials_are_said(kind):
    table = table_of([(10, m, k, 10) for m, k in ((50, 1), (100, 5), (200, 10))])
    table["success"] = table["success"].astype(kind)
    table.loc[[9, 19], "success"] = None
    found = analyze(table)
    assert found.success["trials"].tolist() == [9, 9, 10]
    assert found.notes == ("2 of 30 trials have no outcome and are left out.",)
    assert found.notes[0] in str(found)


@pytest.mark.parametrize(
    ("change", "options", "match"),
    [({"success": 0.5}, {}, "success is 0 or 1"), ({"success": np.nan}, {}, "at least one trial"),
     ({"n_samples": 0}, {}, "n_samples of at least 1"), ({"n_samples": np.nan}, {}, "online"),
     ({}, {"level": 1.0}, "`level`"), ({}, {"confidence": 0}, "`confidence`"),
     ({}, {"n_resamples": 1}, "`n_resamples`"), ({}, {"by": ["model"]}, "a column model")],
)  # fmt: skip
def test_bad_tables_are_refused(change, options, match):
    table = table_of([(10, 50, 1, 4), (10, 60, 3, 4)]).assign(**change)
    with pytest.raises(InputError, match=match):
        analysis.analyze(table, **options)


def size_of(hits, sizes=range(10, 81, 10), **options):
    cells = [(10, m, k, 10) for m, k in zip(sizes, hits, strict=True)]
    return analyze(table_of(cells), **options).sizes[(10,)]


def test_an_end_is_not_open_where_the_trials_close_it():
    """10 of 10 at the largest size is success above ½ there, wherever a resample's curve is."""
    size = size_of([0, 0, 0, 0, 1, 2, 4, 10])
    assert size.value in size.interval
    assert size.interval.high == pytest.approx(80)
    # Chance successes at small sizes make the curve flat: it would be at ½ beyond the sizes tried.
    flat = size_of([1, 1, 0, 0, 0, 1, 2, 10])
    assert (flat.value, flat.censored) == (pytest.approx(80), "")
    assert flat.interval.high == pytest.approx(80)
    low = size_of([0, 8, 9, 10, 10, 10, 9, 9])
    assert low.interval.low >= 10 - 1e-9
    # 7 of 10, or a level of 0.8, is open still.
    assert size_of([0, 0, 0, 0, 1, 2, 4, 7]).interval.high == math.inf
    assert size_of([0, 0, 0, 0, 1, 2, 4, 10], level=0.8).interval.high == math.inf


def test_equal_trials_of_two_learners_have_equal_intervals():
    cells = [(10, m, k, 12) for m, k in ((50, 1), (80, 5), (110, 6), (140, 8))]
    table = table_of(cells).rename(columns={"replicate": "seed"})
    both = pd.concat([table.assign(learner=x) for x in ("b", "a")])
    for each in (both, both.drop(columns="seed")):
        found = analyze(each)
        a, b = (found.sizes[x, 10] for x in "ab")
        assert a == b
        assert np.array_equal(a.log_replicates, b.log_replicates)
        assert found.first_sizes["a", 10] == found.first_sizes["b", 10]


def test_context_lengths_are_resampled_apart():
    """Laws take resamples of several T together, as independent as their trials."""
    cells = [(T, m, k, 12) for T in (10, 20) for m, k in ((50, 1), (80, 5), (110, 9), (140, 12))]
    found = analyze(table_of(cells)).sizes
    correlation = np.corrcoef(found[(10,)].log_replicates, found[(20,)].log_replicates)[0, 1]
    assert abs(correlation) < STANDARD_ERRORS / math.sqrt(200)


def test_notes_name_the_learner_and_say_things_once():
    rising, never = ((50, 0), (100, 5), (200, 10)), ((50, 0), (100, 0), (200, 1))
    a = table_of([(T, m, k, 10) for T, of in ((10, rising), (20, never)) for m, k in of], "a")
    b = table_of([(T, m, k, 10) for T, of in ((10, rising), (30, never)) for m, k in of], "b")
    notes = analyze(pd.concat([a, b])).__card__().notes
    left_out = [note.split(" is left out")[0] for note in notes if "left out" in note]
    assert left_out == ["a: T = 20", "b: T = 30"]
    needs = [note for note in notes if "A law needs" in note]
    assert needs == ["a, b: A law needs critical sizes at two context lengths or more."]
    alone = analyze(a).__card__().notes
    assert any(note.startswith("T = 20 is left out") for note in alone)


@pytest.mark.parametrize("name", ["success_accuracy", "learner_code"])
def test_success_levels_and_versions_of_a_learner_are_not_averaged(name):
    table = table_of([(10, 20, 2, 8), (10, 40, 6, 8)])
    analyze(table.assign(**{name: 0.99}))
    mixed = table.assign(**{name: [0.99, 0.95] * (len(table) // 2)})
    with pytest.raises(InputError, match=f"mixes trials of different {name}"):
        analyze(mixed)

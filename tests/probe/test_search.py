"""The search for the critical number of samples: decisions, simulation, runs through a store."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from scipy import special, stats

from finetti.core.errors import FinettiError, InputError
from finetti.core.plain_data import to_plain
from finetti.probe import SearchDesign, search_critical
from finetti.probe.search.curve_posterior import Counts, curve_posterior
from finetti.probe.search.trial_allocation import allocate_trials
from finetti.studies import store_table

KINDS = Path(__file__).parent / "material" / "curves.py"


def success(n_samples, threshold, slope, ceiling):
    """P(m) that reaches 1/2 at the threshold."""
    odds = special.logit(0.5 / ceiling) + slope * np.log(np.divide(n_samples, threshold))
    return ceiling * special.expit(odds)


def simulate(design, rng, **curve):
    """The result of a whole search, and its rounds."""
    counts, rounds = {}, 0
    while proposed := design.propose([(m, *of) for m, of in counts.items()]):
        rounds += 1
        for m, n in proposed:
            trials, hits = counts.get(m, (0, 0))
            counts[m] = trials + n, hits + int(rng.binomial(n, success(m, **curve)))
    return design.result([(m, *of) for m, of in counts.items()]), rounds


# Decisions


def test_the_posterior_is_that_of_bayes_curve_by_curve():
    history = [(40, 6, 0), (60, 10, 4), (80, 6, 5), (60, 2, 1)]
    posterior = curve_posterior(Counts.of(history), 0.5, math.log(10), math.log(1000))
    kept = posterior.kept(1e-3)
    some = np.random.default_rng(0).choice(len(kept.weight), 40, replace=False)
    curves = kept.success(np.log([40.0, 60.0, 80.0]))[some]
    likelihood = stats.binom.pmf([0, 5, 5], [6, 12, 6], curves).prod(axis=1)
    # The prior depends on the ceiling alone.
    ratio = kept.weight[some] / likelihood
    for ceiling in np.unique(kept.ceiling[some]):
        of = ratio[kept.ceiling[some] == ceiling]
        assert of.max() / of.min() < 1 + 1e-9
    assert posterior.weight.sum() == pytest.approx(1)
    reached = kept.success(np.array([0.0]) + kept.crossing[some[:1]])[some[0]]
    assert kept.ceiling[some[0]] < 0.5 or reached == pytest.approx(0.5)


def test_quantiles_and_probabilities_are_inverse():
    counts = Counts.of([(50, 8, 1), (100, 8, 7)])
    posterior = curve_posterior(counts, 0.5, math.log(10), math.log(1000))
    for probability in (0.025, 0.3, 0.9):
        place = posterior.quantile(probability)
        assert posterior.cumulative(place) == pytest.approx(probability, abs=1e-9)


def test_where_all_trials_end_alike_the_crossing_is_beyond_them_as_far_as_the_prior_goes():
    low, high, reach = math.log(10), math.log(1000), math.log(4)
    every = curve_posterior(Counts.of([(10, 60, 60), (1000, 60, 60)]), 0.5, low, high)
    assert every.axis[0] == pytest.approx(low - reach)
    assert every.axis[-1] < high
    none = curve_posterior(Counts.of([(1000, 1000, 0)]), 0.5, low, high)
    assert none.axis[-1] == pytest.approx(high + reach)
    assert none.axis[0] > low


def test_the_variance_left_is_that_of_one_linear_prediction():
    rng = np.random.default_rng(1)
    weight = rng.dirichlet(np.ones(30))
    target, chances = rng.normal(size=30), rng.uniform(0.02, 0.98, size=(30, 6))
    taken, left = allocate_trials(weight, target, chances, 0.0, 9, 9)
    trials = np.repeat(np.arange(6), taken)
    covariance = np.cov(np.column_stack([target, chances[:, trials]]).T, aweights=weight, ddof=0)
    noise = weight @ (chances * (1 - chances))
    cross, inside = covariance[0, 1:], covariance[1:, 1:] + np.diag(noise[trials])
    direct = covariance[0, 0] - cross @ np.linalg.solve(inside, cross)
    assert len(trials) == 9
    assert left == pytest.approx(direct / covariance[0, 0], rel=1e-10)


def test_the_order_and_the_splitting_of_the_counts_do_not_matter():
    design = SearchDesign(start=40)
    rows = [(40, 3, 0), (80, 3, 1), (160, 3, 3)]
    split = [(160, 1, 1), (80, 3, 1), (40, 2, 0), (160, 2, 2), (40, 1, 0)]
    assert design.propose(rows) == design.propose(split)
    assert design.result(rows) == design.result(split)


def test_bracketing_goes_both_ways_and_ends_at_the_ends():
    design = SearchDesign(minimum=30, maximum=300, start=100)
    assert design.propose([]) == [(100, 3)]
    assert design.propose([(100, 3, 0)]) == [(200, 3)]
    assert design.propose([(100, 3, 0), (200, 3, 0)]) == [(300, 3)]
    assert design.propose([(100, 3, 3), (50, 3, 2)]) == [(30, 3)]


def test_after_bracketing_the_trials_gather_at_the_threshold():
    design = SearchDesign(start=100, ratio=1.05)
    rows = [(50, 3, 0), (100, 20, 2), (110, 20, 7), (120, 20, 12), (130, 20, 18), (200, 9, 9)]
    inside = design.propose(rows)
    assert 1 <= sum(count for _, count in inside) <= 92 // 4
    assert all(100 <= m <= 130 for m, _ in inside)


@pytest.mark.parametrize("rows", [[(40, 3, 0), (80, 3, 3)], [(40, 3, 0), (80, 3, 1), (160, 3, 3)]])
def test_no_trial_is_far_from_where_the_threshold_may_be(rows):
    design = SearchDesign(start=40)
    interval = design.result(rows).size.interval
    assert all(interval.low / 2 < m < 2 * interval.high for m, _ in design.propose(rows))


def test_the_budget_is_kept_to_the_trial():
    design = SearchDesign(start=40, ratio=1.001, max_trials=50)
    result, _ = simulate(design, np.random.default_rng(0), threshold=90.0, slope=9.0, ceiling=0.9)
    assert (result.trials, result.stopped) == (50, "budget")
    assert result.size.interval.low < result.size.value < result.size.interval.high


@pytest.mark.parametrize(("hits", "censored"), [(0, "right"), (1, "left")])
def test_what_is_outside_of_the_range_is_censored(hits, censored):
    design = SearchDesign(minimum=20, maximum=500, start=100)
    counts = {}
    while proposed := design.propose([(m, n, n * hits) for m, n in counts.items()]):
        for m, n in proposed:
            counts[m] = counts.get(m, 0) + n
    result = design.result([(m, n, n * hits) for m, n in counts.items()])
    assert (result.size.censored, result.stopped, result.size.value) == (censored, "censored", None)
    assert result.trials <= 60
    words = {"right": "not reached up to m_max = 500", "left": "already passed at m_min = 20"}
    assert words[censored] in str(result)


def test_a_ceiling_below_the_level_is_censored_too():
    rng = np.random.default_rng(3)
    design, counts = SearchDesign(maximum=2000, start=30), {}
    while proposed := design.propose([(m, *of) for m, of in counts.items()]):
        for m, n in proposed:
            trials, hits = counts.get(m, (0, 0))
            counts[m] = trials + n, hits + int(rng.binomial(n, 0.25 if m > 60 else 0.0))
    assert design.result([(m, *of) for m, of in counts.items()]).size.censored == "right"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"minimum": 0}, "minimum"),
        ({"minimum": 50, "maximum": 50}, "maximum"),
        ({"start": 5}, "from minimum=10"),
        ({"level": 1.0}, "level"),
        ({"ratio": 1.0}, "ratio"),
    ],
)
def test_impossible_designs_are_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        SearchDesign(**wrong)


def test_impossible_counts_are_refused():
    with pytest.raises(InputError, match=r"\(40, 3, 4\)"):
        SearchDesign().propose([(40, 3, 4)])


# Simulation: `benchmarks/search.py` at length


def test_the_interval_covers_with_few_trials_whatever_slope_and_ceiling():
    rng = np.random.default_rng(5)
    design = SearchDesign(maximum=2000, start=30, ratio=1.3)
    covered, trials, n = 0, [], 30
    for _ in range(n):
        curve = {
            "threshold": math.exp(rng.uniform(math.log(40), math.log(300))),
            "slope": math.exp(rng.uniform(math.log(8), math.log(40))),
            "ceiling": rng.choice([1.0, 0.95, 0.85]),
        }
        result, _ = simulate(design, rng, **curve)
        covered += curve["threshold"] in result.size.interval
        trials.append(result.trials)
        assert result.size.interval.high <= 1.3 * result.size.interval.low
    assert covered >= n * 0.95 - 3 * math.sqrt(n * 0.95 * 0.05)
    assert np.median(trials) < 60


def test_a_search_needs_a_fourth_of_the_trials_of_the_printed_grid():
    """As the paper reads it: the smallest of 16 sizes with more than 25 successes of 50."""
    rng, sizes, n = np.random.default_rng(8), np.arange(50, 201, 10), 50
    trials = []
    for slope in (6.0, 9.0, 12.0, 12.0, 24.0):
        curve = {"threshold": rng.uniform(70, 140), "slope": slope, "ceiling": 0.95}
        hits = rng.binomial(n, success(sizes, **curve))
        above = rng.binomial(n, hits / n, (200, len(sizes))) > n / 2
        low, high = np.quantile(above.argmax(1), [0.025, 0.975], method="inverted_cdf")
        ratio = sizes[int(high)] / sizes[max(0, int(low) - 1)]
        result, _ = simulate(SearchDesign(start=32, maximum=2000, ratio=ratio), rng, **curve)
        assert result.stopped == "precise"
        trials.append(result.trials)
    assert np.median(trials) <= n * len(sizes) / 4


# Through a store and child processes

LENGTHS = (20, 200)
DESIGN = SearchDesign(start=40, maximum=1000, ratio=1.5, batch=8)


def search(store, **changes):
    given = {"design": DESIGN, "run": {"quiet": True}, "seed": 3, **changes}
    return search_critical(f"{KINDS}:known", LENGTHS, store=store, **given)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A search that was run to its end, and its store."""
    store = tmp_path_factory.mktemp("searched") / "store.sqlite"
    return search(store), store


def test_a_search_finds_the_thresholds_side_by_side(searched):
    report, store = searched
    assert list(report.results) == list(LENGTHS)
    for T, result in report.results.items():
        assert result.stopped == "precise"
        assert 30 * math.log(T) in result.size.interval
        assert result.trials == (report.trials["context_length"] == T).sum()
    assert len(store_table(store)) == len(report.trials)
    # One process for all rounds: what it has compiled is compiled.
    assert report.trials["process"].nunique() == 1
    assert "not reached" not in str(report)
    assert json.loads(json.dumps(to_plain(report)))["results"].keys() == {"20", "200"}


def test_a_search_ends_in_a_law(searched):
    report, _ = searched
    law = report.laws.laws["logarithmic"]
    # Two points, two parameters: the law passes through both.
    for T, result in report.results.items():
        assert law.predict(T)[0] == pytest.approx(result.size.value, rel=1e-6)
    draws = [result.size.log_replicates for result in report.results.values()]
    assert abs(np.corrcoef(draws)[0, 1]) < 4 / math.sqrt(len(draws[0]))
    low, high = np.exp(np.quantile(draws[0], [0.025, 0.975]))
    interval = report.results[20].size.interval
    assert (low, high) == pytest.approx((interval.low, interval.high), rel=0.01)


def test_what_is_stored_is_not_run_again(searched):
    report, store = searched
    before = store_table(store, details=True)
    again = search(store)
    assert_frame_equal(store_table(store, details=True), before)
    assert_frame_equal(again.trials, report.trials)
    assert again.results == report.results


def test_an_interrupted_search_goes_on_and_ends_alike(searched, tmp_path):
    report, _ = searched
    store = tmp_path / "store.sqlite"

    def interrupt(known):
        if known.rounds == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(store, on_round=interrupt, run={"executor": "inline", "quiet": True})
    first = store_table(store, details=True).set_index("id")
    assert 0 < len(first) < len(report.trials)
    assert search(store, run={"executor": "inline", "quiet": True}).results == report.results
    second = store_table(store, details=True).set_index("id")
    assert second.loc[first.index, "finished"].equals(first["finished"])


def test_more_precision_extends_the_cells_of_an_earlier_search(searched, tmp_path):
    _, path = searched
    store = tmp_path / "store.sqlite"
    store.write_bytes(path.read_bytes())
    before = store_table(store, details=True).set_index("id")
    finer = SearchDesign(start=40, maximum=1000, ratio=1.3, batch=8)
    report = search(store, design=finer, run={"executor": "inline", "quiet": True})
    after = store_table(store, details=True).set_index("id")
    assert after.loc[before.index, "finished"].equals(before["finished"])
    assert len(after) > len(before)
    cells = report.trials.groupby(["context_length", "n_samples"])["replicate"]
    assert all(sorted(each) == list(range(len(each))) for _, each in cells)


def test_designs_may_differ_by_context_length(tmp_path):
    designs = {20: DESIGN, 200: SearchDesign(start=20, maximum=60)}
    options = {"executor": "inline", "quiet": True}
    report = search(tmp_path / "store.sqlite", design=designs, run=options)
    assert not report.results[20].size.censored
    assert report.results[200].size.censored == "right"
    with pytest.raises(InputError, match="none for 200"):
        search(tmp_path / "store.sqlite", design={20: DESIGN})


@pytest.mark.parametrize(
    ("kind", "said"),
    [("broken", "no memory of anything"), ("silent", "no metric `success`")],
)
def test_kinds_that_cannot_be_searched_are_told(kind, said, tmp_path):
    options = {"executor": "inline", "quiet": True}
    with pytest.raises(FinettiError, match=said):
        search_critical(f"{KINDS}:{kind}", [20], store=tmp_path / "store.sqlite", run=options)
    with pytest.raises(InputError, match="`trials` is decided by the search"):
        search_critical(f"{KINDS}:{kind}", [20], store=tmp_path / "store.sqlite", trials=3)

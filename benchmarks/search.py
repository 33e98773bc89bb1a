"""A search for the critical number of samples against grids, on simulated learners.

    python benchmarks/search.py                     # 30 learners a row
    python benchmarks/search.py --learners 10 --grids paper --slopes 12

Learners succeed with probability c·σ(logit(1/(2c)) + b·log(m/m*)), with m* drawn between 65 and
150. Each is measured by a grid, and then by a search that starts at m = 32, knows nothing but
10 ≤ m ≤ 2000, and stops when its interval is as narrow as that of the grid. The grid is read twice:

fitted: by the posterior that the search uses itself, on all trials of the grid.
as printed: the smallest m of the grid with a success rate above 1/2, from the size before it at the
    2.5 % quantile of 200 bootstrap resamples, to that of the 97.5 % quantile.

A search with the grid's information at the threshold needs at least Σ 4P(1 − P) trials: its share
stands beside (c = 1). `covers` is how often the interval of 95 % has the threshold in it; `analyze`
fits a curve to the trials of the search and resamples them.
"""

import argparse
import time

import numpy as np
from scipy import special

from finetti.probe.analysis.critical_size import critical_size
from finetti.probe.analysis.curve_fits import fit_curves
from finetti.probe.analysis.resampling import resample_cells
from finetti.probe.search.search_design import SearchDesign

RANGE = {"minimum": 10, "maximum": 2000}
GRIDS = {
    "paper": (np.arange(50, 201, 10), 50),
    "coarse": (np.arange(50, 201, 30), 12),
    "wide": (np.rint(20 * 2 ** (np.arange(16) / 3)).astype(int), 50),
}
N_RESAMPLES = 200


def success(n_samples, threshold, slope, ceiling):
    odds = special.logit(0.5 / ceiling) + slope * np.log(n_samples / threshold)
    return ceiling * special.expit(odds)


def search(ratio, rng, curve):
    """Rows (samples, trials, successes) of a search, its result and its rounds."""
    design, counts, rounds = SearchDesign(**RANGE, start=32, ratio=ratio, max_trials=2000), {}, 0
    while proposed := design.propose([(m, *of) for m, of in counts.items()]):
        rounds += 1
        for m, n in proposed:
            trials, hits = counts.get(m, (0, 0))
            counts[m] = trials + n, hits + int(rng.binomial(n, success(m, *curve)))
    result = design.result([(m, *of) for m, of in counts.items()])
    return result, rounds


def as_printed(sizes, hits, n, rng):
    """The interval of the smallest m with a success rate above 1/2."""
    above = rng.binomial(n, hits / n, (N_RESAMPLES, len(sizes))) > n / 2
    first = np.sort(np.where(above.any(1), above.argmax(1), len(sizes) - 1))
    low, high = first[[int(0.025 * N_RESAMPLES), int(0.975 * N_RESAMPLES)]]
    return sizes[max(0, low - 1)], sizes[high]


def analyzed(history, rng):
    """The interval of `analyze`."""
    m, n, hits = np.array(history, dtype=float).T
    resampled = fit_curves(m, resample_cells(hits, n, N_RESAMPLES, rng), n)
    fits = fit_curves(m, hits[None], n)
    return critical_size(fits, resampled, (hits, n), 0.5, 0.95, rng).interval


def row(grid, slope, ceiling, learners, covered):
    sizes, n = GRIDS[grid]
    found = []
    for number in range(learners):
        rng = np.random.default_rng([number, slope, int(1000 * ceiling), len(sizes), n])
        threshold = np.exp(rng.uniform(np.log(65), np.log(150)))
        curve = (threshold, slope, ceiling)
        hits = rng.binomial(n, success(sizes, *curve))
        grid_rows = [(int(m), n, int(k)) for m, k in zip(sizes, hits, strict=True)]
        fitted = SearchDesign(**RANGE).result(grid_rows).size.interval
        low, high = as_printed(sizes, hits, n, rng)
        one, rounds = search(fitted.high / fitted.low, rng, curve)
        two, _ = search(high / low, rng, curve)
        fit = analyzed(one.history, rng)
        p = success(sizes, threshold, slope, 1.0)
        found.append(
            {
                "limit": 4 * n * (p * (1 - p)).sum(),
                "fitted": np.log(fitted.high / fitted.low),
                "fitted_covers": threshold in fitted,
                "trials": one.trials,
                "rounds": rounds,
                "width": np.log(one.size.interval.high / one.size.interval.low),
                "covers": threshold in one.size.interval,
                "analyze_width": np.log(fit.high / max(fit.low, 1)),
                "analyze_covers": threshold in fit,
                "printed": np.log(high / low),
                "printed_covers": low <= threshold <= high,
                "printed_trials": two.trials,
                "printed_width": np.log(two.size.interval.high / two.size.interval.low),
                "two_covers": threshold in two.size.interval,
            }
        )
    of = {name: np.array([each[name] for each in found], dtype=float) for name in found[0]}
    covered += [*of["covers"], *of["two_covers"]]
    middle = {name: np.median(each) for name, each in of.items()}
    share = {name: np.mean(each) for name, each in of.items()}
    total = n * len(sizes)
    return (
        f"| {grid}, {total} | {slope} | {ceiling} "
        f"| {middle['fitted']:.3f} ({share['fitted_covers']:.0%}) "
        f"| {middle['width']:.3f} ({share['covers']:.0%}) "
        f"| {middle['trials']:.0f} | {middle['trials'] / total:.2f} "
        f"| {middle['limit'] / total:.2f} | {middle['rounds']:.0f} "
        f"| {middle['analyze_width']:.3f} ({share['analyze_covers']:.0%}) "
        f"| {middle['printed']:.3f} ({share['printed_covers']:.0%}) "
        f"| {middle['printed_width']:.3f} ({share['two_covers']:.0%}) "
        f"| {middle['printed_trials']:.0f} | {middle['printed_trials'] / total:.2f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--learners", type=int, default=30, help="simulated learners per row")
    parser.add_argument("--grids", nargs="+", choices=GRIDS, default=list(GRIDS))
    parser.add_argument("--slopes", nargs="+", type=int, default=[6, 12, 24])
    parser.add_argument("--ceilings", nargs="+", type=float, default=[1.0, 0.9])
    options = parser.parse_args()
    start, covered = time.perf_counter(), []
    columns = (
        "grid, trials",
        "b",
        "c",
        "fitted width (covers)",
        "search width (covers)",
        "trials",
        "share",
        "least",
        "rounds",
        "`analyze` width (covers)",
        "printed width (covers)",
        "search width (covers)",
        "trials",
        "share",
    )
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for grid in options.grids:
        for slope in options.slopes:
            for ceiling in options.ceilings:
                print(row(grid, slope, ceiling, options.learners, covered), flush=True)
    seconds = time.perf_counter() - start
    print(f"\n{np.mean(covered):.1%} of {len(covered)} searches cover; {seconds:.0f} seconds")


if __name__ == "__main__":
    main()

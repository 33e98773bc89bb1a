"""The engine of studies against its peers: cost per trial, bytes per trial, scaling of workers.

    python benchmarks/studies.py                    # 10⁴ trivial trials, and 1 → 2 workers
    python benchmarks/studies.py --trials 1000 --seconds 4

Overhead: trials that do nothing, in cohorts of 64, stored one row each; start-up apart. Scaling:
trials that keep one core busy for 20 ms each (a loop in Python: no threads of its own), on 1 and 2
workers; the goal of ≥ 1.8× needs two idle cores. Peers store nothing and survive nothing: joblib
(loky) with its automatic batches, and plain Dask futures, one per trial, on workers of one thread.
"""

import argparse
import contextlib
import inspect
import json
import tempfile
import time
from pathlib import Path

# As large as the seeds of trials: Python's arithmetic is slower for them than for small numbers.
SEED = 2**62


def busy(seed, loops):
    total = 0
    for i in range(loops):
        total += i * seed
    return {"value": total % 1000}


def trivial(seed, n):
    return {"value": seed % 1000 / n}


def study(folder, kind, **fields):
    from finetti.studies import Study

    folder = Path(folder)
    (folder / "kinds.py").write_text(f"{inspect.getsource(busy)}\n{inspect.getsource(trivial)}")
    number = len(list(folder.glob("*.sqlite")))
    store = folder / f"{number}.sqlite"
    return Study(f"kinds.py:{kind}", store=store, directory=folder, **fields)


def timed(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def overhead(folder, trials):
    """Milliseconds and bytes per trivial trial; start-up is that of a study of one trial."""
    rows = {}
    for name, options in {
        "finetti inline": {"executor": "inline"},
        "finetti local": {},
        "finetti --workers 1": {"workers": 1},
    }.items():
        fields = {"grid": {"n": [1, 2, 4, 5]}, "cohort": 64}
        one = study(folder, "trivial", fixed={"n": 1})
        startup, _ = timed(lambda s=one, o=options: s.run(quiet=True, **o))
        many = study(folder, "trivial", trials=trials // 4, **fields)
        total, summary = timed(lambda s=many, o=options: s.run(quiet=True, **o))
        assert summary.done == trials
        rows[name] = {
            "ms_per_trial": 1000 * (total - startup) / trials,
            "startup_s": startup,
            "bytes_per_trial": many.store.stat().st_size / trials,
        }
    finished, _ = timed(lambda: many.run(quiet=True))
    rows["finetti, already finished"] = {"ms_per_trial": 1000 * finished / trials}
    return rows


def peers_overhead(trials):
    rows = {}
    from joblib import Parallel, delayed

    with Parallel(n_jobs=2) as parallel:
        parallel(delayed(trivial)(i, 1) for i in range(2))
        seconds, _ = timed(lambda: parallel(delayed(trivial)(i, 1) for i in range(trials)))
    rows["joblib, 2 workers"] = {"ms_per_trial": 1000 * seconds / trials}
    with dask_workers(1) as client:
        client.gather(client.map(trivial, range(2), n=1))
        seconds, _ = timed(lambda: client.gather(client.map(trivial, range(trials), n=2)))
    rows["Dask futures, 1 worker"] = {"ms_per_trial": 1000 * seconds / trials}
    return rows


@contextlib.contextmanager
def dask_workers(count):
    """Dask workers on this machine, with one thread each as ours."""
    import distributed

    fields = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**fields) as cluster, distributed.Client(cluster) as client:
        yield client


def loops_for(seconds):
    """How many loops keep one core busy for ``seconds``."""
    once, _ = timed(lambda: busy(SEED, 200_000))
    return int(200_000 * seconds / once)


def work_seconds(table):
    """From the first to the last outcome, so that starting workers is left out."""
    finished = table["finished"].sort_values()
    return (finished.iloc[-1] - finished.iloc[0]).total_seconds()


def scaling(folder, seconds, rounds):
    """Time of the same busy trials on 1 and on 2 workers; the best of some rounds."""
    loops = loops_for(0.02)
    count = int(seconds / 0.02)
    found = {"finetti": {}, "joblib": {}, "Dask futures": {}}

    def note(name, workers, value):
        best = found[name].get(workers)
        found[name][workers] = value if best is None else min(best, value)

    from joblib import Parallel, delayed

    for _ in range(rounds):
        for workers in (1, 2):
            own = study(folder, "busy", fixed={"loops": loops}, trials=count, cohort=8)
            own.run(workers=workers, quiet=True)
            note("finetti", workers, work_seconds(own.table(details=True)))
            with Parallel(n_jobs=workers) as parallel:
                parallel(delayed(busy)(i, 10) for i in range(workers))
                note(
                    "joblib",
                    workers,
                    timed(
                        lambda p=parallel: p(delayed(busy)(SEED + i, loops) for i in range(count))
                    )[0],
                )
            with dask_workers(workers) as client:
                client.gather(client.map(busy, range(workers), loops=10))
                futures = timed(
                    lambda c=client: c.gather(c.map(busy, range(SEED, SEED + count), loops=loops))
                )
                note("Dask futures", workers, futures[0])
    return {
        name: {"one_s": times[1], "two_s": times[2], "speedup": times[1] / times[2]}
        for name, times in found.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=16.0, help="of work, for the scaling")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = {
            "overhead": {**overhead(folder, arguments.trials), **peers_overhead(arguments.trials)},
            "scaling": scaling(folder, arguments.seconds, arguments.rounds),
        }
    for title, rows in report.items():
        print(title)
        for name, values in rows.items():
            print(f"  {name:28}", "  ".join(f"{k} {v:.3f}" for k, v in values.items()))
    print(json.dumps(report))


if __name__ == "__main__":
    main()

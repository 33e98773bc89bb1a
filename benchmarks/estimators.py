"""A random-feature attention fit against its peers: ratios of time and peak memory in one run.

    python benchmarks/estimators.py                       # n = 10⁵, two threads
    python benchmarks/estimators.py --n 20000 --rounds 1  # a first look
    python benchmarks/estimators.py --latency             # one row through each estimator

Ridge regression at a given ridge on 200 heads of 16 keys in 16 dimensions, 3400 features with an
intercept; float32 tokens. All peers get the same heads. `numpy-float32` is what one writes by hand:
features by matrix products, FᵀF in float32 chunk by chunk (NumPy calls the symmetric product),
added up in float64, one Cholesky factorization; `torch-float32` is the same in PyTorch, which has
no symmetric product. `scikit-learn` is a pipeline in float64, a FunctionTransformer before Ridge.
Every measurement is a process of its own, so that peak memory means something; peers take turns,
medians are compared. The first fit compiles and is not counted.
The rate counts half a product FᵀF, as much as there is to compute, and the features; it is compared
with that of a 2048³ product in float32. The error is that of 256 predictions against float64,
relative to their spread. Peak memory is what a fit takes beside its data.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

from harness import forget_peak, gemm_gflops, resident_kilobytes, run_worker

HEADS, KEYS, DIMENSION, RIDGE, SEED = 200, 16, 16, 1.0, 0
FEATURES = HEADS * (DIMENSION + 1)
PEERS = ("finetti", "numpy-float32", "torch-float32", "scikit-learn")
TEST_ROWS = 256


def data(n):
    """Tokens on the sphere, and a target that depends on query and keys."""
    import numpy as np

    rng = np.random.default_rng(SEED)
    tokens = rng.normal(size=(n + TEST_ROWS, KEYS + 1, DIMENSION)).astype(np.float32)
    tokens /= np.linalg.norm(tokens, axis=2, keepdims=True)
    query, keys = tokens[:, :1], tokens[:, 1:]
    targets = np.mean(np.sum(query * keys, axis=2) * keys[:, :, 0], axis=1) * DIMENSION
    targets = targets + 0.1 * rng.normal(size=len(targets))
    return tokens[:n], targets[:n], tokens[n:]


def flops(n):
    per_row = FEATURES * (FEATURES + 1)
    per_head = (DIMENSION + 1) ** 2 + 2 * KEYS * (DIMENSION + 1)
    return n * (per_row + 2 * HEADS * per_head)


def drawn_heads():
    """Those that the estimator draws."""
    import jax
    import numpy as np
    from sklearn.utils import check_random_state

    from finetti.attention import RandomFeatureAttention

    seed = check_random_state(SEED).randint(2**31 - 1)
    with jax.enable_x64(True):
        heads = RandomFeatureAttention(jax.random.key(seed), HEADS, DIMENSION).draws
    return np.asarray(heads, np.float32)


def features_of(tokens, heads):
    """By products: first query with all heads, then with the keys; (n, 3400)."""
    import numpy as np

    with_bias = np.concatenate([tokens, np.ones_like(tokens[:, :, :1])], axis=2)
    query, keys = with_bias[:, 0], with_bias[:, 1:]
    width = DIMENSION + 1
    read = (query @ heads.transpose(1, 0, 2).reshape(width, -1)).reshape(-1, HEADS, width)
    scores = read @ keys.transpose(0, 2, 1)
    np.maximum(scores, 0, out=scores)
    found = scores @ keys
    found *= HEADS**-0.5 / KEYS
    return found.reshape(len(tokens), -1)


def finetti_fit(tokens, targets):
    from finetti.estimators import RandomFeatureAttentionRegressor

    model = RandomFeatureAttentionRegressor(HEADS, ridge=RIDGE, random_state=SEED)
    return lambda: model.fit(tokens, targets).predict


def numpy_fit(tokens, targets):
    import numpy as np
    import scipy.linalg

    heads, size = drawn_heads(), 2048

    def fit():
        gram = np.zeros((FEATURES, FEATURES))
        cross, first = np.zeros(FEATURES), np.zeros(FEATURES)
        # About the mean of the first chunk, or the common part would take the digits.
        origin, middle = features_of(tokens[:size], heads).mean(axis=0), np.float32(targets.mean())
        for start in range(0, len(tokens), size):
            rows = features_of(tokens[start : start + size], heads)
            rows -= origin
            gram += rows.T @ rows
            cross += rows.T @ (targets[start : start + size].astype(np.float32) - middle)
            first += rows.sum(axis=0)
        mean = first / len(tokens)
        gram -= len(tokens) * np.outer(mean, mean)
        cross -= first * (targets.mean() - middle)
        gram[np.diag_indices(FEATURES)] += RIDGE
        factor = scipy.linalg.cho_factor(gram, overwrite_a=True, check_finite=False)
        coefficients = scipy.linalg.cho_solve(factor, cross)
        intercept = targets.mean() - (origin + mean) @ coefficients
        return lambda rows: features_of(rows, heads) @ coefficients + intercept

    return fit


def torch_fit(tokens, targets):
    import torch

    heads, size = torch.tensor(drawn_heads()), 2048
    tokens, targets = torch.tensor(tokens), torch.tensor(targets)

    def features(rows):
        with_bias = torch.cat([rows, torch.ones_like(rows[:, :, :1])], dim=2)
        query, keys = with_bias[:, 0], with_bias[:, 1:]
        width = DIMENSION + 1
        read = (query @ heads.permute(1, 0, 2).reshape(width, -1)).reshape(-1, HEADS, width)
        scores = torch.bmm(read, keys.transpose(1, 2)).relu_()
        return (torch.bmm(scores, keys) * (HEADS**-0.5 / KEYS)).reshape(len(rows), -1)

    def fit():
        gram = torch.zeros(FEATURES, FEATURES, dtype=torch.float64)
        cross, first = torch.zeros(2, FEATURES, dtype=torch.float64)
        origin, middle = features(tokens[:size]).mean(dim=0), targets.mean()
        for start in range(0, len(tokens), size):
            rows = features(tokens[start : start + size]).sub_(origin)
            gram += rows.T @ rows
            cross += rows.T @ (targets[start : start + size] - middle).float()
            first += rows.sum(dim=0)
        mean = first / len(tokens)
        gram -= len(tokens) * torch.outer(mean, mean)
        gram.diagonal().add_(RIDGE)
        factor = torch.linalg.cholesky(gram)
        coefficients = torch.cholesky_solve(cross[:, None], factor)[:, 0]
        intercept = middle - (origin + mean) @ coefficients
        return lambda rows: features(torch.tensor(rows)).double() @ coefficients + intercept

    return fit


def sklearn_fit(tokens, targets):
    import numpy as np
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    heads = drawn_heads().astype(np.float64)

    def features(rows):
        parts = np.array_split(rows, max(1, len(rows) // 2048))
        return np.concatenate([features_of(part.astype(np.float64), heads) for part in parts])

    pipeline = make_pipeline(
        FunctionTransformer(features), Ridge(RIDGE, copy_X=False, solver="cholesky")
    )
    return lambda: pipeline.fit(tokens, targets).predict


FITS = {
    "finetti": finetti_fit,
    "numpy-float32": numpy_fit,
    "torch-float32": torch_fit,
    "scikit-learn": sklearn_fit,
}


def worker(peer, n):
    if peer == "latency":
        return latencies()
    tokens, targets, held_out = data(n)
    FITS[peer](tokens[:5000], targets[:5000])()
    forget_peak()
    before = resident_kilobytes("VmRSS")
    fit = FITS[peer](tokens, targets)
    start = time.perf_counter()
    predict = fit()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "megabytes": (resident_kilobytes("VmHWM") - before) / 1024,
        "rate": gemm_gflops(),
        "predictions": predict(held_out).tolist(),
    }


def latencies():
    """Milliseconds of `predict` for one row, after a fit to 300 sets of 4 keys, or rows, in 4
    dimensions."""
    import numpy as np

    import finetti.estimators as room
    from finetti.estimators.table_models import TableModel

    rng = np.random.default_rng(SEED)
    tokens = rng.normal(size=(300, 5, 4)) / 2
    targets = np.mean(tokens[:, 1:, 0] ** 2, axis=1)
    found = {}
    for name in sorted(room.__all__):
        if not name.endswith(("Regressor", "Classifier")):
            continue
        y = targets > np.median(targets) if name.endswith("Classifier") else targets
        kind = getattr(room, name)
        rows = tokens[:, 0] if issubclass(kind, TableModel) else tokens
        model, times = kind().fit(rows, y), []
        for row in range(200):
            start = time.perf_counter()
            model.predict(rows[row : row + 1])
            times.append(1e3 * (time.perf_counter() - start))
        found[name] = statistics.median(times)
    return found


def measure(peer, n, threads):
    return run_worker(["--worker", peer, n], threads)


def show_latency(options):
    print("| one row through | milliseconds |\n|---|---|")
    for name, value in measure("latency", 0, options.threads).items():
        print(f"| {name} | {value:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--latency", action="store_true", help="one row through each estimator")
    parser.add_argument("--out", type=Path, help="write all numbers as JSON")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(options.worker[0], int(options.worker[1]))))
        return
    if options.latency:
        show_latency(options)
        return
    runs = {peer: [] for peer in options.peers}
    for _ in range(options.rounds):
        for peer in options.peers:
            runs[peer].append(measure(peer, options.n, options.threads))
    rate = max(run["rate"] for each in runs.values() for run in each)
    print(f"n = {options.n}, {FEATURES} features, {options.threads} threads; ", end="")
    print(f"GEMM {rate:.0f} GFLOP/s in float32\n")
    print("| fit | seconds | GFLOP/s | of GEMM | peak MB | error | Finetti is |")
    print("|---|---|---|---|---|---|---|")
    seconds = {p: statistics.median(run["seconds"] for run in each) for p, each in runs.items()}
    exact = runs.get("scikit-learn")
    for peer, each in runs.items():
        own = flops(options.n) / seconds[peer] / 1e9
        peak = statistics.median(run["megabytes"] for run in each)
        error = ""
        if exact:
            wanted = exact[0]["predictions"]
            pairs = zip(each[0]["predictions"], wanted, strict=True)
            error = f"{max(abs(a - b) for a, b in pairs) / statistics.stdev(wanted):.0e}"
        ratio = f"{seconds[peer] / seconds['finetti']:.2f}×" if "finetti" in seconds else ""
        print(
            f"| {peer} | {seconds[peer]:.2f} | {own:.0f} | {100 * own / rate:.0f} % | {peak:.0f} | "
            f"{error} | {ratio} |"
        )
    if "finetti" in runs:
        twice = measure("finetti", 2 * options.n, options.threads)
        print(
            f"\nPeak memory of Finetti beside its data: "
            f"{statistics.median(run['megabytes'] for run in runs['finetti']):.0f} MB at n, "
            f"{twice['megabytes']:.0f} MB at 2n."
        )
    if options.out:
        options.out.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()

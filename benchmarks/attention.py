"""CME attention against its peers: ratios of time and peak memory in one run.

    python benchmarks/attention.py                 # L = 256 … 4096, two threads
    python benchmarks/attention.py --lengths 16384 --rounds 1 --peers finetti gpytorch
    python benchmarks/attention.py --primal        # a kernel with 153 features: linear in L

RBF kernel at the default scale of attention (1/√d_k), d_k = 16, d_v = 64, ridge 0.1, as many
queries as keys, float32 data. Finetti factors in float32 and checks the answer; the peers work in
float32, finetti-float64, scikit-learn and torch-float64 in float64. Every measurement is a process
of its own, so that peak memory means something; peers take turns, medians are compared. The error
is that of 64 queries against a float64 solution, relative to the largest value.
"""

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path

from harness import Failed, forget_peak, gemm_gflops, resident_kilobytes, run_worker

D_K, D_V, RIDGE, SCALE = 16, 64, 0.1, 0.25
PEERS = (
    "finetti",
    "torch-cholesky",
    "torch-solve",
    "gpytorch",
    "finetti-float64",
    "scikit-learn",
    "torch-float64",
)
NO_GRADIENT = ("scikit-learn",)
NOT_OURS = ("torch-cholesky", "torch-solve", "gpytorch", "scikit-learn", "torch-float64", "gemm")
# Beyond this length the float64 reference takes longer than what it judges.
LARGEST_JUDGED = 4096


def data(length):
    import numpy as np

    rng = np.random.default_rng(0)
    return [rng.normal(size=(length, d)).astype(np.float32) for d in (D_K, D_K, D_V)]


def finetti_call(length, gradient, route="auto", kernel=None):
    import jax
    import jax.numpy as jnp

    from finetti.attention import ConditionalMean
    from finetti.kernels import RBF

    tokens = [jnp.asarray(array) for array in data(length)]
    module = ConditionalMean(kernel or RBF(SCALE**-0.5), ridge=RIDGE, route=route)

    def forward(query, keys, values):
        return module(query, keys, values)

    function = jax.jit(forward)
    if gradient:
        function = jax.jit(jax.grad(lambda *args: jnp.sum(forward(*args) ** 2), argnums=(0, 1, 2)))
    return lambda: jax.block_until_ready(function(*tokens))


def torch_call(length, gradient, solver, double=False):
    import torch

    tokens = [torch.tensor(array) for array in data(length)]
    tokens = [array.double() if double else array for array in tokens]

    def gram(x, y):
        squared = (x * x).sum(1)[:, None] + (y * y).sum(1)[None] - 2 * x @ y.T
        return torch.exp(-0.5 * SCALE * squared.clamp_min(0))

    def forward(query, key, value):
        if solver == "gpytorch":
            import gpytorch

            kernel = gpytorch.kernels.RBFKernel()
            kernel.lengthscale = SCALE**-0.5
            covariance = kernel(key).add_diagonal(torch.tensor(RIDGE))
            # Its own conjugate gradients stop at a relative residual of 0.01 or more; the exact
            # process is asked for, as of the others.
            with gpytorch.settings.max_cholesky_size(10**6):
                return kernel(query, key).to_dense() @ covariance.solve(value)
        system = gram(key, key) + RIDGE * torch.eye(length, dtype=key.dtype)
        if solver == "solve":
            return gram(query, key) @ torch.linalg.solve(system, value)
        return gram(query, key) @ torch.cholesky_solve(value, torch.linalg.cholesky(system))

    def run():
        if not gradient:
            with torch.no_grad():
                return forward(*tokens)
        leaves = [array.clone().requires_grad_() for array in tokens]
        forward(*leaves).square().sum().backward()
        return leaves

    return run


def sklearn_call(length, gradient):
    from sklearn.kernel_ridge import KernelRidge

    query, key, value = data(length)
    model = KernelRidge(kernel="rbf", gamma=SCALE / 2, alpha=RIDGE)
    return lambda: model.fit(key, value).predict(query)


def call_of(peer, length, gradient):
    if peer == "finetti":
        return finetti_call(length, gradient)
    if peer == "finetti-float64":
        return finetti_call(length, gradient, route="cholesky")
    if peer in ("primal", "dual"):
        from finetti.kernels import Polynomial

        route = "primal" if peer == "primal" else "mixed"
        return finetti_call(length, gradient, route, Polynomial(2))
    if peer == "scikit-learn":
        return sklearn_call(length, gradient)
    if peer == "torch-float64":
        return torch_call(length, gradient, "cholesky", double=True)
    return torch_call(length, gradient, peer.removeprefix("torch-"))


def worker(peer, length, mode, seconds):
    if peer == "gemm":
        print(json.dumps({dtype: gemm_gflops(dtype=dtype) for dtype in ("float32", "float64")}))
        return
    run = call_of(peer, length, mode == "gradient")
    before = resident_kilobytes("VmRSS")
    run()  # compiles, allocates
    forget_peak()
    times = []
    while not times or (sum(times) < seconds and len(times) < 200):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    peak = resident_kilobytes("VmHWM") - before
    result = {"seconds": statistics.median(times), "megabytes": peak / 1024}
    if mode == "forward" and length <= LARGEST_JUDGED and peer not in ("primal", "dual"):
        result["error"] = error_of(run(), length)
    print(json.dumps(result))


def error_of(answer, length):
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve
    from scipy.spatial.distance import cdist

    query, key, value = (array.astype(np.float64) for array in data(length))
    system = np.exp(-0.5 * SCALE * cdist(key, key, "sqeuclidean")) + RIDGE * np.eye(length)
    gram = np.exp(-0.5 * SCALE * cdist(query[:64], key, "sqeuclidean"))
    exact = gram @ cho_solve(cho_factor(system), value)
    return float(np.abs(np.asarray(answer)[:64] - exact).max() / np.abs(value).max())


def measure(peer, length, mode, options):
    # XLA brings its own threads; those of the BLAS behind JAX would spin beside them.
    blas_threads = options.threads if peer in NOT_OURS else 1
    arguments = ["--worker", peer, length, mode, options.seconds]
    try:
        return run_worker(arguments, options.threads, blas_threads)
    except Failed as error:
        print(f"{peer} at L = {length}, {mode}: failed\n{error}", file=sys.stderr)
        return None


def medians(length, mode, options):
    """Peers take turns; the median over the rounds."""
    found = {}
    for _ in range(options.rounds):
        for peer in options.peers:
            if mode == "gradient" and peer in NO_GRADIENT:
                continue
            result = measure(peer, length, mode, options)
            if result:
                found.setdefault(peer, []).append(result)
    return {
        peer: {key: statistics.median(r[key] for r in results) for key in results[0]}
        for peer, results in found.items()
    }


def primal(options):
    """Polynomial kernel of degree 2, 153 features: the primal form against the dual one."""
    options.peers = ("primal", "dual")
    print("| L | primal, ms | dual, ms | ratio |\n|---|---|---|---|")
    seconds = {}
    for length in (1024, 4096, 16384, 65536):
        options.peers = ("primal", "dual") if length <= 4096 else ("primal",)
        found = medians(length, "forward", options)
        seconds[length] = found["primal"]["seconds"]
        dual = found["dual"]["seconds"] if "dual" in found else None
        shown = f"{1e3 * dual:.1f} | {dual / seconds[length]:.1f}×" if dual else " | "
        print(f"| {length} | {1e3 * seconds[length]:.1f} | {shown} |", flush=True)
    lengths = sorted(seconds)
    slope = math.log(seconds[lengths[-1]] / seconds[lengths[0]]) / math.log(
        lengths[-1] / lengths[0]
    )
    print(f"\nThe primal form grows like L^{slope:.2f} from {lengths[0]} to {lengths[-1]}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--modes", nargs="+", default=["forward", "gradient"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--primal", action="store_true", help="primal against dual form")
    parser.add_argument("--out", type=Path, help="write all numbers as JSON")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        peer, length, mode, seconds = options.worker
        worker(peer, int(length), mode, float(seconds))
        return

    if options.primal:
        primal(options)
        return
    rates = measure("gemm", 0, "", options)
    print(
        f"GEMM: {rates['float32']:.0f} GFLOP/s float32, {rates['float64']:.0f} float64, "
        f"{options.threads} threads\n"
    )
    table = {}
    for mode in options.modes:
        print(f"| L | {mode} | milliseconds | peak MB | error | Finetti is |")
        print("|---|---|---|---|---|---|")
        for length in options.lengths:
            results = medians(length, mode, options)
            table[f"{mode}-{length}"] = results
            ours = results.get("finetti")
            for peer, result in results.items():
                ratio = f"{result['seconds'] / ours['seconds']:.2f}×" if ours else ""
                error = f"{result['error']:.0e}" if "error" in result else ""
                print(
                    f"| {length} | {peer} | {1e3 * result['seconds']:.1f} | "
                    f"{result['megabytes']:.0f} | {error} | {ratio} |",
                    flush=True,
                )
        print()
    if options.out:
        options.out.write_text(json.dumps({"gemm": rates, "table": table}, indent=1))


if __name__ == "__main__":
    main()

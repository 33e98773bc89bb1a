"""What the benchmarks share: measurements in processes of their own, clocks, memory, GEMM rates."""

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


class Failed(Exception):
    """A measurement that ended with an error or took too long; its last words."""


def run_worker(arguments, threads, blas_threads=None, timeout=None, environment=None):
    """Run this script with ``arguments`` as a process of its own; return the JSON it prints last.

    The libraries take ``threads`` threads and the BLAS behind NumPy ``blas_threads``. XLA brings
    its own, one per processor, so the process sees as many processors as it may have threads.
    """
    variables = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(blas_threads or threads),
    }
    command = [sys.executable, sys.argv[0], *(str(each) for each in arguments)]
    processors = sorted(os.sched_getaffinity(0))[:threads]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=variables | (environment or {}),
            preexec_fn=lambda: os.sched_setaffinity(0, processors),
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {timeout} s") from None
    if done.returncode:
        raise Failed(done.stderr.strip()[-1500:] or "failed without a word")
    return json.loads(done.stdout.strip().splitlines()[-1])


def least_seconds(call, seconds=0.0, rounds=1, clock="wall"):
    """The least time of a call: other work on the machine can only add to it.

    It is called at least ``rounds`` times, and until ``seconds`` have passed.
    """
    now, found, end = CLOCKS[clock], [], time.perf_counter() + seconds
    while len(found) < rounds or time.perf_counter() < end:
        start = now()
        call()
        found.append(now() - start)
    return min(found)


def gemm_gflops(library="numpy", dtype="float32", clock="wall"):
    """GFLOP/s of a 2048³ product in NumPy, JAX or PyTorch: the limit of the machine today."""
    import numpy as np

    matrix = np.random.default_rng(0).normal(size=(2048, 2048)).astype(dtype)
    if library == "jax":
        import jax

        there, product = jax.numpy.asarray(matrix), jax.jit(lambda a: a @ a)
        multiply = lambda: product(there).block_until_ready()  # noqa: E731
    elif library == "torch":
        import torch

        there = torch.tensor(matrix)
        multiply = lambda: there @ there  # noqa: E731
    else:
        multiply = lambda: matrix @ matrix  # noqa: E731
    multiply()
    return 2 * 2048**3 / least_seconds(multiply, 0.5, 2, clock) / 1e9


def resident_kilobytes(which):
    """Memory in use (VmRSS) or the most since `forget_peak` (VmHWM), on Linux."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(which + ":")[1].split()[0])


def forget_peak():
    """Begin to measure peak memory anew: compiling takes memory once, each call takes less."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")

"""Linear and delta-rule attention in chunks against the recurrence: ratios of time in one run.

    python benchmarks/family.py                               # two threads, wall time
    python benchmarks/family.py --threads 1 --clock cpu       # where others use the machine, too

Causal calls over L = 4096 keys, float32, as many queries as keys. The recurrence is that of
`tests/recurrence.py` under `jax.lax.scan`, S d_v×d_k as in its definition;
"transposed" is the same with Sᵀ, whose products XLA fuses into one pass over the state. All run in
one process, in turns; the least time of all rounds counts. The rate of Finetti is that of the
products it makes, and "of GEMM" what this is of a 2048³ product in the same process.
"""

import argparse
import itertools
import os
import sys
from pathlib import Path

from harness import CLOCKS, gemm_gflops, least_seconds

LENGTH = 4096
RULES = ("linear", "delta", "delta, decay .99")


def transposed(rule, query, keys, values):
    """The recurrence with Sᵀ instead of S."""
    import jax
    import jax.numpy as jnp

    decay = 1.0 if rule.log_decay is None else jnp.exp(rule.log_decay)

    def write(state, pair):
        asked, key, value = pair
        faded = decay * state
        if rule.step is None:
            state = faded + jnp.outer(key, value)
        else:
            state = faded + rule.step / (key @ key) * jnp.outer(key, value - key @ faded)
        return state, asked @ state

    start = jnp.zeros((keys.shape[1], values.shape[1]), keys.dtype)
    return jax.lax.scan(write, start, (query, keys, values))[1]


def programs(name, heads, width, gradient):
    """What is timed: three ways to the same answer, on the same tokens."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from finetti.attention import DeltaRule, LinearAttention

    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from recurrence import recurrence

    rng = np.random.default_rng(0)
    shape = (heads, LENGTH, width)
    tokens = [jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(3)]
    module = {
        "linear": LinearAttention(),
        "delta": DeltaRule(),
        "delta, decay .99": DeltaRule(decay=0.99),
    }[name]
    rule = module.rule(jnp.float32)
    ways = {
        "finetti": lambda q, k, v: module(q, k, v, is_causal=True),
        "recurrence": jax.vmap(lambda q, k, v: recurrence(rule, q, k, v)[0]),
        "transposed": jax.vmap(lambda q, k, v: transposed(rule, q, k, v)),
    }
    compiled = {}
    for way, function in ways.items():
        if gradient:
            loss = lambda *tokens, f=function: jnp.sum(f(*tokens) ** 2)  # noqa: E731
            function = jax.grad(loss, argnums=(0, 1, 2))
        compiled[way] = jax.jit(function)
    outs = {way: compiled[way](*tokens) for way in ways}
    check({way: outs[way][0] if gradient else outs[way] for way in ways})
    return {way: lambda c=compiled[way]: jax.block_until_ready(c(*tokens)) for way in ways}


def check(outs):
    import numpy as np

    exact = np.asarray(outs["recurrence"])
    for way, out in outs.items():
        error = np.abs(np.asarray(out) - exact).max() / np.abs(exact).max()
        assert error < 1e-4, f"{way}: {error}"


def flops(name, heads, width):
    """Of the products of a forward call, chunks of C = 64: all multiplications by two."""
    chunk = 64
    rows = 1 if name == "linear" else 2  # queries; the delta rule's keys ask as well
    per_token = 2 * rows * chunk * width + 2 * rows * width**2  # scores and carried
    per_token += 2 * chunk * width + 2 * width**2  # what is read of the chunk, and the state
    per_token += 0 if name == "linear" else chunk * width  # the triangular solve
    return heads * LENGTH * per_token


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--heads", nargs="+", type=int, default=[1, 8, 2])
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 64, 128])
    options = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))[-options.threads :]
    os.sched_setaffinity(0, allowed)  # before JAX counts the processors
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    rate = gemm_gflops("jax", clock=options.clock)
    print(f"L = {LENGTH}, {options.threads} thread(s), {options.clock} time, ", end="")
    print(f"least of {options.rounds} rounds; GEMM {rate:.0f} GFLOP/s in float32\n")
    print(
        "| heads | d_k = d_v | rule | what | finetti ms | recurrence ms | Finetti is | "
        "transposed ms | Finetti is | GFLOP/s | of GEMM |\n|" + "---|" * 11
    )
    for heads, width in zip(options.heads, options.widths, strict=True):
        for name, gradient in itertools.product(RULES, (False, True)):
            calls = programs(name, heads, width, gradient)
            times = dict.fromkeys(calls, float("inf"))
            for _ in range(options.rounds):
                for way, call in calls.items():
                    times[way] = min(times[way], least_seconds(call, clock=options.clock))
            print(row(heads, width, name, gradient, times, rate), flush=True)


def row(heads, width, name, gradient, times, rate):
    ours, theirs, other = (times[way] for way in ("finetti", "recurrence", "transposed"))
    # Reverse mode makes each product twice more.
    speed = (3 if gradient else 1) * flops(name, heads, width) / ours / 1e9
    what = "with gradient" if gradient else "forward"
    return (
        f"| {heads} | {width} | {name} | {what} | {1e3 * ours:.1f} | {1e3 * theirs:.1f} | "
        f"{theirs / ours:.1f}× | {1e3 * other:.1f} | {other / ours:.1f}× | {speed:.0f} | "
        f"{100 * speed / rate:.0f} % |"
    )


if __name__ == "__main__":
    main()

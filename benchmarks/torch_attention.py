"""Attention in PyTorch against its peers, in turns within one process: ratios of the least times.

CME attention (RBF, d_k = 16, d_v = 64, ridge 0.1, as many queries as keys, float32 data) against a
competent user's code, torch.linalg.cholesky and torch.cholesky_solve in float32 (unchecked) and in
float64, against GPyTorch's exact process (float32), each differentiated by autograd, and against
the JAX side of this package, compiled before. Causal attention against one solve per query; the
gated delta rule, 8 heads of 32, against the chunks of transformers and the plain recurrence. At the
end the first call of a new process. Packages that are not installed are left out.

    python benchmarks/torch_attention.py --lengths 256 512 1024 2048 4096 --threads 2
"""

import argparse
import functools
import importlib.util
import os
import subprocess
import sys
import time

import torch

from finetti.torch import cme_attention, delta_rule_attention

RIDGE = 0.1
FIRST_CALL = {
    "finetti": (
        "import torch; from finetti.torch import cme_attention as f; x = torch.ones(256, 16)"
    ),
    "JAX route": (
        "import jax, jax.numpy as jnp; from finetti.attention import cme_attention\n"
        "f = lambda *t, **o: jax.block_until_ready(cme_attention(*t, **o))\n"
        "x = jnp.ones((1, 256, 1, 16))"
    ),
}


def gram(xs, ys):
    norms = xs.square().sum(-1)[..., :, None] + ys.square().sum(-1)[..., None, :]
    return torch.exp(-0.5 * (norms - 2 * xs @ ys.mT).clamp_min(0))


def by_cholesky(dtype):
    def attend(query, key, value):
        query, key, value = (each.to(dtype) for each in (query, key, value))
        matrix = gram(key, key) + RIDGE * torch.eye(key.shape[-2], dtype=dtype)
        factor = torch.linalg.cholesky(matrix)
        return (gram(query, key) @ torch.cholesky_solve(value, factor)).float()

    return attend


def by_gpytorch(query, key, value):
    import gpytorch

    kernel = gpytorch.kernels.RBFKernel()
    kernel.lengthscale = 1.0
    covariance = kernel(key).add_diagonal(torch.tensor(RIDGE))
    # Its own conjugate gradients stop at a relative residual of 0.01 or more.
    with gpytorch.settings.max_cholesky_size(10**6):
        return kernel(query, key).to_dense() @ covariance.solve(value)


@functools.cache
def jax_programs():
    import jax

    from finetti.attention import cme_attention as in_jax

    def attend(*tokens):
        # (..., heads, L, E) to (B, L, heads, E)
        wide = (each.reshape(-1, *each.shape[-3:]) if each.ndim > 3 else each for each in tokens)
        wide = (each[None, None] if each.ndim == 2 else each for each in wide)
        return in_jax(*(each.swapaxes(1, 2) for each in wide), ridge=RIDGE, scale=1.0)

    @jax.jit
    def pulled(cotangent, *tokens):
        return jax.vjp(attend, *tokens)[1](cotangent)

    return jax.jit(attend), pulled


def by_jax(tokens, backward):
    """A call without arguments, of arrays that are there."""
    import jax
    import jax.numpy as jnp

    forward, pulled = jax_programs()
    given = [jnp.asarray(each.detach().numpy()) for each in tokens]
    if backward:
        cotangent = jnp.ones_like(forward(*given))
        return lambda: jax.block_until_ready(pulled(cotangent, *given))
    return lambda: jax.block_until_ready(forward(*given))


def one_solve_per_query(query, key, value):
    """What a causal call is without a factor of all prefixes."""
    mask = torch.ones(key.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    return cme_attention(query, key, value, mask, ridge=RIDGE, scale=1.0)


def chunks_of_transformers(query, key, value, log_decay, step):
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    tokens = (each[None].transpose(1, 2) for each in (query, key, value))
    gates = (each[None].transpose(1, 2) for each in (log_decay, step))
    return qwen.torch_chunk_gated_delta_rule(*tokens, *gates)[0]


def recurrence(query, key, value, log_decay, step):
    state, out = torch.zeros(*key.shape[:-2], value.shape[-1], key.shape[-1]), []
    for t in range(key.shape[-2]):
        k, v, rate = key[..., t, :, None], value[..., t, :, None], step[..., t, None, None]
        state = state * log_decay[..., t, None, None].exp()
        state = state - rate * (state @ k - v) @ k.mT
        out.append((state @ query[..., t, :, None])[..., 0])
    return torch.stack(out, -2)


def in_torch(attend, tokens, backward):
    """A call without arguments."""
    if not backward:
        return lambda: attend(*tokens)
    cotangent = torch.ones_like(attend(*tokens))

    def call():
        attend(*(each.detach().requires_grad_() for each in tokens)).backward(cotangent)

    return call


def milliseconds(calls, rounds, seconds):
    """The least time of each call; the rounds go through all of them in turn."""
    best, start = dict.fromkeys(calls, float("inf")), time.perf_counter()
    for number in range(rounds):
        if number > 2 and time.perf_counter() - start > seconds:
            break
        for name, call in calls.items():
            before = time.perf_counter()
            call()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - before))
    return best


def cases(lengths):
    """(title, tokens, ways, whether JAX is one of them)."""
    ours = {"finetti": lambda *tokens: cme_attention(*tokens, ridge=RIDGE, scale=1.0)}
    peers = {"float32": by_cholesky(torch.float32), "float64": by_cholesky(torch.float64)}
    if importlib.util.find_spec("gpytorch"):
        peers["GPyTorch"] = by_gpytorch
    for length in lengths:
        yield f"L = {length}", draw(length, 16, 64), ours | peers, True
    yield "8 × 8 heads of 128 × 32", draw(128, 32, 32, 8, 8), ours | peers, True
    causal = {
        "finetti": lambda *tokens: cme_attention(*tokens, is_causal=True, ridge=RIDGE, scale=1.0),
        "one solve per query": one_solve_per_query,
    }
    yield "causal, L = 128", draw(128, 16, 64), causal, False
    query, key, value = draw(1024, 32, 32, 8)
    gates = torch.rand(8, 1024).log(), torch.rand(8, 1024)
    gated = {
        "finetti": lambda q, k, v, d, s: delta_rule_attention(
            q, k, v, is_causal=True, log_decay=d, step=s
        ),
        "recurrence": recurrence,
    }
    if importlib.util.find_spec("transformers"):
        gated["transformers"] = chunks_of_transformers
    unit = torch.nn.functional.normalize(key, dim=-1)
    yield "gated delta rule, L = 1024", (query, unit, value, *gates), gated, False


def draw(length, d_k, d_v, *lead):
    """Values that follow the keys, with noise."""
    key = torch.randn(*lead, length, d_k)
    phases = torch.arange(d_v) / 20
    value = torch.sin(key[..., :1] + phases) + 0.1 * torch.randn(*lead, length, d_v)
    return key + 0.1 * torch.randn_like(key), key, value


def print_row(title, what, best):
    """Times, and how many times as fast as each peer ours is."""
    mine = best.pop("finetti")
    others = [f"{name} {each:.1f} ({each / mine:.2f}×)" for name, each in best.items()]
    print(f"| {title} | {what} | {mine:.1f} | {', '.join(others)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="*", default=[256, 512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0, help="per row, after three rounds")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    # JAX takes as many threads as there are processors for this process.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    torch.manual_seed(0)
    print("| case | | Finetti, ms | others, ms (Finetti is) |\n|---|---|---|---|")
    for title, tokens, ways, has_jax in cases(options.lengths):
        for backward in (False, True):
            calls = {name: in_torch(way, tokens, backward) for name, way in ways.items()}
            if has_jax:
                calls["JAX route"] = by_jax(tokens, backward)
            for call in calls.values():
                call()
            what = "with gradient" if backward else "forward"
            print_row(title, what, milliseconds(calls, options.rounds, options.seconds))
    best = {}
    for name, setup in FIRST_CALL.items():
        code = f"{setup}\nimport time; s = time.perf_counter(); f(x, x, x); "
        code += "print(1e3 * (time.perf_counter() - s))"
        runs = [subprocess.check_output([sys.executable, "-c", code]) for _ in range(3)]
        best[name] = min(map(float, runs))
    print_row("L = 256, the first call of a process", "forward", best)


if __name__ == "__main__":
    main()

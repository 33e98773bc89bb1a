"""CME attention in PyTorch against a competent user's torch code, in turns within one process.

The peers factor K + λI by torch.linalg.cholesky and solve by torch.cholesky_solve, in float32
(unchecked) and in float64, and are differentiated by autograd. RBF kernel, d_k = 16, d_v = 64,
ridge 0.1, float32 data; the least of all rounds counts. "gated" is the delta rule with a decay per
token in chunks against its recurrence, one token after the other, 8 heads of 32.

    python benchmarks/torch_attention.py --lengths 256 512 1024 --threads 2
"""

import argparse
import time

import torch

from finetti.torch import cme_attention, delta_rule_attention


def gram(xs, ys):
    norms = xs.square().sum(-1)[..., :, None] + ys.square().sum(-1)[..., None, :]
    return torch.exp(-0.5 * (norms - 2 * xs @ ys.mT).clamp_min(0))


def by_cholesky(dtype):
    def attend(query, key, value):
        query, key, value = (each.to(dtype) for each in (query, key, value))
        matrix = gram(key, key) + 0.1 * torch.eye(key.shape[-2], dtype=dtype)
        factor = torch.linalg.cholesky(matrix)
        return (gram(query, key) @ torch.cholesky_solve(value, factor)).float()

    return attend


def loop_over_prefixes(query, key, value):
    """What a causal call is without a factor of all prefixes: a mask, and one solve per query."""
    mask = torch.ones(key.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    return cme_attention(query, key, value, mask, ridge=0.1, scale=1.0)


def recurrence(query, key, value, decay):
    state, out = torch.zeros(*key.shape[:-2], value.shape[-1], key.shape[-1]), []
    for t in range(key.shape[-2]):
        k, v = key[..., t, :, None], value[..., t, :, None]
        state = state * decay[..., t, None, None]
        state = state - (state @ k - v) @ k.mT
        out.append((state @ query[..., t, :, None])[..., 0])
    return torch.stack(out, -2)


def milliseconds(ways, tokens, rounds, backward):
    """The least time of each way; the rounds go through all of them in turn."""
    cotangent = torch.randn_like(next(iter(ways.values()))(*tokens))
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, attend in ways.items():
            given = [each.clone().requires_grad_(backward) for each in tokens]
            start = time.perf_counter()
            out = attend(*given)
            if backward:
                out.backward(cotangent)
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def cases(lengths):
    """(title, ways, tokens)."""
    ours = {"finetti": lambda *tokens: cme_attention(*tokens, ridge=0.1, scale=1.0)}
    peers = {
        "cholesky, float32": by_cholesky(torch.float32),
        "cholesky, float64": by_cholesky(torch.float64),
    }
    for length in lengths:
        yield f"L = {length}", ours | peers, draw(length, 16, 64)
    yield "8 × 8 heads of 128 × 32", ours | peers, draw(128, 32, 32, 8, 8)
    causal = {
        "finetti": lambda *tokens: cme_attention(*tokens, is_causal=True, ridge=0.1, scale=1.0),
        "one solve per query": loop_over_prefixes,
    }
    yield "causal, L = 128", causal, draw(128, 16, 64)
    query, key, value = draw(1024, 32, 32, 8)
    key = torch.nn.functional.normalize(key, dim=-1)
    decay = torch.rand(8, 1024)
    gated = {
        "finetti": lambda q, k, v, d: delta_rule_attention(q, k, v, is_causal=True, decay=d),
        "recurrence": recurrence,
    }
    yield "gated delta rule, L = 1024", gated, (query, key, value, decay)


def draw(length, d_k, d_v, *lead):
    """Values that follow the keys, with noise."""
    key = torch.randn(*lead, length, d_k)
    phases = torch.arange(d_v) / 20
    value = torch.sin(key[..., :1] + phases) + 0.1 * torch.randn(*lead, length, d_v)
    return key + 0.1 * torch.randn_like(key), key, value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print("| case | | way | milliseconds | Finetti is |\n|---|---|---|---|---|")
    for title, ways, tokens in cases(options.lengths):
        for backward in (False, True):
            best = milliseconds(ways, tokens, options.rounds, backward)
            for name, found in best.items():
                ratio = found / best["finetti"]
                what = "with gradient" if backward else "forward"
                print(f"| {title} | {what} | {name} | {found:.1f} | {ratio:.2f}× |", flush=True)


if __name__ == "__main__":
    main()

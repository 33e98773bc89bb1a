"""LoRA adapters: the merged network, by the factors alone; and all that is refused by name."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import checkpoints as make
from finetti.audit import measure_checkpoint, open_checkpoint
from finetti.core.errors import InputError

RANK, ALPHA = 2, 6
CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA}
TARGETS = {
    "bert": ("bert.encoder.layer.1.attention.self.query", "bert.encoder.layer.0.output.dense"),
    "gpt2": (
        "transformer.h.0.attn.c_attn",
        "transformer.h.1.mlp.c_fc",
        "transformer.h.1.attn.c_proj",
    ),
    "llama": ("model.layers.0.self_attn.k_proj", "model.layers.1.mlp.gate_proj"),
}


def factors(arrays, modules, turned, rank=RANK, seed=3):
    rng = np.random.default_rng(seed)
    found = {}
    for module in modules:
        outputs, inputs = arrays[f"{module}.weight"].shape[:: -1 if turned else 1]
        found[module] = rng.normal(size=(rank, inputs)), rng.normal(size=(outputs, rank))
    return found


def adapter(folder, pairs, config=None, more=None):
    folder.mkdir(exist_ok=True)
    tensors = dict(more or {})
    for module, (inner, outer) in pairs.items():
        tensors[f"base_model.model.{module}.lora_A.weight"] = inner
        tensors[f"base_model.model.{module}.lora_B.weight"] = outer
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | (config or {})))
    return folder


@pytest.fixture(scope="module", params=TARGETS)
def case(request, tmp_path_factory):
    """A base, an adapter and the arrays of both merged, of one family."""
    family, folder = request.param, tmp_path_factory.mktemp(request.param)
    kv_heads = 2 if family == "llama" else 4
    arrays, config, _ = make.synthetic(family, kv_heads=kv_heads)
    arrays = {name: array.astype(float) for name, array in arrays.items()}
    turned = family == "gpt2"
    pairs = factors(arrays, TARGETS[family], turned)
    merged = dict(arrays)
    for module, (inner, outer) in pairs.items():
        delta = ALPHA / RANK * outer @ inner
        merged[f"{module}.weight"] = arrays[f"{module}.weight"] + (delta.T if turned else delta)
    base = make.write(folder / "base", arrays, config).parent
    whole = make.write(folder / "merged", merged, config).parent
    tuned = adapter(folder / "adapter", pairs, {"fan_in_fan_out": turned})
    return base, whole, tuned


def numbers(node):
    """All numbers of plain data, in order."""
    if isinstance(node, dict):
        return [number for value in node.values() for number in numbers(value)]
    if isinstance(node, list):
        return [number for value in node for number in numbers(value)]
    return [node] if isinstance(node, int | float) else []


def test_the_adapter_is_the_merged_network(case):
    base, whole, tuned = case
    one = measure_checkpoint(open_checkpoint(tuned, base=base)).to_dict()
    other = make.measured(whole).to_dict()
    np.testing.assert_allclose(numbers(one["layers"]), numbers(other["layers"]), rtol=1e-10)
    assert one["read"] == other["read"]
    by_factors, by_entries = make.compared(tuned, base), make.compared(whole, base)
    assert len(by_factors.moved) == (5 if one["layout"] == "gpt2" else 2)  # three of them fused
    for mine, theirs in zip(by_factors.matrices, by_entries.matrices, strict=True):
        assert (mine.layer, mine.role, mine.rank) == (theirs.layer, theirs.role, theirs.rank)
        assert (mine.delta is None) == (theirs.delta is None)
        if mine.delta is None or theirs.delta is None:
            continue
        assert mine.rank == mine.delta.rank == RANK
        assert mine.relative == pytest.approx(theirs.relative, rel=1e-10)
        for name in ("spectral", "frobenius", "norm_2_1", "norm_2_inf", "rows_2_1", "entries"):
            expected = pytest.approx(getattr(theirs.delta, name), rel=1e-10)
            assert getattr(mine.delta, name) == expected, name


def bert(tmp_path, config=None, pairs=None, more=None):
    arrays = make.synthetic("bert")[0]
    pairs = factors(arrays, TARGETS["bert"][:1], False) if pairs is None else pairs
    return adapter(tmp_path / "adapter", pairs, config, more), arrays


def scale_of(tmp_path, config):
    path, arrays = bert(tmp_path, config)
    inner, outer = factors(arrays, TARGETS["bert"][:1], False)[TARGETS["bert"][0]]
    (moved,) = make.compared(path, arrays, heads=4).moved
    return moved.delta.frobenius / np.linalg.norm(outer @ inner)


def test_scaling_is_by_rank_root_rank_or_module(tmp_path):
    assert scale_of(tmp_path, {}) == pytest.approx(ALPHA / RANK)
    assert scale_of(tmp_path, {"use_rslora": True}) == pytest.approx(ALPHA / np.sqrt(RANK))
    own = {"alpha_pattern": {"self.query": 8}, "rank_pattern": {"query": RANK}, "r": 9}
    assert scale_of(tmp_path, own) == pytest.approx(8 / RANK)


def test_prefixes_may_differ_and_places_may_not(tmp_path):
    # A head of one's own puts a name before all of the base, or takes one away.
    arrays = make.synthetic("bert")[0]
    pairs = factors(arrays, TARGETS["bert"][:1], False)
    path, _ = bert(tmp_path, pairs=pairs)
    for old, new in (("bert.", ""), ("bert.", "model.bert.")):
        base = {name.replace(old, new, 1): array for name, array in arrays.items()}
        assert len(make.compared(path, base, heads=4).moved) == 1
    base = {name.replace("bert.", "teacher.", 1): array for name, array in arrays.items()}
    with pytest.raises(InputError, match=r"has no such matrix"):
        open_checkpoint(path, base=base, heads=4)


def test_what_changes_outside_the_layers_is_named():
    pooler = "bert.pooler.dense.weight"
    base = make.synthetic("bert")[0] | {pooler: np.eye(4)}
    tuned = base | {pooler: base[pooler] + 1.0, "classifier.weight": np.ones((2, 3))}
    found = make.compared(tuned, base, heads=4)
    assert set(found.elsewhere) == {pooler, "classifier.weight"}
    assert not found.moved
    assert "no part of base + Δ" in str(found)
    assert make.compared(base, base, heads=4).note == ""


def test_an_untrained_adapter_moves_nothing(tmp_path):
    arrays = make.synthetic("bert")[0]
    pairs = {m: (a, 0 * b) for m, (a, b) in factors(arrays, TARGETS["bert"], False).items()}
    path, _ = bert(tmp_path, pairs=pairs)
    assert make.compared(path, arrays, heads=4).moved == ()


def test_biases_and_heads_that_are_saved_whole(tmp_path):
    bias, head = "bert.encoder.layer.0.output.dense.bias", "classifier.weight"
    more = {f"base_model.model.{bias}": np.ones(8), f"base_model.model.{head}": np.ones((2, 8))}
    path, arrays = bert(tmp_path, more=more)
    found = make.measured(path, base=arrays, heads=4)
    assert found.layers[0].vectors["feed_out_bias"] == pytest.approx(np.sqrt(8))
    assert head in found.skipped


def test_a_matrix_outside_the_layers_is_added(tmp_path):
    arrays = make.synthetic("gpt2")[0] | {"lm_head.weight": np.ones((20, 8))}
    path = adapter(tmp_path / "adapter", factors(arrays, ["lm_head"], False, seed=0))
    inner, outer = factors(arrays, ["lm_head"], False, seed=0)["lm_head"]
    found = make.measured(path, base=arrays, heads=4)
    size = np.linalg.norm(1 + ALPHA / RANK * outer @ inner)
    assert found.embeddings["unembedding"]["frobenius"] == pytest.approx(size)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"peft_type": "IA3"}, "peft_type = IA3; only plain LoRA"),
        ({"use_dora": True}, "use_dora = True; only plain LoRA"),
        ({"lora_bias": True}, "lora_bias = True"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
        ({"init_lora_weights": "pissa_niter_16"}, "init_lora_weights = pissa"),
        ({"r": 3}, "r being 3"),
        ({"r": "two"}, "expected a whole number"),
        ({"r": None}, "does not say the rank"),
        ({"lora_alpha": None}, "lora_alpha = None; expected a number"),
        ({"lora_alpha": True}, "expected a number"),
        ({"alpha_pattern": {"(a+)+$": 3}}, "only names are read"),
        ({"alpha_pattern": [1]}, "is not a table"),
        ({"fan_in_fan_out": True}, "outputs × inputs by the layout bert"),
    ],
)
def test_configs_that_are_refused(config, words, tmp_path):
    path, arrays = bert(tmp_path, config)
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        open_checkpoint(path, base=arrays, heads=4)


def test_tensors_that_are_refused(tmp_path):
    arrays = make.synthetic("bert")[0]
    inner, outer = factors(arrays, TARGETS["bert"][:1], False)[TARGETS["bert"][0]]
    module, far = TARGETS["bert"][0], "bert.encoder.layer.7.attention.self.query"
    name = f"base_model.model.{module}"
    for pairs, more, words in (
        ({far: (inner, outer)}, {}, "has no such matrix"),
        ({"classifier": (inner, outer)}, {}, "has no such matrix"),
        ({module: (inner, outer[:-1])}, {}, r"make a matrix of shape \(7, 8\); expected \(8, 8\)"),
        ({module: (inner, outer.T)}, {}, r"expected \(2, inputs\) and \(outputs, 2\)"),
        ({}, {f"{name}.lora_A.weight": inner}, "lora_A but no lora_B"),
        ({}, {"x": inner}, "no lora_A and lora_B"),
        ({module: (inner, outer)}, {f"{name}.lora_A.default.weight": inner}, "twice"),
        (
            {module: (inner, outer)},
            {f"{name}.lora_magnitude_vector": inner},
            "only plain LoRA",
        ),
        (
            {module: (inner, outer)},
            {f"{name}.lora_A.other.weight": inner},
            "lora_A.other",
        ),
        (
            {module: (inner, outer)},
            {f"{name}.lora_embedding_A": inner},
            "only plain LoRA",
        ),
        ({module: (inner, outer)}, {f"{name}.weight": arrays[f"{module}.weight"]}, "both whole"),
        ({module: (inner * np.nan, outer)}, {}, "NaN or infinite"),
    ):
        path, _ = bert(tmp_path, pairs=pairs, more=more)
        with pytest.raises(InputError, match=words):
            make.compared(path, arrays, heads=4)


def test_files_that_are_missing(tmp_path):
    path, arrays = bert(tmp_path)
    with pytest.raises(InputError, match="Give `base`"):
        open_checkpoint(path)
    (path / "adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"has no adapter_config\.json"):
        open_checkpoint(path, base=arrays, heads=4)
    (path / "adapter_model.safetensors").rename(path / "adapter_model.bin")
    with pytest.raises(InputError, match="is a pickle"):
        open_checkpoint(path, base=arrays, heads=4)

"""A synthetic file of each family with planted norms; the same numbers stored in other ways."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import checkpoints as make

RTOL = 1e-5


def norms_of(values):
    values = np.asarray(values)
    return {
        "spectral": values.max(),
        "frobenius": np.sqrt((values**2).sum()),
        "nuclear": values.sum(),
        "half": np.sqrt(values).sum() ** 2,
        "quarter": (values**0.25).sum() ** 4,
        "stable_rank": (values**2).sum() / values.max() ** 2,
    }


def check(found, planted):
    assert len(found.layers) == len(planted)
    for layer, values in zip(found.layers, planted, strict=True):
        for kind, expected in values.items():
            measured = layer.of_kind(kind)
            assert len(measured) == len(expected)
            for one, other in zip(measured, expected, strict=True):
                for name, value in norms_of(other).items():
                    assert getattr(one, name) == pytest.approx(value, rel=RTOL), (kind, name)
                assert one.spectral_lower <= one.spectral <= one.spectral_upper


@pytest.mark.parametrize("family", make.FAMILIES)
def test_planted_norms_are_measured(family, tmp_path):
    arrays, config, planted = make.synthetic(family)
    path = make.write(tmp_path, arrays, config)
    found = make.measured(path)
    check(found, planted)
    assert found.layout == ("bert" if family == "roberta" else family)
    assert set(found.read) == set(arrays)
    assert found.n_parameters == sum(array.size for array in arrays.values())
    check(make.measured(tmp_path), planted)  # the folder is the file


@pytest.mark.parametrize("scale", [1e-5, 1e15])
def test_small_and_huge_entries(scale):
    # Products of 1e15 and 1e15 are 1e30, and their squares beyond float32.
    arrays, _, planted = make.synthetic("bert", scale=scale)
    check(make.measured(arrays, heads=make.HEADS), planted)


def test_entries_of_1e30():
    arrays, _, planted = make.synthetic("torch", scale=1e30)
    check(make.measured(arrays, heads=make.HEADS), planted)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_heads_share_keys_and_values(kv_heads, tmp_path):
    arrays, config, planted = make.synthetic("llama", kv_heads=kv_heads)
    found = make.measured(make.write(tmp_path, arrays, config))
    check(found, planted)
    assert found.geometry.kv_heads == kv_heads
    del config["num_key_value_heads"]
    check(make.measured(arrays, heads=make.HEADS, kv_heads=kv_heads), planted)


def test_shared_layers_run_several_times(tmp_path):
    arrays, config, planted = make.synthetic("albert", layers=1)
    found = make.measured(make.write(tmp_path, arrays, config | {"num_hidden_layers": 12}))
    check(found, planted)
    assert (len(found.layers), found.to_dict()["n_layers"]) == (1, 12)
    assert "each run 12 times" in str(found)


def same(one, other):
    """All measures of all layers agree; sums may be taken in another order."""
    kinds = one.kinds
    assert other.kinds == kinds
    pairs = [
        (mine.to_dict(), yours.to_dict())
        for kind in kinds
        for first, second in zip(one.layers, other.layers, strict=True)
        for mine, yours in zip(first.of_kind(kind), second.of_kind(kind), strict=True)
    ]
    left, right = ([list(pair[i].values()) for pair in pairs] for i in (0, 1))
    np.testing.assert_allclose(left, right, rtol=1e-11)


def test_fused_is_separate():
    fused, _, _ = make.synthetic("torch")
    prefix, _, rest, _, _ = make.FAMILIES["bert"]
    separate = {}
    for number in range(2):
        start, new = f"encoder.layers.{number}.", prefix.format(number)
        weight = fused[f"{start}self_attn.in_proj_weight"]
        parts = dict(zip(make.BERT, np.split(weight, 3), strict=True))
        names = ("self_attn.out_proj", "linear1", "linear2")
        for name, other in zip(names, rest, strict=True):
            parts[other] = fused[f"{start}{name}.weight"]
        separate |= {f"{new}{name}.weight": part for name, part in parts.items()}
    same(make.measured(fused, heads=4), make.measured(separate, heads=4))


def test_sharded_is_single(tmp_path):
    arrays, config, _ = make.synthetic("llama", kv_heads=2)
    single = make.measured(make.write(tmp_path / "single", arrays, config))
    index = shards(tmp_path / "sharded", arrays, config)
    same(make.measured(index.parent), single)
    same(make.measured(index), single)


def shards(folder, arrays, config):
    folder.mkdir()
    places = {name: f"model-{i % 2 + 1:05}-of-00002.safetensors" for i, name in enumerate(arrays)}
    for file in set(places.values()):
        save_file({name: a for name, a in arrays.items() if places[name] == file}, folder / file)
    (folder / "config.json").write_text(json.dumps(config))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


def test_shards_that_disagree_with_their_index(tmp_path):
    arrays, config, _ = make.synthetic("llama")
    index = shards(tmp_path / "sharded", arrays, config)
    said = json.loads(index.read_text())
    name, file = next(iter(said["weight_map"].items()))
    other = "model-00002-of-00002.safetensors"
    for changes, words in (
        ({name: other}, "has it in"),
        ({"lost.weight": file}, "lacks 'lost.weight'"),
        ({name: "../model.safetensors"}, "not the name of a file"),
        ({name: "gone.safetensors"}, "cannot be read"),
    ):
        index.write_text(json.dumps({"weight_map": said["weight_map"] | changes}))
        with pytest.raises(ValueError, match=words):
            make.measured(index)


def test_npz_is_safetensors(tmp_path):
    arrays, config, _ = make.synthetic("gpt2")
    single = make.measured(make.write(tmp_path, arrays, config))
    fortran = {name: np.asfortranarray(a) for name, a in arrays.items()}
    np.savez(tmp_path / "plain.npz", **arrays)
    np.savez_compressed(tmp_path / "packed.npz", **fortran)
    for name in ("plain.npz", "packed.npz"):
        same(make.measured(tmp_path / name), single)


def test_tied_embeddings_count_once():
    arrays, _, _ = make.synthetic("gpt2")
    words = np.random.default_rng(1).normal(size=(20, make.WIDTH))
    arrays["transformer.wpe.weight"] = words[:7]  # before the words, as files sort them
    arrays["transformer.wte.weight"] = words
    size = make.measured(arrays, heads=4).n_parameters
    tied = make.measured(arrays | {"lm_head.weight": words}, heads=4)
    assert (tied.n_parameters, tied.tied) == (size, ("lm_head.weight",))
    assert "Tied, counted once: lm_head.weight" in str(tied)
    free = make.measured(arrays | {"lm_head.weight": words + 1}, heads=4)
    assert free.n_parameters == size + words.size
    assert tied.embeddings["wte"]["largest_row"] == pytest.approx(
        np.linalg.norm(words, axis=1).max()
    )


def test_a_map_adds_names(tmp_path):
    arrays, _, planted = make.synthetic("torch")
    mine = {name.replace("encoder.layers.", "tower.block_"): a for name, a in arrays.items()}
    with pytest.raises(ValueError, match="Give a `layouts` file"):
        make.measured(mine, heads=4)
    table = tmp_path / "own.toml"
    text = """[mine]
orientation = "output_input"
layer = "tower.block_{n}."
fused = "self_attn.in_proj_{kind}"
output = "self_attn.out_proj.{kind}"
feed_in = "linear1.{kind}"
feed_out = "linear2.{kind}"
norms = ["norm1.{kind}"]
"""
    table.write_text(text)
    check(make.measured(mine, heads=4, layouts=table), planted)
    table.write_text(text.replace("tower.block_", "encoder.layers."))
    assert make.measured(arrays, heads=4, layouts=table).layout == "mine"  # before the shipped
    for bad, words in (
        (text + "query_weight = 'x'\n", "`query_weight` is not a key"),
        (text.replace("fused", "query"), "lacks `key`, `value`"),
        (text.replace("{n}", "0"), "must have {n}"),
        (text.replace("output_input", "sideways"), "should be 'output_input'"),
        ("[mine", "is not TOML"),
        (text.replace("{n}", "{n}{n}{n}"), "more than once"),
        (text.replace("linear1.{kind}", "{n}.linear1"), "more than once"),
        (f"epsilon = {'1' * 5000}", "is not TOML"),
        (f"a = {'[' * 100_000}", "is not TOML"),
    ):
        table.write_text(bad)
        with pytest.raises(ValueError, match=words):
            make.measured(mine, heads=4, layouts=table)


def test_a_name_in_the_hub_cache(tmp_path, monkeypatch):
    arrays, config, planted = make.synthetic("bert")
    model = tmp_path / "hub" / "models--someone--small"
    make.write(model / "snapshots" / "abc123", arrays, config)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    check(make.measured("someone/small"), planted)  # the only snapshot
    make.write(model / "snapshots" / "def456", arrays, config)
    with pytest.raises(ValueError, match="2 snapshots"):
        make.measured("someone/small")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("def456\n")
    check(make.measured("someone/small"), planted)
    with pytest.raises(ValueError, match="never downloads"):
        make.measured("someone/large")


def test_an_equinox_module():
    import equinox as eqx
    import jax

    class Attention(eqx.Module):
        attention: eqx.nn.MultiheadAttention

    class Layer(eqx.Module):
        attention_block: Attention

    class Network(eqx.Module):
        layers: list[Layer]

    heads = eqx.nn.MultiheadAttention(4, 8, key=jax.random.key(0))
    found = make.measured(Network([Layer(Attention(heads))]), heads=4)
    query, key = (np.asarray(each.weight)[2:4] for each in (heads.query_proj, heads.key_proj))
    expected = np.linalg.norm(query.T.astype(float) @ key.astype(float), 2)
    assert found.layers[0].heads[1].query_key.spectral == pytest.approx(expected, rel=1e-9)


def test_bfloat16_in_memory():
    import ml_dtypes

    arrays, _, _ = make.synthetic("bert")
    half = {name: a.astype(ml_dtypes.bfloat16) for name, a in arrays.items()}
    exact = make.measured({name: a.astype(np.float64) for name, a in half.items()}, heads=4)
    same(make.measured(half, heads=4), exact)


def test_norms_by_their_old_names():
    arrays = make.synthetic("bert")[0]
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma"): array for name, array in arrays.items()
    }
    one, other = make.measured(arrays, heads=4), make.measured(old, heads=4)
    assert [layer.vectors for layer in one.layers] == [layer.vectors for layer in other.layers]
    assert other.layers[0].vectors["norm_1_weight"] == pytest.approx(np.sqrt(make.WIDTH))
    assert not other.skipped


def test_rotary_positions_are_said():
    found = make.measured(make.synthetic("llama")[0], heads=4)
    assert "Positions rotate queries and keys" in str(found)


def test_a_state_dict_of_pytorch():
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install finetti[torch]")
    arrays = make.synthetic("torch")[0]
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    same(make.measured(state, heads=4), make.measured(arrays, heads=4))
    half = {name: tensor.to(torch.bfloat16) for name, tensor in state.items()}
    wide = {name: tensor.to(torch.float32).numpy() for name, tensor in half.items()}
    same(make.measured(half, heads=4), make.measured(wide, heads=4))


def test_a_live_module_of_pytorch():
    """Its layers say how many heads there are; attention of ours in them is read, too."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install finetti[torch]")
    from finetti.torch import Attention

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    network = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    found = make.measured(network)
    same(found, make.measured(network.state_dict(), heads=2))
    assert "TransformerEncoder in memory" in str(found)
    for each in network.layers:
        ours = Attention(8, 2, batch_first=True)
        ours.load_state_dict(each.self_attn.state_dict(), strict=False)
        each.self_attn = ours
    same(make.measured(network), found)


def test_a_live_model_of_hugging_face():
    """Its config is what config.json would say; tied embeddings are found to be one."""
    pytest.importorskip("torch", reason="needs PyTorch: pip install finetti[torch]")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config)
    found = make.measured(model)
    assert (found.geometry.heads, found.geometry.kv_heads) == (4, 2)
    query = model.model.layers[1].self_attn.q_proj.weight.detach().double()[:2]
    key = model.model.layers[1].self_attn.k_proj.weight.detach().double()[:2]
    wanted = np.linalg.norm((query.mT @ key).numpy(), 2)
    assert found.layers[1].heads[0].query_key.spectral == pytest.approx(wanted, rel=1e-9)
    assert found.tied

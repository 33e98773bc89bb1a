"""Each wrong mapping is caught, with what was found and what was expected."""

import json

import numpy as np
import pytest

import checkpoints as make
from finetti.core.errors import InputError

QUERY, KEY, VALUE = (f"bert.encoder.layer.1.{name}.weight" for name in make.BERT)


def bert(layers=3):
    return make.synthetic("bert", layers)[0]


def refused(arrays, *words, heads=make.HEADS, **options):
    with pytest.raises(InputError) as caught:
        make.measured(arrays, heads=heads, **options)
    text = str(caught.value)
    for word in words:
        assert word in text, text
    return text


def test_heads_must_fit():
    refused(bert(), "found 3 heads", "a width of 8", "heads × head width = width", heads=3)
    refused(bert(), "Give `heads`", heads=None)
    refused(bert(), "a whole number ≥ 1", heads=0)


def test_given_and_declared_heads_must_agree(tmp_path):
    arrays, config, _ = make.synthetic("bert")
    path = make.write(tmp_path, arrays, config)
    with pytest.raises(InputError, match=r"Found 4 heads in config\.json, but 2 were given"):
        make.measured(path, heads=2)
    make.write(tmp_path, arrays, config | {"num_attention_heads": "four"})
    with pytest.raises(InputError, match="num_attention_heads = four"):
        make.measured(path)


def test_declared_head_width_must_fit(tmp_path):
    arrays, config, _ = make.synthetic("llama")
    path = make.write(tmp_path, arrays, config | {"head_dim": 3})
    with pytest.raises(InputError, match=r"found 8 outputs of the query.*expected 4 heads × 3"):
        make.measured(path)


@pytest.mark.parametrize("name", [QUERY, KEY, VALUE])
def test_query_key_and_value_are_in_every_layer(name):
    arrays = bert()
    del arrays[name]
    role = name.split(".")[-2]
    refused(arrays, f"Layer 1 has no {role}", "expected query, key, value")


@pytest.mark.parametrize("name", [QUERY, KEY, VALUE])
def test_none_of_them_is_all_zero(name):
    arrays = bert()
    arrays[name] = np.zeros_like(arrays[name])
    refused(arrays, name, "is all zero")


def test_a_zero_third_of_a_fused_matrix_is_caught():
    arrays = make.synthetic("gpt2")[0]
    arrays["transformer.h.1.attn.c_attn.weight"][:, 8:16] = 0
    refused(arrays, "c_attn.weight (part 2 of 3) in layer 1 is all zero")


def test_key_value_heads_divide_heads():
    arrays = make.synthetic("llama", kv_heads=2)[0]
    refused(arrays, "heads share keys", "`kv_heads`")  # declared nowhere
    refused(arrays, "Found 3 key/value heads, expected a divisor of 4", kv_heads=3)
    refused(arrays, "found shape (4, 8), expected (2, 8)", kv_heads=1)
    refused(arrays, "found shape (4, 8), expected (8, 8)", kv_heads=4)


def test_layers_have_no_holes():
    arrays = {k: v for k, v in bert().items() if ".layer.1." not in k}
    refused(arrays, "Layer 1 is missing", "found 2 layers up to 2")
    far = {k.replace(".layer.2.", ".layer.999999."): v for k, v in bert().items()}
    refused(far, "Layer 2 is missing")


def test_the_config_counts_the_same_layers(tmp_path):
    arrays, config, _ = make.synthetic("bert")
    path = make.write(tmp_path, arrays, config | {"num_hidden_layers": 3})
    with pytest.raises(InputError, match="Found 2 layers, expected 3"):
        make.measured(path)


def test_shapes_chain():
    name = "bert.encoder.layer.1.output.dense.weight"
    arrays = bert()
    arrays[name] = arrays[name].T
    refused(arrays, name, "found shape (12, 8), expected (8, 12)")
    arrays = bert()
    arrays[VALUE] = arrays[VALUE][:, :-1]
    refused(arrays, VALUE, "found shape (8, 7), expected (8, 8)")
    arrays = bert()
    arrays[VALUE.replace("weight", "bias")] = np.zeros(7)
    refused(arrays, "value_bias", "found shape (7,), expected (8,)")
    arrays = bert()
    arrays[QUERY.replace(".1.", ".0.")] = np.zeros(7)
    refused(arrays, "a matrix with entries")


def test_orientation_is_seen(tmp_path):
    arrays = make.synthetic("gpt2")[0]
    turned = {name: a.T if "c_attn.weight" in name else a for name, a in arrays.items()}
    refused(turned, "c_attn.weight has shape (24, 8)", "a multiple of 3")


def test_half_a_feed_forward_part():
    arrays = {k: v for k, v in bert().items() if "intermediate" not in k}
    refused(arrays, "lacks feed_in or feed_out")
    arrays = bert()
    del arrays["bert.encoder.layer.1.intermediate.dense.bias"]
    refused(arrays, "Layers 0 and 1 differ", "feed_in_bias")


def test_what_may_be_a_weight_is_never_skipped():
    more = {"bert.encoder.layer.0.crossattention.self.query.weight": np.ones((8, 8))}
    refused(bert() | more, "may be a weight", "`layouts`")
    codes = {"bert.encoder.layer.0.extra.qweight": np.ones((8, 8), np.int32)}
    refused(bert() | codes, "quantized codes")
    scale = {"bert.encoder.layer.0.attention.self.query.weight_scale": np.ones(())}
    refused(bert() | scale, "weight_scale belongs to quantized weights")
    quantized = bert() | {QUERY: np.ones((8, 8), np.int8)}
    refused(quantized, QUERY, "quantized weights cannot be measured")


def test_two_networks_in_one_file():
    arrays = bert()
    twice = arrays | {name.replace("bert.", "teacher."): a for name, a in arrays.items()}
    refused(twice, "'bert.'", "'teacher.'")


def test_one_matrix_under_two_names():
    arrays = bert()
    twice = {name.replace(".layer.1.", ".layer.01."): a for name, a in arrays.items()}
    refused(arrays | twice, "Both bert.", "layer.01.", "of layer 1")


def test_nothing_read_is_a_failure():
    refused({"weight": np.eye(2)}, "none has the name of a query")
    refused({}, "holds no tensors")


def test_skipped_parameters_are_said():
    more = {"pooler.dense.weight": np.eye(8), "bert.encoder.layer.0.gain": np.ones(8)}
    found = make.measured(bert() | more, heads=4)
    assert found.skipped == {
        "pooler.dense.weight": "outside the layers, and not in the table",
        "bert.encoder.layer.0.gain": "inside a layer, and not in the table",
    }
    assert not set(found.read) & set(more)
    assert "pooler.dense.weight" in str(found)


def test_nan_is_refused_by_name():
    arrays = bert()
    arrays[KEY][0, 0] = np.nan
    refused(arrays, KEY, "NaN or infinite")


def test_numbers_that_no_norm_can_hold_are_refused_by_name():
    arrays = {name: array.astype(float) for name, array in bert().items()}
    words = {"bert.embeddings.word_embeddings.weight": np.full((2, 8), 1e200)}
    refused(arrays | words, "word_embeddings", "beyond 1e+100")
    audit = make.measured({name: 1e99 * a for name, a in arrays.items()}, heads=4)
    json.dumps(audit.to_dict(), allow_nan=False)


def test_fields_of_the_config_must_agree(tmp_path):
    arrays, config, _ = make.synthetic("llama", kv_heads=2)
    path = make.write(tmp_path, arrays, config)
    for more, words in (
        ({"n_head": 2}, r"num_attention_heads = 4 and n_head = 2"),
        ({"n_layer": 5}, r"num_hidden_layers = 2 and n_layer = 5"),
        ({"num_kv_heads": 4}, r"num_key_value_heads = 2 and num_kv_heads = 4"),
    ):
        make.write(tmp_path, arrays, config | more)
        with pytest.raises(InputError, match=words):
            make.measured(path)


@pytest.mark.parametrize(
    "field", [{"multi_query": True}, {"num_attention_heads_kv": 2}, {"text_config": {"n": 2}}]
)
def test_shared_heads_in_a_field_of_another_name_are_asked_for(field, tmp_path):
    arrays, config, _ = make.synthetic("llama", kv_heads=2)
    del config["num_key_value_heads"]
    path = make.write(tmp_path, arrays, config | field)
    with pytest.raises(InputError, match="Give `kv_heads`"):
        make.measured(path)


def test_layers_of_two_networks_are_not_one():
    arrays = {
        k.replace("bert.encoder.layer.1", "other.encoder.layer.1"): v for k, v in bert().items()
    }
    refused(arrays, "'bert.'", "'other.'", "one network at a time")


def test_shared_layers_run_as_often_as_their_group(tmp_path):
    # Each of the config's 12 layers is a whole group: both of its stored layers.
    arrays, config, _ = make.synthetic("albert", layers=2)
    path = make.write(tmp_path, arrays, config | {"num_hidden_layers": 12})
    found = make.measured(path)
    assert (found.geometry.repeats, found.to_dict()["n_layers"]) == (12, 24)
    make.write(tmp_path, arrays, config | {"num_hidden_layers": 12, "num_hidden_groups": 3})
    with pytest.raises(InputError, match="Found 1 groups of layers, expected 3"):
        make.measured(path)


def test_heads_whose_products_are_zero_are_shown():
    arrays = {
        k: np.zeros_like(v) for k, v in bert(1).items() if ".dense." not in k or "attention" in k
    }
    for name, row in zip(make.BERT, (0, 1, 0), strict=True):
        arrays[f"bert.encoder.layer.0.{name}.weight"][row :: make.HEAD_WIDTH] = 1
    found = make.measured(arrays, heads=4)
    assert found.layers[0].heads[0].query_key.spectral_upper == 0
    assert "certain to 0.0e+00" in str(found)

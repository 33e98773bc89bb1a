"""Networks of gates whose numbers were changed: what runs is what is written out, and is caught."""

import json
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from finetti.boolean import compile_rule, load
from finetti.boolean.embeddings.position_vectors import DensePositions
from finetti.boolean.language.rule import all_bits
from finetti.core.errors import InputError

T = 7
BITS = all_bits(T)


def test_the_module_is_what_runs_whatever_the_numbers_are():
    """Every number disturbed, so that blocks write into bits and gates that are not theirs."""
    compiled = compile_rule("((x0 | x1) & ~x2) ^ maj(x3, x4 & x5, ~x6)", T, gates=True)
    rng = np.random.default_rng(0)

    def noisy(array, size=0.3):
        return array + size * rng.normal(size=array.shape)

    positions = DensePositions(noisy(compiled.network.positions.dense()))
    network = replace(compiled.network, positions=positions)
    for number, block in enumerate(network.blocks):
        arrays = {"scales": block.scales, "keys": block.keys, **block.lookup.arrays}
        network = network.changed(number, **{name: noisy(a) for name, a in arrays.items()})
    wrong = replace(compiled, network=network)
    found = wrong.predict(BITS)
    assert np.abs(found - compiled.function(BITS)).max() > 0.1
    module = eqx.filter_jit(wrong.module())
    np.testing.assert_allclose(found, module(jnp.asarray(BITS)), atol=1e-9)
    check = wrong.verify()
    assert not check.proven
    assert check.error64 == pytest.approx(np.abs(found - compiled.function(BITS)).max())


def changed(compiled, number, name, place, value):
    block = compiled.network.blocks[number]
    array = block.lookup.arrays.get(name, getattr(block, name, None)).copy()
    array[place] = value
    return compiled.changed(number, **{name: array})


@pytest.mark.parametrize("length", [10, 60])
@pytest.mark.parametrize(
    ("number", "name", "place", "value"),
    [
        (0, "outer", (0, 1), 0.5),
        (1, "outer", (0, 1), 0.5),
        (1, "middle_bias", 0, -0.5),
        (0, "inner", (0, 0), 0.0),
        (0, "scales", 0, 0.0),
        (1, "scales", 0, -3.0),
        (0, "keys", (0, 7), 2.0),  # g0 reads x7
        (0, "keys", (0, 7), 1e6),
        (0, "inner", (0, 0), -1e6),
    ],
)
def test_a_wrong_number_is_caught(number, name, place, value, length):
    compiled = compile_rule("(x1 | x2) & x3", length, gates=True)
    assert compiled.verify().proven
    wrong = changed(compiled, number, name, place, value)
    found = wrong.verify()
    assert not found.proven
    assert found.counterexample is not None
    bits = found.counterexample.bits
    assert found.counterexample.value == compiled.function(bits)
    np.testing.assert_allclose(wrong.predict(bits), found.counterexample.output, atol=1e-9)
    assert not abs(wrong.predict(bits) - compiled.function(bits)) < 1e-3
    certificate = wrong.certificate
    assert not certificate.holds
    json.dumps(certificate.to_dict(), allow_nan=False)


def test_a_block_that_writes_into_other_tokens_is_not_proven():
    compiled = compile_rule("(x1 | x2) & x3", 10, gates=True)
    wrong = changed(compiled, 0, "middle_bias", 0, 0.9)  # now any token passes for the gate
    found = wrong.verify()
    assert not found.error_bound < 0.1
    assert not found.proven
    module = eqx.filter_jit(wrong.module())
    bits = all_bits(10)
    np.testing.assert_allclose(wrong.predict(bits), module(jnp.asarray(bits)), atol=1e-9)


def test_damaged_files(tmp_path):
    path = compile_rule("(x1 | x2) & x3", 40, basis="random", gates=True).save(
        tmp_path / "network.safetensors"
    )
    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    query = np.zeros_like(tensors["blocks.1.query"])  # a gate that reads everything alike
    save_file({**tensors, "blocks.1.query": query}, path, metadata)
    broken = load(path)
    wrong = broken.verify().counterexample
    assert abs(broken.predict(wrong.bits) - wrong.value) > 0.1
    positions = load_vectors(tensors)
    positions[9, 1] = 5000.0  # the position of x9 says that every bit is 1
    save_file({**tensors, "embedding.positions": positions}, path, metadata)
    assert load(path).verify().counterexample is not None
    for name, change, words in (
        ("blocks.1.query", lambda a: np.zeros(3), r"blocks\.1\.query has shape"),
        ("blocks.1.query", lambda a: a + 1.0, r"blocks\.1\.query has numbers where"),
        ("embedding.readers", lambda a: 2 * a, r"embedding\.readers has numbers where"),
        ("embedding.positions", lambda a: 2 * a, "other signs"),
    ):
        save_file({**tensors, name: change(tensors[name])}, path, metadata)
        with pytest.raises(InputError, match=words):
            load(path)
    for told, words in (
        ({"settings": '{"embedding": "bag"}'}, "a bag of vectors has none"),
        ({"function": '{"rule": "x1 & ~x1"}'}, "constant"),
    ):
        save_file(tensors, path, metadata | told)
        with pytest.raises(InputError, match=words):
            load(path)


def load_vectors(tensors):
    """The positions of a random basis, written out."""
    signs = tensors["embedding.positions"]
    whole = np.zeros((len(signs), tensors["embedding.tokens"].shape[1]))
    whole[:, 3 : 3 + signs.shape[1]] = signs / np.sqrt(signs.shape[1])
    return whole

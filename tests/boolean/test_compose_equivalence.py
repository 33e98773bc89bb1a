"""Networks of gates: interpreter ≡ NumPy forward ≡ Equinox forward ≡ loaded file."""

import json
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from finetti.boolean import compose, load, parse
from finetti.boolean.embeddings.position_vectors import DensePositions
from finetti.boolean.language.rule import all_bits
from finetti.core.errors import InputError

T = 7
BITS = all_bits(T)
EMBEDDINGS = ("deterministic", "trained")


def expressions():
    def wider(inner):
        several = st.lists(inner, min_size=2, max_size=4)
        return st.one_of(
            st.tuples(st.sampled_from("&|^"), several).map(lambda p: f"({f' {p[0]} '.join(p[1])})"),
            inner.map(lambda e: f"~{e}"),
            several.map(lambda e: f"maj({', '.join(e)})"),
            st.tuples(st.integers(0, 4), several).map(
                lambda p: f"atleast({p[0]}; {', '.join(p[1])})"
            ),
            st.tuples(st.integers(0, 4), several).map(
                lambda p: f"exactly({p[0]}; {', '.join(p[1])})"
            ),
        )

    leaf = st.one_of(st.integers(0, T - 1).map(lambda i: f"x{i}"), st.sampled_from(["0", "1"]))
    return st.recursive(leaf, wider, max_leaves=12)


def composed_or_constant(text, *options):
    try:
        return compose(text, T, *options)
    except InputError:
        return None  # the tests below ask that the rule is constant then


@settings(max_examples=60)
@given(expressions(), st.sampled_from(EMBEDDINGS), st.sampled_from(["orthonormal", "random"]))
def test_network_and_file_are_the_rule(tmp_path, text, embedding, basis):
    network = composed_or_constant(text, embedding, basis)
    wanted = parse(text)(BITS)
    if network is None:
        assert not np.ptp(wanted)
        return
    np.testing.assert_allclose(network.predict(BITS), wanted, atol=1e-12)
    np.testing.assert_allclose(network.predict(BITS, np.float32), wanted, atol=1e-4)
    loaded = load(network.save(tmp_path / "network.safetensors"))
    np.testing.assert_allclose(loaded.predict(BITS), wanted, atol=1e-12)
    assert str(loaded.function) == str(parse(text))
    assert loaded.certificate.holds
    assert loaded.check.error64 <= loaded.check.error_bound < 1e-9  # rounding is in the bound
    assert loaded.certificate.margin >= 1


@settings(max_examples=4)
@given(expressions(), st.sampled_from(EMBEDDINGS))
def test_the_module_is_the_rule(text, embedding):
    network = composed_or_constant(text, embedding)
    if network is not None:
        found = eqx.filter_jit(network.module())(jnp.asarray(BITS))
        np.testing.assert_allclose(found, parse(text)(BITS), atol=1e-12)


def test_the_module_is_what_runs_whatever_the_numbers_are():
    """Every number disturbed, so that blocks write into bits and gates that are not theirs."""
    network = compose("((x0 | x1) & ~x2) ^ maj(x3, x4 & x5, ~x6)", T)
    rng = np.random.default_rng(0)

    def noisy(array, size=0.3):
        return array + size * rng.normal(size=array.shape)

    positions = DensePositions(noisy(network.positions.dense()))
    blocks = []
    for block in network.blocks:
        blocks.append(block.changed(**{name: noisy(a) for name, a in block.arrays.items()}))
    wrong = replace(network, positions=positions, blocks=tuple(blocks))
    found = wrong.predict(BITS)
    assert np.abs(found - network.function(BITS)).max() > 0.1
    module = eqx.filter_jit(wrong.module())
    np.testing.assert_allclose(found, module(jnp.asarray(BITS)), atol=1e-9)
    check = wrong.verify()
    assert not check.proven
    assert check.error64 == pytest.approx(np.abs(found - network.function(BITS)).max())


def changed(network, number, name, place, value):
    array = network.blocks[number].arrays[name].copy()
    array[place] = value
    return network.changed(number, **{name: array})


@pytest.mark.parametrize("length", [10, 60])
@pytest.mark.parametrize(
    ("number", "name", "place", "value"),
    [
        (0, "outer", (0, 1), 0.5),
        (1, "outer", (0, 1), 0.5),
        (1, "middle_bias", 0, -0.5),
        (0, "inner", (0, 0), 0.0),
        (0, "query", 0, 0.0),
        (1, "query", 0, -3.0),
        (0, "key", (0, 7), 2.0),  # g0 reads x7
        (0, "key", (0, 7), 1e6),
        (0, "inner", (0, 0), -1e6),
    ],
)
def test_a_wrong_number_is_caught(number, name, place, value, length):
    network = compose("(x1 | x2) & x3", length)
    assert network.verify().proven
    wrong = changed(network, number, name, place, value)
    found = wrong.verify()
    assert not found.proven
    assert found.counterexample is not None
    bits = found.counterexample.bits
    assert found.counterexample.value == network.function(bits)
    np.testing.assert_allclose(wrong.predict(bits), found.counterexample.output, atol=1e-9)
    assert not abs(wrong.predict(bits) - network.function(bits)) < 1e-3
    certificate = wrong.certificate
    assert not certificate.holds
    json.dumps(certificate.to_dict(), allow_nan=False)


def test_a_block_that_writes_into_other_tokens_is_not_proven():
    network = compose("(x1 | x2) & x3", 10)
    wrong = changed(network, 0, "middle_bias", 0, 0.9)  # now any token passes for the gate
    found = wrong.verify()
    assert not found.error_bound < 0.1
    assert not found.proven
    module = eqx.filter_jit(wrong.module())
    bits = all_bits(10)
    np.testing.assert_allclose(wrong.predict(bits), module(jnp.asarray(bits)), atol=1e-9)


def test_damaged_files(tmp_path):
    path = compose("(x1 | x2) & x3", 40).save(tmp_path / "network.safetensors")
    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    query = np.zeros((1, 1, 1))  # a gate that reads everything alike
    save_file({**tensors, "blocks.1.query": query}, path, metadata)
    broken = load(path)
    wrong = broken.verify().counterexample
    assert abs(broken.predict(wrong.bits) - wrong.value) > 0.1
    positions = tensors["embedding.positions"].copy()
    positions[9, 1] = 5000.0  # the position of x9 says that every bit is 1
    save_file({**tensors, "embedding.positions": positions}, path, metadata)
    assert load(path).verify().counterexample is not None
    save_file({**tensors, "blocks.1.query": np.zeros(3)}, path, metadata)
    with pytest.raises(InputError, match=r"blocks\.1\.query has shape"):
        load(path)
    save_file(tensors, path, {**metadata, "embedding": "bag"})
    with pytest.raises(InputError, match="a bag of vectors has none"):
        load(path)
    save_file(tensors, path, {**metadata, "function": '{"rule": "x1 & ~x1"}'})
    with pytest.raises(InputError, match="constant"):
        load(path)


def test_files_of_gates_as_they_were_first_written_are_read(tmp_path):
    network = compose("(x1 | ~x2) & x3", 30, basis="random")
    path = network.save(tmp_path / "network.safetensors")
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    assert metadata.pop("readers") == "gates"
    old = {}
    for name, array in load_file(path).items():
        block, _, part = name.rpartition(".")
        known = {"key": ("keys", (slice(None), slice(None), 0)), "query": ("scales", (..., 0, 0))}
        new, kept = known.get(part, (part, ...))
        old[f"{block}.{new}"] = np.ascontiguousarray(array[kept])
    assert old["blocks.0.scales"].shape == (2,)
    save_file(old, path, metadata)
    loaded = load(path)
    for ours, theirs in zip(network.blocks, loaded.blocks, strict=True):
        for name, array in ours.arrays.items():
            np.testing.assert_array_equal(theirs.arrays[name], array)
    assert loaded.certificate.holds


def test_bits_beside_gates_have_no_say_in_the_attention():
    network = compose("(x1 | x2) & x3", 10)
    tokens = network.tokens.copy()
    tokens[1, 3 + 1] = 0.5  # a 1 looks a little like x1
    with pytest.raises(InputError, match="Tokens beside gates are those of the embedding"):
        replace(network, tokens=tokens)

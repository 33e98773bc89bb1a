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
from finetti.boolean.compose.gates import split
from finetti.boolean.functions.base import all_bits
from finetti.claims.sparse_variables.boolean_cases import BASES
from finetti.core.errors import InputError

DEEP = "~((x1 | x2) & (x3 | ~x4)) ^ maj(x1 & x5, x6 & x7, (x0 | x2) & x3)"


def and_of_ors(n_gates, n_inputs):
    groups = (range(g * n_inputs, (g + 1) * n_inputs) for g in range(n_gates))
    return " & ".join("(" + " | ".join(f"x{i}" for i in group) + ")" for group in groups)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("(x1 | x2 | x3) & (x4 | ~x5) & maj(x6, x7, x8)", 2),
        ("((x0 | x1) & (x2 | x3)) ^ ((x4 | x5) & (x6 | x7))", 3),
        (DEEP, 4),
        ("~x3", 1),
        ("~(x1 & x2)", 2),
        ("atleast(2; x1 ^ x2, x3, ~x4, 1)", 2),
    ],
)
def test_exact_on_all_inputs(text, depth, basis):
    network = compose(text, 9, basis)
    bits = all_bits(9)
    assert network.depth == depth
    assert network.certificate.check.complete
    assert network.certificate.holds
    np.testing.assert_allclose(network.predict(bits), parse(text)(bits), atol=1e-12)
    np.testing.assert_allclose(network.predict(bits, np.float32), parse(text)(bits), atol=1e-4)


@settings(max_examples=40)
@given(
    st.recursive(
        st.integers(0, 7).map(lambda i: f"x{i}"),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("&|^"), inner).map(
                lambda p: f"({p[0]} {p[1]} {p[2]})"
            ),
            inner.map(lambda e: f"~{e}"),
        ),
        max_leaves=10,
    )
)
def test_any_expression(text):
    bits = all_bits(8)
    try:
        network = compose(text, 8)
    except InputError:
        assert not np.ptp(parse(text)(bits))  # only a constant has no gates
        return
    np.testing.assert_allclose(network.predict(bits), parse(text)(bits), atol=1e-12)
    assert network.certificate.margin > 1


def test_the_module_is_the_network():
    network = compose(DEEP, 8)
    found = eqx.filter_jit(network.module())(jnp.asarray(all_bits(8)))
    np.testing.assert_allclose(found, network.function(all_bits(8)), atol=1e-12)
    assert network.module().blocks[0].heads.n_heads == network.blocks[0].n_heads


def test_sparsity_counts_per_gate():
    """50 relevant bits, no gate of more than 10: far beyond any table of 2^50 settings."""
    text = and_of_ors(10, 5)
    network = compose(text, 1000, "random")
    certificate = network.certificate
    assert certificate.holds
    assert max(gate.sparsity for gate in certificate.gates) == 10
    assert "2^50" in certificate.check.method
    rng = np.random.default_rng(0)
    bits = (rng.random((400, 1000)) < 0.35).astype(np.uint8)
    wanted = network.function(bits)
    assert 0.1 < wanted.mean() < 0.9  # the inputs decide something
    np.testing.assert_allclose(network.predict(bits), wanted, atol=1e-9)


def test_long_contexts():
    network = compose("(x1 | x50000) & (x7 | ~x99999)", 100_000, "random")
    assert network.certificate.holds
    assert compose("(x1 | x50000) & (x7 | ~x99999)", 100_000).certificate.holds


def test_gates_and_their_names():
    gates = split(parse("(x1 | x2) & ~(x3 & x3) & 1"))
    assert [gate.text for gate in gates] == ["(x1 | x2)", "(g0 & ~x3 & 1)"]
    assert [str(source) for source in gates[-1].sources] == ["g0", "x3"]
    shown = str(compose("(x1 | x2) & x3", 12))
    for words in ("2 blocks", "g1 = (g0 & x3)", "all 2^12 = 4096 inputs", "‖W_Q‖_F, block 2"):
        assert words in shown
    assert compose("(x1 | x2) & x3", 12).certificate.to_dict()["depth"] == 2


def damaged(network, number, name, place, value):
    block = network.blocks[number]
    array = getattr(block, name).copy()
    array[place] = value
    blocks = list(network.blocks)
    blocks[number] = replace(block, **{name: array})
    return replace(network, blocks=tuple(blocks))


def test_a_wrong_weight_makes_the_check_fail():
    from finetti.boolean.compose.certificate import check_network

    network = compose("(x1 | x2) & x3", 10)
    assert check_network(network).proven
    network = damaged(network, 1, "outer", (0, 1), 0.5)
    found = check_network(network)
    assert not found.exact
    assert found.error_bound > 0.4
    bits = found.counterexample.bits
    assert abs(network.predict(bits) - network.function(bits)) > 0.4


@pytest.mark.parametrize("basis", BASES)
def test_files(tmp_path, basis):
    network = compose(DEEP, 30, basis)
    path = network.save(tmp_path / "network.safetensors")
    loaded = load(path)
    bits = np.random.default_rng(0).integers(0, 2, size=(50, 30))
    np.testing.assert_allclose(loaded.predict(bits), network.predict(bits), atol=1e-12)
    assert loaded.certificate.holds
    assert loaded.verify(DEEP).proven
    assert loaded.verify(f"({DEEP}) & (x20 | ~x20)").proven  # the same rule, written otherwise
    assert not loaded.verify("x1 & x2").exact

    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    scales = tensors["blocks.1.scales"].copy()
    scales[0] = 0.0  # a gate that reads everything alike
    save_file({**tensors, "blocks.1.scales": scales}, path, metadata)
    broken = load(path)
    found = broken.verify()
    assert not found.exact
    wrong = found.counterexample
    assert abs(broken.predict(wrong.bits) - wrong.value) > 0.1
    save_file({**tensors, "blocks.1.scales": scales[1:]}, path, metadata)
    with pytest.raises(InputError, match=r"blocks\.1\.scales has shape"):
        load(path)


def test_a_block_that_writes_into_other_tokens_is_not_proven():
    from finetti.boolean.compose.certificate import check_network

    network = compose("(x1 | x2) & x3", 10)
    network = damaged(network, 0, "middle_bias", 0, -0.1)  # now a bit can pass for the gate
    assert not check_network(network).error_bound < 0.1

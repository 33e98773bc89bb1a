"""Rules at [CLS] and of gates: interpreter ≡ NumPy forward ≡ Equinox forward ≡ loaded file."""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from finetti.boolean import compile_rule, load, parse
from finetti.boolean.compiler.compiler_options import BASES
from finetti.boolean.embeddings import EMBEDDINGS
from finetti.boolean.language.rule import all_bits
from finetti.core.errors import InputError

T = 7
BITS = all_bits(T)


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


KINDS = [*product(EMBEDDINGS, BASES, [False]), *product(EMBEDDINGS[:2], BASES, [True])]


def compiled_or_constant(text, kind):
    embedding, basis, gates = kind
    try:
        return compile_rule(text, T, embedding, basis, gates=gates)
    except InputError:
        assert gates
        assert not np.ptp(parse(text)(BITS))  # a constant has no gates
        return None


@settings(max_examples=100)
@given(expressions(), st.sampled_from(KINDS))
def test_network_and_file_are_the_rule(tmp_path, text, kind):
    compiled, wanted = compiled_or_constant(text, kind), parse(text)(BITS)
    if compiled is None:
        return
    np.testing.assert_allclose(compiled.predict(BITS), wanted, atol=1e-12)
    np.testing.assert_allclose(compiled.predict(BITS, np.float32), wanted, atol=1e-4)
    loaded = load(compiled.save(tmp_path / "rule.safetensors"))
    np.testing.assert_allclose(loaded.predict(BITS), wanted, atol=1e-12)
    assert str(loaded.function) == str(parse(text))
    assert loaded.certificate.holds
    assert loaded.certificate.margin >= 1
    if kind[2]:  # rounding is in the bound
        assert loaded.check.error64 <= loaded.check.error_bound < 1e-9


@settings(max_examples=8)
@given(expressions(), st.sampled_from(KINDS))
def test_the_module_is_the_rule(text, kind):
    compiled = compiled_or_constant(text, kind)
    if compiled is not None:
        found = eqx.filter_jit(compiled.module())(jnp.asarray(BITS))
        np.testing.assert_allclose(found, parse(text)(BITS), atol=1e-12)


def test_the_module_is_an_ordinary_one():
    compiled = compile_rule("x1 & ~x4", T)
    module = compiled.module(jnp.float32)
    assert {leaf.dtype for leaf in jax.tree.leaves(module)} == {jnp.dtype(jnp.float32)}
    tables = compiled.network.float64
    features = tables.features(tables.sums(BITS[:4]))
    found = eqx.filter_jit(lambda model, bits: model.features(bits))(module, jnp.asarray(BITS[:4]))
    np.testing.assert_allclose(found, features, atol=1e-6)

    def loss(model):
        return jnp.sum(model(jnp.asarray(BITS[:4])))

    gradient = eqx.filter_jit(eqx.filter_grad(loss))(module)
    assert bool(jnp.isfinite(gradient.blocks[0].heads.key_weights).all())
    with pytest.raises(InputError, match="T = 7"):
        module(np.zeros((2, 5)))


def test_predict_takes_what_bits_come_as():
    compiled = compile_rule("x1 & (x3 | x5)", T)
    wanted = compiled.function(BITS)
    for kind in (bool, np.uint8, np.int64, np.float32):
        np.testing.assert_allclose(compiled.predict(BITS.astype(kind)), wanted, atol=1e-12)
    for sparse in (scipy.sparse.csr_array(BITS), scipy.sparse.coo_matrix(BITS)):
        np.testing.assert_allclose(compiled.predict(sparse), wanted, atol=1e-12)
    assert compiled.predict(BITS[43]).shape == ()
    assert compiled.predict(BITS[:0]).shape == (0,)
    for wrong in (np.zeros((2, 5)), np.full((2, T), 2), np.full((2, T), 0.5)):
        with pytest.raises(InputError, match="bits"):
            compiled.predict(wrong)
    for wrong in (scipy.sparse.csr_array(2 * BITS), scipy.sparse.csr_array(BITS[:, :4])):
        with pytest.raises(InputError, match="bits"):
            compiled.predict(wrong)


def test_weights_are_a_named_tree():
    weights = compile_rule("x1 & ~x4", T).weights
    assert weights["embedding.positions"].shape == (T, T + 3)
    assert weights["blocks.0.query"].shape == (2, T + 3, 1)
    assert set(weights) == {
        *(f"embedding.{name}" for name in ("positions", "tokens", "readers")),
        *(f"blocks.0.{name}" for name in ("query", "key", "value", "output")),
        *(f"blocks.0.{name}" for name in ("inner", "inner_bias", "middle", "middle_bias", "outer")),
    }
    with pytest.raises(InputError, match="GiB"):
        _ = compile_rule("x1", 10**5).weights
    with pytest.raises(InputError, match="predict"):
        compile_rule("x1", 10**5).module()


def test_weights_in_use_cannot_be_changed_behind_what_was_measured():
    compiled = compile_rule("x1 & ~x4", T, basis="random")
    network = compiled.network
    for array in (network.heads.key, network.lookup.outer, network.positions.bits):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0

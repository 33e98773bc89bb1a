"""Linear and delta-rule attention in chunks are the recurrence, in values and in gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from finetti.attention import (
    DeltaRule,
    LinearAttention,
    context_batch,
    delta_rule_attention,
)
from finetti.attention.fast_weights import state_attention
from finetti.attention.fast_weights.chunked_scan import UpdateRule
from finetti.core.errors import InputError
from finetti.kernels import Polynomial
from recurrence import recurrence

pytestmark = pytest.mark.rounding

LENGTH = 13
RNG = np.random.default_rng(0)
QUERY, KEYS, VALUES = (jnp.asarray(RNG.normal(size=(LENGTH, width))) for width in (3, 3, 2))
MASK = jnp.asarray(RNG.random(LENGTH) < 0.7)
MEMBERS = {
    "linear": LinearAttention,
    "polynomial": lambda **options: LinearAttention(Polynomial(2, scale=0.5), **options),
    "delta": lambda **options: DeltaRule(1.4, **options),
    "delta with decay": lambda **options: DeltaRule(0.7, 0.9, **options),
    "delta that forgets": lambda **options: DeltaRule(1.0, 1e-30, **options),
}


def by_recurrence(module, query, keys, values, mask):
    rule = module.rule(keys.dtype)
    features = module.features
    out, state = recurrence(rule, features(query), features(keys), values, mask)
    return jnp.concatenate([out, features(query) @ state.T])


def by_chunks(module, query, keys, values, mask):
    causal = module(query, keys, values, mask, is_causal=True)
    return jnp.concatenate([causal, module(query, keys, values, mask)])


def with_gradients(read, module, mask):
    def loss(module, *tokens):
        out = read(module, *tokens, mask)
        return jnp.sum(jnp.sin(out)), out

    gradients, out = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True))(
        module, QUERY, KEYS, VALUES
    )
    return [out, *jax.tree.leaves(gradients)]


@pytest.mark.parametrize("name", MEMBERS)
def test_any_chunk_length_gives_the_recurrence_and_its_gradients(name):
    expected = with_gradients(by_recurrence, MEMBERS[name](), MASK)
    for chunk_length in (1, 5, 64) if name == "delta with decay" else (5,):
        module = MEMBERS[name](chunk_length=chunk_length)
        found = with_gradients(by_chunks, module, MASK)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("chunk_length", [1, 7, 64])
def test_chunks_are_online_gradient_descent_in_plain_numpy(chunk_length):
    query, keys, values = map(np.asarray, (QUERY, KEYS, VALUES))
    state, delta = np.zeros((2, 3)), []
    for asked, key, value in zip(query, keys, values, strict=True):
        state = 0.9 * state
        state = state - 0.7 / (key @ key) * np.outer(state @ key - value, key)
        delta.append(state @ asked)
    sums = np.cumsum(values[:, :, None] * keys[:, None, :], axis=0)
    linear = np.einsum("tvd,td->tv", sums, query)
    for name, exact in (("delta with decay", np.array(delta)), ("linear", linear)):
        found = MEMBERS[name](chunk_length=chunk_length)(QUERY, KEYS, VALUES, is_causal=True)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-10)


def test_a_key_that_does_not_count_does_not_fade_the_others():
    module = DeltaRule(0.7, 0.9)
    kept = np.flatnonzero(np.asarray(MASK))
    expected = by_recurrence(module, QUERY[kept], KEYS[kept], VALUES[kept], None)[: len(kept)]
    found = module(QUERY, KEYS, VALUES, MASK, is_causal=True)[kept]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["linear", "delta", "delta with decay"])
def test_float32_over_two_thousand_keys(name):
    """Errors stay near the rounding of the data: 10⁻⁵ of the largest answer."""
    rng = np.random.default_rng(1)
    tokens = [rng.normal(size=(2048, width)).astype(np.float32) for width in (8, 8, 4)]
    query, keys, values = (jnp.asarray(array, jnp.float64) for array in tokens)
    exact = by_recurrence(MEMBERS[name](), query, keys, values, None)[:2048]
    with jax.enable_x64(False):
        module = MEMBERS[name]()
        out = module(*tokens, is_causal=True)
        assert out.dtype == jnp.float32
        found = np.asarray(out, np.float64)
    assert np.abs(found - exact).max() < 1e-5 * np.abs(exact).max()


def test_equal_keys_are_no_problem():
    """The system of a chunk of twins has ones everywhere below its diagonal."""
    keys = np.ones((200, 3), np.float32)
    values = np.random.default_rng(2).normal(size=(200, 2)).astype(np.float32)
    with jax.enable_x64(False):
        out = DeltaRule(1.0)(keys, keys, values, is_causal=True)
        np.testing.assert_allclose(out, values, atol=1e-5)  # the last pair is met
        alternating = DeltaRule(1.99)(keys, keys, values, is_causal=True)
        exact = np.zeros(2)
        for value, answer in zip(values, np.asarray(alternating), strict=True):
            exact = exact - 1.99 * (exact - value)
            np.testing.assert_allclose(answer, exact, atol=1e-3)


@pytest.mark.parametrize("width", [(), (3,)])
def test_gates_per_token_are_the_recurrence(width):
    """Also in float32 after a decay to nothing, where a running sum would lose its digits."""
    rng = np.random.default_rng(3)
    length = 70
    tokens = [rng.normal(size=(length, 1, size)) for size in (3, 3, 2)]
    step = rng.uniform(0, 2, size=(length, 1))
    decay = rng.uniform(0.9, 1.0, size=(length, 1, *width))
    decay[[9, 20, 21]] = 1e-38
    rule = UpdateRule(jnp.asarray(step[:, 0]), jnp.log(jnp.asarray(decay[:, 0])))
    exact, _ = recurrence(rule, *(jnp.asarray(each[:, 0]) for each in tokens))
    for dtype, atol in ((np.float64, 1e-10), (np.float32, 1e-5)):
        gates = {"step": step.astype(dtype), "decay": decay.astype(dtype)}
        found = delta_rule_attention(*(t.astype(dtype) for t in tokens), is_causal=True, **gates)
        answers = np.asarray(found[:, 0], float)
        np.testing.assert_allclose(answers, exact, rtol=0, atol=atol * np.abs(exact).max())


def test_gates_are_checked():
    tokens = jnp.ones((3, 1, 4, 2, 3))
    for gates, words in (
        ({"decay": 0.5, "log_decay": -1.0}, "not both"),
        ({"decay": 1.1}, "`decay` argument .* between 0 and 1"),
        ({"log_decay": jnp.ones((4, 2))}, "`log_decay` argument"),
        ({"step": jnp.ones((3, 2))}, r"`step` argument .* broadcastable to \(1, 4, 2\)"),
        ({"step": 2.5}, "`step` argument .* between 0 and 2"),
    ):
        with pytest.raises(InputError, match=words):
            delta_rule_attention(*tokens, **gates)


def test_the_program_has_no_loop_over_tokens():
    tokens = [jax.ShapeDtypeStruct((512, 4), jnp.float64)] * 3
    for module in (LinearAttention(), DeltaRule(1.0, 0.9)):
        jaxpr = jax.make_jaxpr(lambda *t, m=module: m(*t, is_causal=True))(*tokens)
        assert lengths_of_scans(jaxpr.jaxpr) == [8]  # chunks of 64


def lengths_of_scans(jaxpr):
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            found.append(equation.params["length"])
        for sub in jaxprs_in_params(equation.params):
            found += lengths_of_scans(sub)
    return found


@pytest.mark.parametrize("name", ["linear", "delta with decay"])
def test_contexts_one_after_the_other_are_contexts_together(name, monkeypatch, recompiled):
    """Long contexts take turns, short ones run under one `vmap`: values, gradients and masks."""
    tokens = [jnp.stack([array, array[::-1], 2 * array]) for array in (QUERY, KEYS, VALUES)]
    masks = jnp.stack([MASK, ~MASK, MASK[::-1]])
    found = []
    for entries in (1, 2**14):
        context_batch._program.cache_clear()
        monkeypatch.setattr(state_attention, "MIN_ALONE_ENTRIES", entries)
        module = MEMBERS[name]()

        def loss(*tokens, module=module):
            out = module(*tokens, masks, is_causal=True)
            return jnp.sum(jnp.sin(out)), out

        program = jax.make_jaxpr(lambda *tokens, module=module: module(*tokens, masks))(*tokens)
        gradients, out = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(*tokens)
        found.append(("remat" in str(program) or "checkpoint" in str(program), [out, *gradients]))
    assert [each[0] for each in found] == [True, False]
    for turns, together in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(turns, together, rtol=0, atol=1e-12)

"""Linear, delta-rule and local linear attention in the layout of JAX: head by head the modules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import (
    DeltaRule,
    LinearAttention,
    LocalLinear,
    delta_rule_attention,
    linear_attention,
    local_linear_attention,
)
from finetti.core.errors import InputError
from finetti.kernels import RBF, Polynomial

BATCH, T, S, HEADS, KEY_HEADS, WIDTH = 2, 4, 6, 4, 2, 3
RNG = np.random.default_rng(0)
QUERY, KEY, VALUE = (
    jnp.asarray(RNG.normal(size=(BATCH, *size, WIDTH)))
    for size in ((T, HEADS), (S, KEY_HEADS), (S, KEY_HEADS))
)
LENGTHS = jnp.array([6, 3])
MASK = jnp.asarray(RNG.random((BATCH, 1, T, S)) < 0.7).at[..., 0].set(True)
MEMBERS = {
    "linear": (linear_attention, {}, LinearAttention()),
    "polynomial": (
        linear_attention,
        {"kernel": Polynomial(2)},
        LinearAttention(Polynomial(2)),
    ),
    "delta": (
        delta_rule_attention,
        {"step": 0.7, "decay": 0.9},
        DeltaRule(0.7, 0.9),
    ),
    "local": (
        local_linear_attention,
        {"kernel": RBF(0.8), "ridge": 0.3},
        LocalLinear(RBF(0.8), 0.3),
    ),
}
CASES = {
    "plain": {},
    "causal and lengths": {"is_causal": True, "key_value_seq_lengths": LENGTHS},
    "mask": {"mask": MASK},
    "heads that read nothing": {"mask": jnp.arange(HEADS).reshape(1, HEADS, 1, 1) != 1},
    "mask and causal": {"mask": MASK, "is_causal": True},
    "window": {"local_window_size": 1},
}


def by_heads(module, options, scale):
    """The module on √scale times the tokens, every head with one mask per query."""
    mask = np.broadcast_to(np.asarray(options.get("mask", True)), (BATCH, HEADS, T, S))
    if options.get("is_causal"):
        mask = mask & np.tril(np.ones((T, S), bool))
    if "local_window_size" in options:
        mask = mask & (np.abs(np.arange(S) - np.arange(T)[:, None]) <= 1)
    if "key_value_seq_lengths" in options:
        mask = mask & (np.arange(S) < np.asarray(LENGTHS)[:, None])[:, None, None]
    query, key, value = (array.swapaxes(1, 2) for array in (QUERY, KEY, VALUE))
    key, value = (jnp.repeat(array, HEADS // KEY_HEADS, axis=1) for array in (key, value))
    root = scale**0.5
    return module(root * query, root * key, value, mask).swapaxes(1, 2)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", MEMBERS)
def test_each_is_its_module_on_scaled_tokens(name, case):
    function, settings, module = MEMBERS[name]
    options = CASES[case]
    scale = {"scale": 0.37} if case == "plain" else {}
    out = function(QUERY, KEY, VALUE, **settings, **scale, **options)
    expected = by_heads(module, options, scale.get("scale", WIDTH**-0.5))
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["linear", "delta", "local"])
def test_padding_unbatched_and_half_precision(name):
    function, settings, _ = MEMBERS[name]
    lengths = {"key_value_seq_lengths": LENGTHS, "query_seq_lengths": jnp.array([4, 2])}
    clean = function(QUERY, KEY, VALUE, **settings, **lengths)
    dirty = [array.at[1, 3:].set(jnp.nan) for array in (KEY, VALUE)]
    np.testing.assert_array_equal(function(QUERY, *dirty, **settings, **lengths), clean)
    assert (clean[1, 2:] == 0).all()
    whole = function(QUERY, KEY, VALUE, **settings)
    alone = function(QUERY[0], KEY[0], VALUE[0], **settings)
    np.testing.assert_allclose(alone, whole[0], rtol=0, atol=1e-13)
    with jax.enable_x64(False):
        half = [jnp.asarray(np.asarray(array), jnp.bfloat16) for array in (QUERY, KEY, VALUE)]
        assert function(*half).dtype == jnp.bfloat16


def test_refusals():
    for function, _, _ in MEMBERS.values():
        with pytest.raises(InputError, match=f"`bias` argument of {function.__name__}"):
            function(QUERY, KEY, VALUE, jnp.zeros((1, 1, T, S)))
        with pytest.raises(InputError, match=f"`key` argument of {function.__name__}"):
            function(QUERY, KEY[..., :2], VALUE)

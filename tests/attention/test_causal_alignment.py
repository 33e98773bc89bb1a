"""Fewer queries than keys: the first query at the first key, as in JAX, or the last at the last."""

import jax
import numpy as np
import pytest

from finetti.attention import (
    PerQueryMaskWarning,
    cme_attention,
    delta_rule_attention,
    flax_attention_fn,
    kernel_attention,
    linear_attention,
    local_linear_attention,
    softmax_attention,
)
from finetti.core.errors import InputError

FUNCTIONS = {
    "softmax": softmax_attention,
    "kernel": kernel_attention,
    "local": local_linear_attention,
    "linear": linear_attention,
    "delta": delta_rule_attention,
    "cme": cme_attention,
}
SPAN = 6
RNG = np.random.default_rng(0)
QUERY, KEY, VALUE = (RNG.normal(size=(2, SPAN, heads, 3)) for heads in (4, 2, 2))
LAST = {"is_causal": True, "causal_alignment": "lower_right"}
# CME attention and the delta rule say what a mask per query costs.
pytestmark = pytest.mark.filterwarnings("ignore::finetti.attention.PerQueryMaskWarning")


def close(left, right, atol=1e-10):
    np.testing.assert_allclose(left, right, rtol=0, atol=atol)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_steps_of_decoding_are_the_last_rows_of_the_whole(function):
    whole = function(QUERY, KEY, VALUE, is_causal=True)
    close(function(QUERY, KEY, VALUE, **LAST), whole)
    for steps in (1, 2):
        close(function(QUERY[:, -steps:], KEY, VALUE, **LAST), whole[:, -steps:])
        window = {"local_window_size": (1, 0)}
        near = function(QUERY, KEY, VALUE, **window)[:, -steps:]
        close(function(QUERY[:, -steps:], KEY, VALUE, **LAST, **window), near)
    # By default the same query stands at the first key, and reads it alone.
    first = function(QUERY[:, -1:], KEY, VALUE, is_causal=True)
    close(first, function(QUERY[:, -1:], KEY[:, :1], VALUE[:, :1]))


@pytest.mark.parametrize("function", [softmax_attention, cme_attention], ids=["softmax", "cme"])
def test_padded_caches_count_from_the_end_of_each(function):
    """The cache of the second context holds four keys, and its only query is the first of two."""
    spoiled_key, spoiled_value = KEY.copy(), VALUE.copy()
    spoiled_key[1, 4:], spoiled_value[1, 4:] = np.nan, np.nan
    lengths = {"key_value_seq_lengths": np.array([6, 4]), "query_seq_lengths": np.array([2, 1])}
    found = function(QUERY[:, :2], spoiled_key, spoiled_value, **LAST, **lengths)
    close(found[0, 0], function(QUERY[:1, :1], KEY[:1, :5], VALUE[:1, :5])[0, 0])
    close(found[0, 1], function(QUERY[:1, 1:2], KEY[:1], VALUE[:1])[0, 0])
    close(found[1, 0], function(QUERY[1:, :1], KEY[1:, :4], VALUE[1:, :4])[0, 0])
    assert (found[1, 1] == 0).all()
    alone = {"key_value_seq_lengths": np.array([6, 4])}
    step = function(QUERY[:, :1], spoiled_key, spoiled_value, **LAST, **alone)
    close(step[1, 0], found[1, 0])


def test_the_default_is_that_of_jax():
    for length in (1, 3, 6):
        query = QUERY[:, :length]
        with jax.numpy_dtype_promotion("standard"):
            expected = jax.nn.dot_product_attention(query, KEY, VALUE, is_causal=True)
        close(softmax_attention(query, KEY, VALUE, is_causal=True), expected, 1e-5)  # in float32


def test_one_step_takes_one_solve(recwarn):
    """The last position reads all keys, so that it needs no mask of its own."""
    cme_attention(QUERY[:, -1:], KEY, VALUE, **LAST)
    assert not [each for each in recwarn if issubclass(each.category, PerQueryMaskWarning)]


def test_other_words_are_refused_and_flax_counts_alike():
    with pytest.raises(InputError, match=r"`causal_alignment` argument of softmax.*lower_right"):
        softmax_attention(QUERY, KEY, VALUE, is_causal=True, causal_alignment="last")  # pyright: ignore[reportArgumentType]
    mask = np.tril(np.ones((2, SPAN), bool), SPAN - 2)[None, None]
    tokens = QUERY[:, -2:], KEY[:, :, [0, 0, 1, 1]], VALUE[:, :, [0, 0, 1, 1]]
    aligned = flax_attention_fn(softmax_attention, key_mask=True, **LAST)
    close(aligned(*tokens, mask=mask), softmax_attention(*tokens, mask=mask))
    with pytest.raises(InputError, match="key_mask=True"):
        flax_attention_fn(softmax_attention, key_mask=True, is_causal=True)(*tokens, mask=mask)

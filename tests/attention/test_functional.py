"""The functional forms against jax.nn.dot_product_attention, argument by argument."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import (
    ConditionalMean,
    Softmax,
    cme_attention,
    kernel_attention,
    softmax_attention,
)
from finetti.core.errors import InputError
from finetti.kernels import RBF, Exponential

close = partial(np.testing.assert_allclose, rtol=0)

BATCH, T, S, HEADS, WIDTH = 2, 4, 6, 4, 3


def tensors(key_heads=HEADS, seed=0):
    rng = np.random.default_rng(seed)
    sizes = (T, HEADS), (S, key_heads), (S, key_heads)
    return tuple(jnp.asarray(rng.normal(size=(BATCH, *size, WIDTH))) for size in sizes)


def jax_attention(*arrays, **options):
    """JAX's own function does not promise to obey strict promotion, and insists on int32."""
    options = {
        name: option.astype(jnp.int32) if "seq_lengths" in name else option
        for name, option in options.items()
    }
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return jax.nn.dot_product_attention(*arrays, **options)


def softmax_by_formula(query, key, value, bias=None, scale=WIDTH**-0.5, **options):
    """softmax(scale·query·key + bias) value in NumPy; a dead row reads evenly."""
    key, value = (np.repeat(array, HEADS // key.shape[2], axis=2) for array in (key, value))
    logits = scale * np.einsum("btnh,bsnh->bnts", query, key)
    logits = np.where(
        full_mask(options), logits + np.asarray(0.0 if bias is None else bias), -1e300
    )
    scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
    out = np.einsum("bnts,bsnd->btnd", scores / scores.sum(axis=-1, keepdims=True), value)
    return without_padding(out, options)


def full_mask(options):
    mask = np.broadcast_to(options.get("mask", True), (BATCH, HEADS, T, S))
    if options.get("is_causal"):
        mask = mask & np.tril(np.ones((T, S), bool))
    if "local_window_size" in options:
        before, after = options["local_window_size"]
        distance = np.arange(S) - np.arange(T)[:, None]
        mask = mask & (-before <= distance) & (distance <= after)
    if "key_value_seq_lengths" in options:
        lengths = np.asarray(options["key_value_seq_lengths"])
        mask = mask & (np.arange(S) < lengths[:, None])[:, None, None, :]
    return mask


def without_padding(out, options):
    if "query_seq_lengths" in options:
        out[np.arange(T) >= np.asarray(options["query_seq_lengths"])[:, None]] = 0.0
    return out


def random_mask(shape, seed=1):
    mask = np.random.default_rng(seed).random(shape) < 0.6
    mask[..., 0] = True
    return jnp.asarray(mask)


def dead_rows():
    mask = np.ones((BATCH, HEADS, T, S), bool)
    mask[0, 1, 2] = False
    mask[1, :, 0] = False
    return jnp.asarray(mask)


CASES = {
    "plain": {},
    "scale": {"scale": 0.37},
    "key mask": {"mask": random_mask((BATCH, 1, 1, S))},
    "head mask": {"mask": random_mask((BATCH, HEADS, 1, S))},
    "full mask": {"mask": random_mask((BATCH, HEADS, T, S))},
    "shared mask": {"mask": random_mask((1, 1, T, S))},
    "heads that read nothing": {"mask": jnp.arange(HEADS).reshape(1, HEADS, 1, 1) != 1},
    "mask of rank 3": {"mask": random_mask((HEADS, T, S))},
    "mask of rank 2": {"mask": random_mask((T, S))},
    "mask of rank 1": {"mask": random_mask((S,))},
    "causal": {"is_causal": True},
    "window": {"local_window_size": (1, 2)},
    "window, causal and mask": {
        "local_window_size": (2, 1),
        "is_causal": True,
        "mask": random_mask((BATCH, 1, T, S)),
    },
    "key lengths": {"key_value_seq_lengths": jnp.array([6, 3])},
    "query lengths": {"query_seq_lengths": jnp.array([2, 4])},
    "both lengths": {
        "query_seq_lengths": jnp.array([3, 1]),
        "key_value_seq_lengths": jnp.array([2, 5]),
    },
    "causal, lengths and mask": {
        "is_causal": True,
        "key_value_seq_lengths": jnp.array([6, 3]),
        "mask": random_mask((BATCH, 1, T, S)),
    },
    "dead rows": {"mask": dead_rows()},
    "no keys at all": {"mask": jnp.zeros((BATCH, HEADS, T, S), bool)},
}
BIASES = {
    "bias": {"bias": jnp.asarray(np.random.default_rng(5).normal(size=(BATCH, HEADS, T, S)))},
    "shared bias and causal": {
        "bias": jnp.asarray(np.random.default_rng(6).normal(size=(1, 1, T, S))),
        "is_causal": True,
    },
    "bias of rank 2": {"bias": jnp.asarray(np.random.default_rng(6).normal(size=(T, S)))},
}
cases = pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())


# Heads matter to what differs between heads; lengths and causality do not see them.
OF_HEADS = ["plain", "head mask", "full mask", "dead rows", "bias"]


@pytest.mark.parametrize(
    ("name", "key_heads"),
    [*((name, 2) for name in CASES | BIASES), *((name, HEADS) for name in OF_HEADS)],
)
def test_softmax_attention_is_jax(name, key_heads):
    options = (CASES | BIASES)[name]
    query, key, value = tensors(key_heads)
    ours = softmax_attention(query, key, value, **options)
    close(ours, softmax_by_formula(query, key, value, **options), atol=1e-13)
    close(kernel_attention(query, key, value, kernel=Exponential(), **options), ours, atol=1e-12)
    # JAX rounds its scores to float32, whatever the input: 24 bits, on scores of size 10 or so.
    close(ours, jax_attention(query, key, value, **options), atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "bias", "window, causal and mask", "dead rows"])
def test_the_residual_is_the_logarithm_of_what_divides(name):
    arrays, options = tensors(2), (CASES | BIASES)[name]
    out, residual = softmax_attention(*arrays, **options, return_residual=True)
    close(out, softmax_attention(*arrays, **options), atol=0)
    theirs = jax_attention(*arrays, **options, return_residual=True)[1]
    # A query that may read nothing has the lowest number of float32 there, of float64 here.
    readable = np.asarray(theirs) > -1e30
    assert readable.all() == (name != "dead rows")
    close(residual[readable], theirs[readable], atol=1e-5)
    assert (residual[~readable] < -1e30).all()

    def total(query):
        return softmax_attention(query, *arrays[1:], return_residual=True)[1].sum()

    assert (jax.grad(total)(arrays[0]) == 0).all()
    single = softmax_attention(*(array[0] for array in arrays), return_residual=True)[1]
    assert single.shape == (T, HEADS)


def test_one_number_is_a_window_on_both_sides():
    arrays = tensors()
    same = softmax_attention(*arrays, local_window_size=(1, 1))
    close(softmax_attention(*arrays, local_window_size=1), same, atol=0)
    close(same, jax_attention(*arrays, local_window_size=1), atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "full mask", "key lengths", "causal", "query lengths"])
def test_unbatched_inputs(name):
    arrays = tensors(2)
    options = dict(CASES[name])
    for argument, array in options.items():
        if isinstance(array, jax.Array):
            options[argument] = array[:1]
    single = [array[0] for array in arrays]
    close(softmax_attention(*single, **options), jax_attention(*single, **options), atol=1e-6)
    batched = cme_attention(*(array[:1] for array in arrays), **options)
    close(cme_attention(*single, **options), batched[0], atol=1e-14)


def cme_by_loop(query, key, value, lengthscale, ridge, scale, mask):
    """(4.5) for every batch, head and query on its own, unreadable keys deleted, in NumPy."""
    query, key, value = (np.asarray(array) for array in (query, key, value))
    groups = query.shape[2] // key.shape[2]
    out = np.zeros((*query.shape[:3], value.shape[3]))

    def rbf(xs, ys):
        squares = np.sum((xs[:, None] - ys[None]) ** 2, axis=-1)
        return np.exp(-scale * squares / (2 * lengthscale**2))

    for b, t, n in np.ndindex(*query.shape[:3]):
        kept = mask[b, n, t]
        keys, values = (array[b, :, n // groups][kept] for array in (key, value))
        weights = np.linalg.solve(
            rbf(keys, keys) + ridge * np.eye(len(keys)), rbf(keys, query[b, t, n][None])
        )
        out[b, t, n] = weights[:, 0] @ values
    return out


@cases
def test_cme_attention_is_the_loop_over_queries(options):
    query, key, value = tensors(2)
    scale = options.get("scale", WIDTH**-0.5)
    expected = cme_by_loop(query, key, value, 0.8, 0.2, scale, full_mask(options))
    expected = without_padding(expected, options)
    ours = cme_attention(query, key, value, kernel=RBF(0.8), ridge=0.2, **options)
    close(ours, expected, atol=1e-10)


def test_functional_and_module_agree():
    query, key, value = (array[:1] for array in tensors())
    flat = [array[0].swapaxes(0, 1) for array in (query, key, value)]  # heads as the batch

    def heads(out):
        return out.swapaxes(0, 1)[None]

    close(softmax_attention(query, key, value, scale=1.0), heads(Softmax()(*flat)), atol=1e-14)
    close(
        cme_attention(query, key, value, scale=1.0, ridge_per_token=0.05),
        heads(ConditionalMean(RBF(), ridge_per_token=0.05)(*flat)),
        atol=1e-13,
    )


def test_value_width_may_differ_from_key_width():
    query, key, value = tensors()
    wide = jnp.concatenate([value, value[..., :1]], axis=-1)
    for attention in (softmax_attention, kernel_attention, cme_attention):
        out = attention(query, key, wide)
        assert out.shape == (BATCH, T, HEADS, WIDTH + 1)
        close(out[..., :WIDTH], attention(query, key, value), atol=1e-13)


def test_padding_may_hold_anything():
    query, key, value = tensors()
    options = {"key_value_seq_lengths": jnp.array([6, 3])}
    dirty = [array.at[1, 3:].set(jnp.nan) for array in (key, value)]
    for attention in (softmax_attention, kernel_attention, cme_attention):
        clean = attention(query, key, value, **options)
        np.testing.assert_array_equal(attention(query, *dirty, **options), clean)


@pytest.mark.parametrize("attention", [softmax_attention, kernel_attention, cme_attention])
def test_inside_jit_nan_reaches_those_who_read_it_and_no_other_head(attention):
    read = jax.jit(partial(attention, is_causal=True))
    query, key, value = tensors()
    expected = read(query, key, value)
    for arrays in ((key.at[1, 2, 0].set(jnp.nan), value), (key, value.at[1, 2, 0].set(jnp.nan))):
        found = read(query, *arrays)
        assert jnp.isnan(found[1, 2:, 0]).all()
        others = np.ones(expected.shape, bool)
        others[1, :, 0] = False
        close(found[others], expected[others], atol=1e-12)


@pytest.mark.parametrize("attention", [softmax_attention, kernel_attention, cme_attention])
def test_nothing_asked_is_nothing_answered(attention):
    query, key, value = tensors()
    assert attention(query[:0], key[:0], value[:0]).shape == (0, *query.shape[1:])
    assert attention(query[:, :0], key, value).shape == (BATCH, 0, HEADS, WIDTH)


def test_a_mask_without_batch_and_heads_will_do_for_one_sequence():
    query, key, value = (array[0] for array in tensors())
    mask = random_mask((T, S))
    out = softmax_attention(query, key, value, mask=mask)
    close(out, softmax_attention(query, key, value, mask=mask[None, None]), atol=0)


@pytest.mark.parametrize("attention", [softmax_attention, kernel_attention, cme_attention])
def test_half_precision_comes_back_as_it_went_in(attention):
    with jax.enable_x64(False):
        half = [jnp.asarray(np.asarray(array), jnp.bfloat16) for array in tensors()]
        single = [array.astype(jnp.float32) for array in half]
        out = attention(*half)
        assert out.dtype == jnp.bfloat16
        # bfloat16 has 8 bits: half a unit in the last place is 2⁻⁹ of the value.
        expected = np.asarray(attention(*single), np.float64)
    close(np.asarray(out, np.float64), expected, rtol=2**-8, atol=1e-6)


BAD = {
    "query": lambda q, k, v: ((q[0, 0], k, v), {}),
    "key": lambda q, k, v: ((q, k[..., :2], v), {}),
    "value": lambda q, k, v: ((q, k, v[:, :3]), {}),
    "key ": lambda q, k, v: ((q, k[:, :, :3], v[:, :, :3]), {}),
    "key  ": lambda q, k, v: ((q, k[:, :0], v[:, :0]), {}),
    "key   ": lambda q, k, v: ((q, k[0], v[0]), {}),
    "value ": lambda q, k, v: ((q, k, v[0]), {}),
    "mask": lambda q, k, v: ((q, k, v), {"mask": jnp.ones((BATCH, HEADS, T, S + 1), bool)}),
    "mask ": lambda q, k, v: ((q, k, v), {"mask": jnp.ones((BATCH, HEADS, T, S))}),
    "mask  ": lambda q, k, v: ((q, k, v), {"mask": jnp.ones((1, BATCH, HEADS, T, S), bool)}),
    "scale": lambda q, k, v: ((q, k, v), {"scale": 0.0}),
    "scale ": lambda q, k, v: ((q, k, v), {"scale": float("nan")}),
    "local_window_size": lambda q, k, v: ((q, k, v), {"local_window_size": -1}),
    "local_window_size ": lambda q, k, v: ((q, k, v), {"local_window_size": (1, 2, 3)}),
    "key_value_seq_lengths": lambda q, k, v: (
        (q, k, v),
        {"key_value_seq_lengths": jnp.array([1, 2, 3])},
    ),
    "query_seq_lengths": lambda q, k, v: ((q, k, v), {"query_seq_lengths": jnp.array([1.0, 2.0])}),
    "query ": lambda q, k, v: ((q.at[0, 0, 0, 0].set(jnp.nan), k, v), {}),
    "key    ": lambda q, k, v: ((q, k.at[0, 0, 0, 0].set(jnp.inf), v), {}),
    "value  ": lambda q, k, v: ((q, k, v.at[0, 0, 0, 0].set(jnp.nan)), {}),
}


@pytest.mark.parametrize("attention", [softmax_attention, kernel_attention, cme_attention])
@pytest.mark.parametrize("argument", BAD)
def test_bad_arguments_are_named(attention, argument):
    arrays, options = BAD[argument](*tensors())
    name = argument.strip()
    with pytest.raises(InputError, match=f"`{name}` argument of {attention.__name__} "):
        attention(*arrays, **options)


@pytest.mark.parametrize("attention", [softmax_attention, kernel_attention])
def test_bad_biases_are_named(attention):
    arrays = tensors()
    for bias in (jnp.ones((BATCH, HEADS, T, S + 1)), jnp.full((1, 1, T, S), jnp.nan)):
        with pytest.raises(InputError, match="`bias` argument"):
            attention(*arrays, bias)


def test_an_infinite_negative_bias_is_a_mask():
    arrays, mask = tensors(), random_mask((BATCH, 1, T, S))
    bias = jnp.where(mask, 0.0, -jnp.inf)
    masked = softmax_attention(*arrays, mask=mask)
    close(softmax_attention(*arrays, bias), masked, atol=1e-14)


def test_refusals_of_cme_attention():
    arrays = tensors()
    with pytest.raises(InputError, match="`bias` argument of cme_attention"):
        cme_attention(*arrays, jnp.zeros((1, 1, T, S)))
    with pytest.raises(InputError, match="`ridge_per_token` argument of cme_attention"):
        cme_attention(*arrays, ridge_per_token=0.1, is_causal=True)
    with pytest.raises(InputError, match="`ridge` argument of"):
        cme_attention(*arrays, ridge=-1.0)
    with pytest.raises(InputError, match=r"`ridge` .* or `ridge_per_token`"):
        cme_attention(*arrays, ridge=1.0, ridge_per_token=1.0)


def test_kernel_attention_is_traced_once():
    class Counted(RBF):
        def _log_gram(self, xs, ys):
            traced.append(xs.shape)
            return super()._log_gram(xs, ys)

    traced, arrays = [], tensors()
    first = kernel_attention(*arrays, kernel=Counted())
    times = len(traced)
    assert times > 0
    close(kernel_attention(*arrays, kernel=Counted()), first, atol=0)
    assert len(traced) == times

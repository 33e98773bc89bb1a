"""What every attention promises, member by member."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import (
    Attention,
    ConditionalMean,
    DeltaRule,
    KernelSmoother,
    LinearAttention,
    LocalLinear,
    Softmax,
)
from finetti.core.errors import InputError
from finetti.kernels import RBF, Exponential, Linear, Matern, Polynomial

pytestmark = pytest.mark.rounding

close = partial(np.testing.assert_allclose, rtol=0)
MEMBERS = {
    "softmax": Softmax(),
    "smoother-exponential": KernelSmoother(Exponential(0.7)),
    "smoother-rbf": KernelSmoother(RBF(0.9)),
    "smoother-sum": KernelSmoother(Matern(1.5) + Polynomial(2)),
    "mean-rbf": ConditionalMean(RBF(0.9), ridge=0.2),
    "mean-exponential": ConditionalMean(Exponential(0.7), ridge=0.2),
    "mean-linear-per-token": ConditionalMean(Linear(), ridge_per_token=0.05),
    "mean-polynomial": ConditionalMean(Polynomial(3, scale=0.5), ridge=0.2),
    "mean-sum": ConditionalMean(0.5 * RBF() + Exponential(0.3), ridge_per_token=0.1),
    "linear": LinearAttention(),
    "linear-polynomial": LinearAttention(Polynomial(2, scale=0.5)),
    "delta": DeltaRule(0.8, decay=0.9, chunk_length=4),
    "local-rbf": LocalLinear(RBF(0.9), ridge=0.3),
}
members = pytest.mark.parametrize("attention", MEMBERS.values(), ids=MEMBERS.keys())
# One per way of computing, for what the kernel cannot change.
SOME = ["softmax", "smoother-rbf", "mean-rbf", "mean-exponential", "linear", "delta", "local-rbf"]
some = pytest.mark.parametrize("attention", [MEMBERS[name] for name in SOME], ids=SOME)
NORMALIZED = [name for name in MEMBERS if name.startswith(("softmax", "smoother"))]
MASK = jnp.array([True, False, True, True, False, True])
MASKS = jnp.array(
    [
        [True, False, True, True, False, True],
        [False, True, False, False, False, False],
        [True, True, True, True, True, False],
        [False, False, True, True, False, False],
    ]
)  # the last key but one is read by the third query alone


def context(seed=0):
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(rng.normal(size=size)) for size in ((4, 3), (6, 3), (6, 2)))


def test_all_are_attention():
    assert all(isinstance(member, Attention) for member in MEMBERS.values())


@members
def test_output_is_the_weighted_sum_of_values(attention):
    query, keys, values = context()
    for mask in (None, MASK):
        weights = attention.weights(query, keys, mask)
        assert weights.shape == (4, 6)
        out = attention(query, keys, values, mask)
        assert out.shape == (4, 2)
        close(weights @ values, out, atol=1e-12)
        if mask is not None:
            assert (weights[~jnp.broadcast_to(mask, (4, 6))] == 0).all()


@pytest.mark.parametrize("name", NORMALIZED)
def test_normalized_weights_are_probabilities(name):
    query, keys, _ = context()
    for mask in (None, MASK, MASKS):
        weights = MEMBERS[name].weights(query, keys, mask)
        assert (weights >= 0).all()
        close(weights.sum(axis=-1), jnp.ones(4), atol=1e-14)


@members
def test_order_of_tokens_does_not_matter(attention):
    query, keys, values = context()
    order = jnp.array([3, 0, 5, 1, 4, 2])
    out = attention(query, keys, values)
    if isinstance(attention, DeltaRule):  # the one member that reads its keys in turn
        assert jnp.abs(attention(query, keys[order], values[order]) - out).max() > 0.1
        return
    close(attention(query, keys[order], values[order]), out, atol=1e-12)
    masked = attention(query, keys, values, MASKS)
    close(attention(query, keys[order], values[order], MASKS[:, order]), masked, atol=1e-12)


@members
def test_queries_do_not_see_each_other(attention):
    query, keys, values = context()
    out = attention(query, keys, values)
    crowded = attention(query.at[1:].set(5.0), keys, values)
    close(crowded[0], out[0], atol=1e-13)


@members
def test_linear_in_the_values(attention):
    query, keys, values = context()
    other = context(1)[2]
    combined = attention(query, keys, 2.0 * values - 3.0 * other)
    parts = 2.0 * attention(query, keys, values) - 3.0 * attention(query, keys, other)
    close(combined, parts, atol=1e-12)


@members
def test_masking_is_deletion_whatever_the_slot_holds(attention):
    query, keys, values = context()
    deleted = attention(query, keys[MASK], values[MASK])
    close(attention(query, keys, values, MASK), deleted, atol=1e-12)
    dirty = [jnp.where(MASK[:, None], array, jnp.nan) for array in (keys, values)]
    close(attention(query, *dirty, MASK), deleted, atol=1e-12)
    repeated = jnp.broadcast_to(MASK, (4, 6))  # the same, said to every query
    close(attention(query, *dirty, repeated), deleted, atol=1e-12)


@members
def test_a_mask_per_query_deletes_for_that_query(attention):
    query, keys, values = context()
    out = attention(query, keys, values, MASKS)
    for index, mask in enumerate(MASKS):  # a key mask is deletion: the test above
        close(out[index], attention(query, keys, values, mask)[index], atol=1e-12)


@members
def test_one_query_need_not_see_what_another_reads(attention):
    """The slot that only one query reads may hold huge numbers; the others do not feel it."""
    query, keys, values = context()
    huge = values.at[4].set(1e8)
    others = jnp.array([0, 1, 3])
    out, expected = attention(query, keys, huge, MASKS), attention(query, keys, values, MASKS)
    np.testing.assert_array_equal(out[others], expected[others])
    assert jnp.abs(out[2] - expected[2]).max() > 1.0


@some
def test_inside_jit_nan_reaches_those_who_read_it(attention):
    """It cannot be refused there; what no query may read is harmless there, too."""
    query, keys, values = context()
    masked = jax.jit(lambda *arrays: attention(*arrays))
    ways = [({"mask": MASKS}, 4, MASKS[:, 4]), ({"is_causal": True}, 2, jnp.arange(4) >= 2)]
    for options, place, reads in ways:
        read = jax.jit(lambda *arrays, options=options: attention(*arrays, **options))
        for arrays in (
            (query, keys.at[place, 0].set(jnp.nan), values),
            (query, keys, values.at[place].set(jnp.nan)),
        ):
            assert jnp.isnan(read(*arrays)[reads]).all()
            hidden = MASK.at[place].set(False)
            close(masked(*arrays, hidden), masked(query, keys, values, hidden), atol=1e-12)
        found = read(query.at[1, 0].set(jnp.nan), keys, values)
        assert jnp.isnan(found[1]).all()


@some
def test_a_parameter_that_is_nan_is_seen(attention):
    query, keys, values = context()
    leaves, tree = jax.tree.flatten(attention)
    for place in range(len(leaves)):
        spoiled = [leaf * jnp.nan if at == place else leaf for at, leaf in enumerate(leaves)]
        for is_causal in (False, True):
            found = eqx.filter_jit(tree.unflatten(spoiled))(
                query, keys, values, is_causal=is_causal
            )
            # One key alone is read in full, whatever the scores.
            alone = is_causal and not isinstance(attention, ConditionalMean | DeltaRule)
            assert jnp.isnan(found[int(alone) :]).all()


@some
def test_no_queries_get_no_answers(attention):
    query, keys, values = context()
    assert attention(query[:0], keys, values).shape == (0, 2)
    assert attention.weights(query[:0], keys, is_causal=True).shape == (0, 6)


@members
def test_a_mask_of_ones_changes_nothing(attention):
    query, keys, values = context()
    out = attention(query, keys, values)
    for mask in (jnp.ones(6, bool), jnp.ones((4, 6), bool)):
        close(attention(query, keys, values, mask), out, atol=1e-13)


@members
def test_fully_masked_is_finite_and_stated(attention):
    """The normalized, and the line, spread evenly, as JAX does; the others have learned nothing."""
    query, keys, values = context()
    dead = jnp.zeros(6, bool)
    rows = MASKS.at[1].set(False)
    nothing = isinstance(attention, ConditionalMean | DeltaRule | LinearAttention)
    expected = jnp.zeros(2) if nothing else values.mean(axis=0)
    close(attention(query, keys, values, dead), jnp.broadcast_to(expected, (4, 2)), atol=1e-13)
    close(attention(query, keys, values, rows)[1], expected, atol=1e-13)
    unread = rows.at[:, 4].set(False)  # the average is over all values, read or not
    close(attention(query, keys, values, unread)[1], expected, atol=1e-13)
    if isinstance(attention, ConditionalMean):
        mean, variance = attention.posterior(query, keys, values, dead)
        assert (mean == 0).all()
        close(variance, attention.kernel.diagonal(query), atol=1e-13 * float(variance.max()))


@some
def test_batches_are_loops(attention):
    """Axes of the batch lead; further axes of the query are queries."""
    contexts = [context(seed) for seed in range(2)]
    query, keys, values = (jnp.stack(arrays) for arrays in zip(*contexts, strict=True))
    masks = jnp.stack([MASK, ~MASK])
    loop = jnp.stack([attention(*c, mask) for c, mask in zip(contexts, masks, strict=True)])
    close(attention(query, keys, values, masks), loop, atol=1e-13)
    close(jax.vmap(attention)(query, keys, values, masks), loop, atol=1e-13)


@pytest.mark.parametrize("name", ["softmax", "mean-rbf", "delta"])
def test_axes_of_the_caller_come_back(name):
    attention = MEMBERS[name]
    query, keys, values = context()
    out = attention(query, keys, values)
    close(attention(query.reshape(2, 2, 3), keys, values), out.reshape(2, 2, 2), atol=1e-13)
    close(attention(query[0], keys, values), out[0], atol=1e-13)
    nested = [jnp.stack([array] * 2)[None] for array in (query, keys, values)]
    close(attention(*nested), jnp.stack([out] * 2)[None], atol=1e-13)
    one_each = attention(query[:2], *(jnp.stack([array] * 2) for array in (keys, values)))
    close(one_each, out[:2], atol=1e-13)
    masked = attention(query, keys, values, MASKS)
    shaped = attention(query.reshape(2, 2, 3), keys, values, MASKS.reshape(2, 2, 6))
    close(shaped, masked.reshape(2, 2, 2), atol=1e-13)
    assert attention.weights(query.reshape(2, 2, 3), keys).shape == (2, 2, 6)
    weights = attention.weights(query, keys, MASKS)
    assert (weights[~MASKS] == 0).all()
    close(weights @ values, masked, atol=1e-12)


@some
def test_jit_changes_nothing(attention):
    query, keys, values = context()
    compiled = eqx.filter_jit(lambda attention, *arrays: attention(*arrays))
    eager = attention(query, keys, values, MASK)
    close(compiled(attention, query, keys, values, MASK), eager, atol=1e-13)


def lowered(attention):
    """The same member with float32 parameters."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float32), attention)


@members
def test_float32_data_gives_a_float32_answer(attention):
    arrays = [np.asarray(array) for array in context()]
    exact = np.asarray(attention(*arrays))
    with jax.enable_x64(False):
        single = [jnp.asarray(array, jnp.float32) for array in arrays]
        out = lowered(attention)(*single)
        assert out.dtype == jnp.float32
        # Rounding of data and parameters, 6e-8 each, amplified by the condition number.
        close(np.asarray(out), exact, atol=2e-5)


@some
def test_precisions_mix_and_batch(attention):
    arrays = [np.asarray(array) for array in context()]
    exact = np.asarray(attention(*arrays))
    assert attention(*(array.astype(np.float32) for array in arrays)).dtype == jnp.float32
    assert attention(arrays[0].astype(np.float32), *arrays[1:]).dtype == jnp.float64
    with jax.enable_x64(False):
        low, single = lowered(attention), [jnp.asarray(array, jnp.float32) for array in arrays]
        half = [array.astype(jnp.bfloat16) for array in single]
        rounded = low(*(array.astype(jnp.float32) for array in half))
        out = low(*half)
        assert out.dtype == jnp.bfloat16
        # Only the last rounding is to 8 bits.
        np.testing.assert_allclose(
            np.asarray(out, np.float64), np.asarray(rounded), rtol=2**-8, atol=1e-6
        )
        batched = jax.vmap(low, (0, None, None))(jnp.stack([single[0]] * 2), *single[1:])
        close(np.asarray(batched[1]), exact, atol=2e-5)


@members
def test_integers_are_read_as_numbers(attention):
    query, keys, values = (jnp.round(3 * array) for array in context())
    integers = [array.astype(int) for array in (query, keys, values)]
    close(attention(*integers), attention(query, keys, values), atol=1e-12)


BAD = {
    "query-width": ("query", lambda q, k, v: (q[:, :2], k, v)),
    "query-number": ("query", lambda q, k, v: (jnp.array(1.0), k, v)),
    "query-batch": ("query", lambda q, k, v: (q, jnp.stack([k] * 3), jnp.stack([v] * 3))),
    "query-missing": ("query", lambda q, k, v: (q[0], k[None], v[None])),
    "keys-rank": ("keys", lambda q, k, v: (q, k[0], v)),
    "keys-empty": ("keys", lambda q, k, v: (q, k[:0], v[:0])),
    "keys-flat": ("keys", lambda q, k, v: (q[:, :0], k[:, :0], v)),
    "values-rank": ("values", lambda q, k, v: (q, k, v[:5, 0])),
    "values-length": ("values", lambda q, k, v: (q, k, v[:5])),
    "values-batch": ("values", lambda q, k, v: (q, k, v[None])),
    "query-nan": ("query", lambda q, k, v: (q.at[1, 1].set(jnp.nan), k, v)),
    "keys-inf": ("keys", lambda q, k, v: (q, k.at[1, 1].set(jnp.inf), v)),
    "values-nan": ("values", lambda q, k, v: (q, k, v.at[1, 1].set(jnp.nan))),
    "mask-float": ("mask", lambda q, k, v: (q, k, v, jnp.ones(6))),
    "mask-length": ("mask", lambda q, k, v: (q, k, v, jnp.ones(5, bool))),
    "mask-queries": ("mask", lambda q, k, v: (q, k, v, jnp.ones((3, 6), bool))),
    "keys-readable-nan": ("keys", lambda q, k, v: (q, k.at[0].set(jnp.nan), v, MASK)),
}


@pytest.mark.parametrize("name", ["softmax", "smoother-rbf", "mean-rbf", "delta"])
@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_named(name, case):
    argument, spoil = BAD[case]
    arguments = spoil(*context())
    owner = type(MEMBERS[name]).__name__
    with pytest.raises(InputError, match=f"`{argument}` argument of {owner}"):
        MEMBERS[name](*arguments)
    if argument != "values" and len(arguments) == 3:
        with pytest.raises(InputError, match=f"`{argument}` argument"):
            MEMBERS[name].weights(*arguments[:2])

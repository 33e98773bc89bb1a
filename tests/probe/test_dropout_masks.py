"""Masks by a counter hash: reproducible, and random as far as dropout can see.

Every statistical test looks at fixed keys, so it never fails by chance; its level says how often a
perfect generator with other keys would. There are about 100 tests of level 1e-4 here: a perfect
generator fails none of them in 99 of 100 choices of keys.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from finetti.core.errors import InputError
from finetti.probe.cls_attention.dropout_masks import dropout_mask, keep, mask_words

LEVEL = 1e-4
SHAPE = (64, 32, 100)


def kept(key, stream=0, shape=SHAPE, rate=0.1):
    return np.asarray(dropout_mask(key, stream, shape, rate)) > 0


def uncorrelated(a, b, rate):
    """Whether the counts of (0,0), (0,1), (1,0), (1,1) are those of independent entries."""
    counts = np.bincount((2 * a + b).ravel().astype(int), minlength=4)
    single = np.array([rate, 1 - rate])
    wanted = np.outer(single, single).ravel() * a.size
    return stats.chisquare(counts, wanted).pvalue > LEVEL


def test_the_same_masks_everywhere():
    """Words of the hash itself: a change of it changes every result, and must be meant."""
    words = mask_words(jnp.array([1, 2], jnp.uint32), 3)
    assert words.tolist() == [1800173855, 1670230730]
    assert np.flatnonzero(~kept(jax.random.key(0), shape=(100,))).tolist() == [
        6,
        16,
        35,
        39,
        52,
        67,
        72,
    ]


def test_the_hash_in_plain_integers():
    words = mask_words(jax.random.key(5), 1)
    first, second = (int(w) for w in words)

    def slow(n):
        x = (n + first) % 2**32
        x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
        x = ((x ^ (x >> 15)) + second) * 0x846CA68B % 2**32
        return x ^ (x >> 16)

    fast = keep(words, (40, 5), 0.3)
    wanted = np.array([slow(n) >= round(0.3 * 2**32) for n in range(200)])
    assert np.array_equal(np.ravel(fast), wanted)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_frequency(rate, seed):
    mask = kept(jax.random.key(seed), rate=rate)
    assert stats.binomtest(int(mask.sum()), mask.size, 1 - rate).pvalue > LEVEL
    # Over blocks of 100 as well: a frequency that is right on the whole only would not do.
    rows = mask.reshape(-1, 100).sum(axis=1)
    spread = np.sum((rows - 100 * (1 - rate)) ** 2) / (100 * rate * (1 - rate))
    assert LEVEL < stats.chi2.cdf(spread, len(rows)) < 1 - LEVEL


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("distance", [1, 2, 16])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_neighbors(axis, distance, rate):
    mask = np.moveaxis(kept(jax.random.key(7), rate=rate), axis, 0)
    assert uncorrelated(mask[:-distance], mask[distance:], rate)


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("bit", [0, 1, 15, 31])
@pytest.mark.parametrize("word", [0, 1])
def test_keys_that_differ_in_one_bit(word, bit, rate):
    base = np.array([123, 456], np.uint32)
    other = base.copy()
    other[word] ^= np.uint32(1 << bit)
    assert uncorrelated(*(kept(jnp.asarray(k), rate=rate) for k in (base, other)), rate)


@pytest.mark.parametrize("shift", [0, 1, 100])
@pytest.mark.parametrize("stream", [1, 2, 3])
def test_streams(stream, shift):
    a, b = (kept(jax.random.key(11), s, rate=0.5).ravel() for s in (0, stream))
    assert uncorrelated(a[: len(a) - shift], b[shift:], 0.5)


@pytest.mark.parametrize("shift", [0, 1, 100])
def test_steps_of_a_run(shift):
    """Keys by `fold_in`, as a training loop makes them, all pairs of ten steps in a row."""
    base = jax.random.key(0)
    masks = [kept(jax.random.fold_in(base, step), rate=0.5).ravel() for step in range(10)]
    p_values = []
    for a, b in itertools.pairwise(masks):
        equal = int(np.sum(a[: len(a) - shift] == b[shift:]))
        p_values.append(stats.binomtest(equal, len(a) - shift, 0.5).pvalue)
    assert min(p_values) > LEVEL / len(p_values)


def test_words_of_eight_entries():
    """All 256 patterns of eight neighbors are equally frequent at rate 1/2."""
    mask = kept(jax.random.key(13), rate=0.5).ravel()
    patterns = np.packbits(mask.reshape(-1, 8), axis=1).ravel()
    assert stats.chisquare(np.bincount(patterns, minlength=256)).pvalue > LEVEL


def test_a_longer_array_begins_with_the_shorter():
    short, long = (kept(jax.random.key(0), shape=(rows, 7)) for rows in (3, 30))
    assert np.array_equal(short, long[:3])


def test_a_part_and_a_transpose_of_a_mask():
    words = mask_words(jax.random.key(0), 0)
    whole = np.asarray(keep(words, (4, 5, 6), 0.4))
    part = keep(words, (6, 4, 2), 0.4, strides=(1, 30, 6), first=18)
    assert np.array_equal(part, whole[:, 3:].transpose(2, 0, 1))


def test_vmap_draws_what_each_key_draws():
    keys = jax.random.split(jax.random.key(0), 3)
    together = jax.vmap(lambda key: dropout_mask(key, 2, (10, 10), 0.2))(keys)
    for key, mask in zip(keys, together, strict=True):
        assert np.array_equal(mask, dropout_mask(key, 2, (10, 10), 0.2))


def test_what_stays_is_scaled():
    mask = dropout_mask(jax.random.key(0), 0, (1000,), 0.2, jnp.float64)
    assert set(np.unique(mask)) == {0.0, 1.25}
    assert np.all(dropout_mask(jax.random.key(0), 0, (1000,), 0.0) == 1)


def test_refusals():
    with pytest.raises(InputError, match="below 1"):
        dropout_mask(jax.random.key(0), 0, (3,), 1.0)
    with pytest.raises(InputError, match="2³²"):
        keep(mask_words(jax.random.key(0), 0), (2**16, 2**16, 2), 0.1)
    with pytest.raises(InputError, match="two uint32 words"):
        mask_words(jnp.zeros(3, jnp.uint32), 0)

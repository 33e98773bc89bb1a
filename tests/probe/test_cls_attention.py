"""Tables instead of tokens: the same attention, to the last digits, at any length."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention.networks.multihead import MultiHead
from finetti.probe.cls_attention.table_attention import (
    BinaryTables,
    _read_maps,
    _split,
    difference_sums,
    normalized_tables,
    read_by_selection,
    read_by_sums,
    read_tables,
    split_sums,
)

pytestmark = pytest.mark.rounding

SAMPLES, LENGTH, DIMENSION, HEADS, WIDTH = 6, 8, 8, 3, 2
RNG = np.random.default_rng(4)
TOKENS, CLS = RNG.normal(size=(2, LENGTH, DIMENSION)), RNG.normal(size=DIMENSION)
WEIGHTS = RNG.normal(size=(3, HEADS, DIMENSION, WIDTH))
BIASES = RNG.normal(size=(3, HEADS, WIDTH))
BITS = RNG.integers(0, 2, size=(SAMPLES, LENGTH))
DROPOUT = RNG.integers(0, 2, size=(SAMPLES, HEADS, LENGTH + 1)) / 0.5


def sequences(tokens, cls, bits):
    """The textbook input: one token vector per sample and position, [CLS] first."""
    chosen = jnp.where((bits == 1)[:, :, None], tokens[1][None], tokens[0][None])
    first = jnp.broadcast_to(cls[None, None, :], (len(bits), 1, len(cls)))
    return jnp.concatenate([first, chosen], axis=1)


@jax.jit
def textbook(tokens, cls, weights, bits):
    """All T+1 tokens attend to all, then the row of [CLS] is kept: (m, H, v)."""
    layer = MultiHead(*weights)
    inputs = sequences(tokens, cls, bits)
    return layer.heads(inputs, inputs)[:, :, 0]


def tables_of(tokens, cls, weights, biases=0 * BIASES, scale=1.0):
    """The tables of any tokens, one vector for each bit and position."""
    tokens, cls, weights, biases = map(jnp.asarray, (tokens, cls, weights, biases))
    maps, constants = _read_maps(cls, scale, *weights, *biases)
    own = cls @ maps + constants
    return _split(tokens @ maps + constants[None, None], own, len(weights[0]))


METHODS = {"sums": read_by_sums, "selection": read_by_selection, "either": read_tables}


@partial(jax.jit, static_argnames="method")
def by_tables(tokens, cls, weights, bits, method="either"):
    return METHODS[method](jnp.asarray(bits, jnp.float64), tables_of(tokens, cls, weights))


@pytest.mark.parametrize("method", METHODS)
def test_outputs_are_those_of_the_textbook_layer(method):
    expected = textbook(TOKENS, CLS, WEIGHTS, BITS)
    out = by_tables(TOKENS, CLS, WEIGHTS, BITS, method=method)
    np.testing.assert_allclose(out, expected, atol=1e-10)
    everything = np.array([[n >> t & 1 for t in range(LENGTH)] for n in range(2**LENGTH)])
    np.testing.assert_allclose(
        by_tables(TOKENS, CLS, WEIGHTS, everything, method=method),
        textbook(TOKENS, CLS, WEIGHTS, everything),
        atol=1e-10,
    )


@pytest.mark.parametrize("sharpness", [0.0, 0.2, 1.0, 5.0, 30.0])
def test_what_is_not_measurably_safe_is_split(sharpness):
    # Sequences that avoid all large terms: the difference would lose what is left.
    made = tables_of(TOKENS, CLS, WEIGHTS)
    scores = np.repeat([sharpness, 0.0], LENGTH * HEADS).reshape(made.scores.shape)
    made = made._replace(scores=jnp.asarray(scores), cls_scores=jnp.zeros(HEADS))
    tables = BinaryTables(*(each.astype(jnp.float32) for each in made))
    ones = jnp.ones((2, LENGTH), jnp.float32)
    exact = np.asarray(read_by_selection(jnp.ones((2, LENGTH)), made))
    found = np.float64(read_by_sums(ones, tables))
    error = np.abs(found - exact).max() / np.abs(exact).max()
    assert error < 8 * LENGTH * np.finfo(np.float32).eps


def test_sums_by_differences_are_the_split_ones():
    flat, ones = jnp.asarray(RNG.random((2, LENGTH, 5))), jnp.asarray(BITS, jnp.float64)
    np.testing.assert_allclose(difference_sums(ones, flat), split_sums(ones, flat), atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_the_textbook_layer(method):
    target = RNG.normal(size=(SAMPLES, HEADS, WIDTH))

    def loss(function, **options):
        return lambda *arguments: jnp.sum((function(*arguments, BITS, **options) - target) ** 2)

    arguments = [jnp.asarray(each) for each in (TOKENS, CLS, WEIGHTS)]
    mine = jax.jit(jax.grad(loss(by_tables, method=method), (0, 1, 2)))(*arguments)
    theirs = jax.jit(jax.grad(loss(textbook), (0, 1, 2)))(*arguments)
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


def reference_with_everything(bits, dropout, scale, biases):
    """Loops: biases, scale and dropout on the normalized weights, one sample and head at a time."""
    inputs = np.asarray(sequences(TOKENS, CLS, bits))
    out = np.zeros((len(bits), HEADS, WIDTH))
    for n in range(len(bits)):
        for h in range(HEADS):
            q, k, v = (inputs[n] @ WEIGHTS[i, h] + bias[h] for i, bias in enumerate(biases))
            scores = scale * k @ q[0]
            weights = np.exp(scores) / np.exp(scores).sum()
            out[n, h] = (weights * dropout[n, h]) @ v
    return out


@pytest.mark.parametrize("method", METHODS)
def test_dropout_biases_and_scale(method):
    expected = reference_with_everything(BITS, DROPOUT, 0.7, BIASES)
    tables = tables_of(TOKENS, CLS, WEIGHTS, BIASES, 0.7)
    drops = jnp.asarray(DROPOUT[..., 1:]), jnp.asarray(DROPOUT[..., 0])
    given = (lambda: drops) if method == "either" else drops
    out = METHODS[method](jnp.asarray(BITS, jnp.float64), tables, given)
    np.testing.assert_allclose(out, expected, atol=1e-10)


def sharp_tables(size):
    """A head whose largest score belongs to a bit that no sequence below has."""
    scores = np.zeros((2, 3, 1))
    scores[1, 0] = size
    values = RNG.normal(size=(2, 3, 1, 2))
    return BinaryTables(scores, values, np.full(1, -1.0), np.ones((1, 2)))


def test_no_cancellation_in_the_split_form():
    """The bit that carries e^60 is absent: the others must still be read to full precision."""
    tables = BinaryTables(*map(jnp.asarray, sharp_tables(60.0)))
    weights = np.array([1, 1, 1, np.exp(-1.0)])
    rows = [*(tables.values[0, :, 0]), tables.cls_values[0]]
    expected = (weights / weights.sum()) @ np.stack(rows)
    out = read_by_sums(jnp.zeros((1, 3)), tables)
    np.testing.assert_allclose(out[0, 0], expected, rtol=1e-12)
    flipped = tables._replace(scores=tables.scores[::-1], values=tables.values[::-1])
    out = read_by_sums(jnp.ones((1, 3)), flipped)
    np.testing.assert_allclose(out[0, 0], expected, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 110.0), (np.float64, 1100.0)])
def test_scores_are_safe_however_wide_they_are(dtype, size):
    tables = BinaryTables(*(jnp.asarray(x, dtype) for x in sharp_tables(size)))
    bits = jnp.array([[0, 1, 0], [1, 1, 0]], dtype)
    close = {"rtol": 100 * np.finfo(dtype).eps}
    wide = tables._replace(scores=tables.scores * 2)
    np.testing.assert_allclose(read_by_sums(bits, tables), read_by_selection(bits, tables), **close)
    np.testing.assert_allclose(read_tables(bits, wide), read_by_selection(bits, wide), **close)
    assert jnp.isfinite(read_tables(bits, wide)).all()


def test_a_hundred_thousand_positions_in_little_memory():
    """T = 10⁵, m = 64: a (m, H, T) array of weights alone would take 51 MB for every head."""
    length, samples = 100_000, 64
    tokens = jnp.asarray(RNG.normal(size=(2, length, DIMENSION)))
    bits = jnp.asarray(RNG.integers(0, 2, size=(samples, length)).astype(bool))
    weights = jnp.asarray(RNG.normal(size=(3, HEADS, DIMENSION, WIDTH)))

    def read(tokens, bits, weights):
        return by_tables(tokens, jnp.asarray(CLS), weights, bits, "sums")

    compiled = jax.jit(read).lower(tokens, bits, weights).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 2 * 8 * samples * length + 5 * 8 * 2 * length * HEADS * 3
    out = compiled(tokens, bits, weights)
    direct = textbook_row(tokens, bits[5], weights)
    np.testing.assert_allclose(out[5], direct, atol=1e-10)


def textbook_row(tokens, bits, weights):
    """[CLS] as the only query of one long sequence."""
    inputs = sequences(tokens, jnp.asarray(CLS), bits[None].astype(int))[0]
    return MultiHead(*weights).heads(inputs[:1], inputs)[:, 0]


def test_under_vmap_and_jit():
    """Cohorts of trials: tables of their own over the same bits."""
    cohort = jnp.asarray(RNG.normal(size=(4, 3, HEADS, DIMENSION, WIDTH)))
    out = jax.jit(jax.vmap(lambda weights: by_tables(TOKENS, CLS, weights, BITS)))(cohort)
    for weights, one in zip(cohort, out, strict=True):
        np.testing.assert_allclose(one, textbook(TOKENS, CLS, weights, BITS), atol=1e-10)


def test_tables_of_normalized_sums_are_those_of_their_tokens():
    """LN(pair + places) token by token, and from its parts: tables and all gradients."""
    parts = {
        "pair": TOKENS[:, 0],
        "places": TOKENS[1] + 0.3,
        "gain": RNG.normal(size=DIMENSION),
        "bias": RNG.normal(size=DIMENSION),
        "weights": WEIGHTS,
        "biases": BIASES,
    }
    seen = [RNG.normal(size=(2, LENGTH, HEADS)), RNG.normal(size=(2, LENGTH, HEADS, WIDTH))]

    def from_tokens(pair, places, gain, bias, weights, biases):
        x = pair[:, None] + places[None]
        x = x - x.mean(axis=2, keepdims=True)
        x = x / jnp.sqrt((x**2).mean(axis=2, keepdims=True) + 1e-5)
        tokens = x * gain[None, None] + bias[None, None]
        return tables_of(tokens, CLS, weights, biases, 0.7)

    def from_parts(pair, places, gain, bias, weights, biases):
        return normalized_tables(
            pair, places, jnp.asarray(CLS), gain, bias, 1e-5, (*weights, *biases), 0.7
        )

    def loss(tables):
        return sum(jnp.sum(a * b) for a, b in zip(tables[:2], seen, strict=True)) + sum(
            jnp.sum(part**2) for part in tables[2:]
        )

    found = [
        jax.jit(lambda parts, way=way: (way(**parts), jax.grad(lambda p: loss(way(**p)))(parts)))(
            jax.tree.map(jnp.asarray, parts)
        )
        for way in (from_tokens, from_parts)
    ]
    for expected, ours in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10)

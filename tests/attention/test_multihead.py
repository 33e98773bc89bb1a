"""Sum form, concatenated form, and a loop over the heads are one function."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.modules.smoother import KernelSmoother
from finetti.attention.modules.softmax import Softmax
from finetti.attention.networks.head import Head
from finetti.attention.networks.multihead import ConcatenatedHeads, MultiHead
from finetti.core.errors import InputError
from finetti.kernels.rbf import RBF

RNG = np.random.default_rng(1)
TOKENS, QUERIES = RNG.normal(size=(9, 6)), RNG.normal(size=(4, 6))
WEIGHTS = (
    RNG.normal(size=(3, 6, 2)),
    RNG.normal(size=(3, 6, 2)),
    RNG.normal(size=(3, 6, 4)),
    RNG.normal(size=(3, 4, 5)),
)
MEMBERS = {
    "softmax": Softmax(),
    "smoother": KernelSmoother(RBF()),
    "cme": ConditionalMean(RBF(), ridge=0.3),
}


@eqx.filter_jit
def read(heads, *arguments):
    return heads(*arguments)


@eqx.filter_jit
def by_loop(attention, activation=lambda x: x):
    total = 0
    for query, key, value, output in zip(*WEIGHTS, strict=True):
        total = (
            total + activation(attention(QUERIES @ query, TOKENS @ key, TOKENS @ value)) @ output
        )
    return total


@pytest.mark.parametrize("activation", ["identity", "relu"])
@pytest.mark.parametrize("name", MEMBERS)
def test_all_forms_agree(name, activation):
    heads = MultiHead(*WEIGHTS, MEMBERS[name], activation)
    expected = by_loop(MEMBERS[name], heads.activation)
    forms = [heads, heads.concatenated(), heads.concatenated().summed()]
    if activation == "identity":
        forms += [heads.absorbed(), heads.absorbed().concatenated()]
    for form in forms:
        np.testing.assert_allclose(read(form, QUERIES, TOKENS), expected, atol=1e-10)


def test_conversions_return_to_the_same_weights():
    heads = MultiHead(*WEIGHTS)
    back = heads.concatenated().summed()
    for mine, theirs in zip(jax.tree.leaves(heads), jax.tree.leaves(back), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_gradients_of_the_two_forms_are_one():
    def of_sum(heads):
        return jnp.sum(jnp.sin(heads(QUERIES, TOKENS)))

    def of_concatenation(heads):
        return jnp.sum(jnp.sin(heads.concatenated()(QUERIES, TOKENS)))

    heads = MultiHead(*WEIGHTS)
    pairs = zip(
        jax.tree.leaves(jax.jit(jax.grad(of_sum))(heads)),
        jax.tree.leaves(jax.jit(jax.grad(of_concatenation))(heads)),
        strict=True,
    )
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, atol=1e-10)


@pytest.mark.parametrize("name", ["softmax", "cme"])
def test_masks_and_batches(name):
    heads = MultiHead(*WEIGHTS, MEMBERS[name])
    mask = np.arange(9) < 6
    expected = read(heads, QUERIES, TOKENS[mask])
    np.testing.assert_allclose(read(heads, QUERIES, TOKENS, mask), expected, atol=1e-10)
    per_query = np.stack([mask] * 4)
    np.testing.assert_allclose(read(heads, QUERIES, TOKENS, per_query), expected, atol=1e-10)
    two = np.stack([QUERIES, -QUERIES]), np.stack([TOKENS, TOKENS]), np.stack([mask] * 2)
    batch = read(heads, *two)
    np.testing.assert_allclose(batch[0], expected, atol=1e-10)
    np.testing.assert_allclose(batch[1], read(heads, -QUERIES, TOKENS[mask]), atol=1e-10)


def test_the_sum_of_paper_s_heads():
    """A.5, edelman2022: a sum of Transformer heads with activations."""
    heads = MultiHead(*WEIGHTS, activation="relu")
    each = [Head.transformer(*(w[i] for w in WEIGHTS), "relu") for i in range(3)]
    total = sum(head(TOKENS, QUERIES) for head in each)
    np.testing.assert_allclose(heads(QUERIES, TOKENS), total, atol=1e-10)
    parts = heads.heads(QUERIES, TOKENS)
    for i, head in enumerate(each):
        np.testing.assert_allclose(parts[i], head(TOKENS, QUERIES), atol=1e-10)


def test_init_is_deterministic_and_defaults_to_equal_shares():
    first, second = (MultiHead.init(jax.random.key(3), 2, 6) for _ in range(2))
    assert first.query_weights.shape == (2, 6, 3)
    assert first.n_heads == 2
    np.testing.assert_array_equal(first.value_weights, second.value_weights)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: MultiHead(WEIGHTS[0][0], *WEIGHTS[1:]), "query_weights"),
        (lambda: MultiHead(WEIGHTS[0], WEIGHTS[1][:2], *WEIGHTS[2:]), "key_weights"),
        (lambda: MultiHead(*WEIGHTS[:2], WEIGHTS[2][:, :4]), "value_weights"),
        (lambda: MultiHead(*WEIGHTS[:3], WEIGHTS[3][:, :3]), "output_weights"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES, TOKENS[:, :3]), "tokens"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES[:, :3], TOKENS), "queries"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES[0], TOKENS), "queries"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES, TOKENS, np.ones(8, bool)), "mask"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES, TOKENS, np.ones(9)), "mask"),
        (lambda: MultiHead.init(jax.random.key(0), 4, 6), "n_heads"),
        (
            lambda: ConcatenatedHeads(*np.ones((4, 6, 6)), n_heads=4),
            "query_weights",
        ),
        (lambda: ConcatenatedHeads(*np.ones((4, 6, 6)), n_heads=0), "n_heads"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=f"`{word}`"):
        call()


def test_an_activation_cannot_be_absorbed():
    with pytest.raises(InputError, match="relu"):
        MultiHead(*WEIGHTS, activation="relu").absorbed()

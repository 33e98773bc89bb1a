"""Paper S's lemmas: both sides by a second route, and the printed forms."""

import jax
import numpy as np
import pytest

from finetti.attention.lipschitz import (
    attention_token_perturbation,
    attention_weight_perturbation,
    head_perturbation,
    layer_perturbation,
    network_perturbation,
    readout_perturbation,
    softmax_perturbation,
)
from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.projected_transformer import ProjectedLayer, ProjectedTransformer
from finetti.attention.networks.token_maps import TokenReadout
from finetti.core.errors import InputError

RNG = np.random.default_rng(5)
WEIGHTS = [RNG.normal(size=shape) for shape in ((4, 3), (4, 3), (4, 3), (3, 4))]
MOVED = [w + 0.1 * RNG.normal(size=w.shape) for w in WEIGHTS]
TOKENS = RNG.normal(size=(5, 4))
OTHER_TOKENS = TOKENS + 0.1 * RNG.normal(size=TOKENS.shape)
SEVERAL = MultiHead(*(np.stack([w, w]) for w in WEIGHTS))
LAYER, OTHER = ProjectedLayer(*WEIGHTS), ProjectedLayer(*MOVED)


def norm(matrix):
    return np.linalg.norm(matrix, 2)


def longest(rows):
    return np.linalg.norm(rows, axis=1).max()


def attend(tokens, q, k, v):
    scores = np.exp(tokens @ q @ (tokens @ k).T)
    return scores / scores.sum(axis=1, keepdims=True) @ tokens @ v


def test_both_sides_of_a_13():
    found = attention_weight_perturbation(LAYER, OTHER, TOKENS)
    q, k, v, _ = WEIGHTS
    q2, k2, v2, _ = MOVED
    change = longest(TOKENS @ (q @ k.T - q2 @ k2.T).T)
    own = longest(TOKENS @ (v - v2))
    moved = longest(attend(TOKENS, q, k, v) - attend(TOKENS, q2, k2, v2))
    np.testing.assert_allclose(found.measured, moved)
    np.testing.assert_allclose(found.bound, norm(v) * longest(TOKENS) ** 2 * change + own)
    printed = attention_weight_perturbation(LAYER, OTHER, TOKENS, "printed")
    np.testing.assert_allclose(printed.bound, 2 * norm(v) * change + own)
    assert (found.form, printed.form) == ("derived", "printed")
    assert "A.13" in found.citation


def test_both_sides_of_a_14():
    found = attention_token_perturbation(LAYER, TOKENS, OTHER_TOKENS)
    q, k, v, _ = WEIGHTS
    radius = max(longest(TOKENS), longest(OTHER_TOKENS))
    factor = norm(v) * (1 + 2 * norm(q @ k.T) * radius**2)
    np.testing.assert_allclose(found.bound, factor * longest(TOKENS - OTHER_TOKENS))
    moved = longest(attend(TOKENS, q, k, v) - attend(OTHER_TOKENS, q, k, v))
    np.testing.assert_allclose(found.measured, moved)


def test_a_15_is_a_13_and_a_14_and_the_outer_matrix():
    by_tokens = layer_perturbation(LAYER, LAYER, TOKENS, OTHER_TOKENS)
    inside = attention_token_perturbation(LAYER, TOKENS, OTHER_TOKENS)
    np.testing.assert_allclose(by_tokens.bound, norm(WEIGHTS[3]) * inside.bound)
    by_weights = layer_perturbation(LAYER, OTHER, TOKENS, TOKENS)
    inside = attention_weight_perturbation(LAYER, OTHER, TOKENS)
    outside = longest(np.asarray(OTHER.inside(TOKENS)) @ (WEIGHTS[3] - MOVED[3]))
    np.testing.assert_allclose(by_weights.bound, norm(WEIGHTS[3]) * inside.bound + outside)
    both = layer_perturbation(LAYER, OTHER, TOKENS, OTHER_TOKENS)
    assert bool(both.holds)


def test_lemma_4_3_for_a_transformer_head_is_a_13():
    head, other = MultiHead.single(*WEIGHTS), MultiHead.single(*MOVED)
    found = head_perturbation(head, other, TOKENS, TOKENS[2])
    scores = TOKENS @ (WEIGHTS[0] @ WEIGHTS[1].T - MOVED[0] @ MOVED[1].T).T @ TOKENS[2]
    values = longest(TOKENS @ (WEIGHTS[2] - MOVED[2]))
    inner = norm(WEIGHTS[2]) * longest(TOKENS) * np.abs(scores).max() + values
    np.testing.assert_allclose(found.bound, norm(WEIGHTS[3]) * inner)
    printed = head_perturbation(head, other, TOKENS, TOKENS[2], "printed")
    inner = 2 * norm(WEIGHTS[2]) * longest(TOKENS) * np.abs(scores).max() + values
    np.testing.assert_allclose(printed.bound, norm(WEIGHTS[3]) * inner)
    assert bool(found.holds)


def test_the_readout_and_the_chain_of_one_layer():
    w, w2 = RNG.normal(size=(2, 4))
    read, other_read = TokenReadout(w), TokenReadout(w2)
    a, b = LAYER(TOKENS), OTHER(TOKENS)
    readout = readout_perturbation(read, other_read, a, b)
    expected = norm(w[:, None]) * np.linalg.norm(a[0] - b[0]) + abs((w - w2) @ b[0])
    np.testing.assert_allclose(readout.bound, expected)
    chain = network_perturbation(
        ProjectedTransformer([LAYER]), ProjectedTransformer([OTHER]), read, other_read, TOKENS
    )
    np.testing.assert_allclose(chain.measured, readout.measured)
    own = layer_perturbation(LAYER, OTHER, TOKENS, TOKENS).bound
    np.testing.assert_allclose(chain.bound, norm(w[:, None]) * own + abs((w - w2) @ b[0]))


def test_unmoved_is_zero_and_many_draws_are_one_call():
    still = attention_token_perturbation(LAYER, TOKENS, TOKENS)
    assert (still.ratio, bool(still.holds)) == (0, True)
    scores = RNG.normal(size=(2, 100, 6))
    many = jax.vmap(softmax_perturbation)(*scores)
    assert many.ratio.shape == (100,)
    assert many.holds.all()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: softmax_perturbation(np.zeros(2), np.zeros(3)), "other"),
        (lambda: softmax_perturbation(np.zeros(2), np.zeros(2), "sharp"), "form"),
        (lambda: attention_token_perturbation(LAYER, TOKENS, TOKENS[:2]), "other"),
        (lambda: head_perturbation(SEVERAL, SEVERAL, TOKENS, TOKENS[2]), "head"),
        (lambda: attention_weight_perturbation(LAYER, OTHER, TOKENS[0]), "tokens"),
        (lambda: layer_perturbation(LAYER, OTHER, TOKENS, TOKENS[:2]), "other_tokens"),
        (
            lambda: readout_perturbation(
                TokenReadout(np.ones(4)), TokenReadout(np.eye(4)), TOKENS, TOKENS
            ),
            "other",
        ),
        (
            lambda: network_perturbation(
                ProjectedTransformer([LAYER]),
                ProjectedTransformer([LAYER, LAYER]),
                TokenReadout(np.ones(4)),
                TokenReadout(np.ones(4)),
                TOKENS,
            ),
            "other",
        ),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=f"`{word}`"):
        call()


def test_other_activations_are_refused():
    network, other = (
        ProjectedTransformer([ProjectedLayer(*WEIGHTS, activation=name)])
        for name in ("relu", "tanh")
    )
    readout = TokenReadout(np.ones(4))
    with pytest.raises(InputError, match="same activations, here relu"):
        network_perturbation(network, other, readout, readout, TOKENS)

"""Paper E's lemmas: both sides by a second route, and the printed forms."""

import numpy as np
import pytest

from finetti.attention.lipschitz import (
    heads_token_perturbation,
    heads_weight_perturbation,
    rbf_softmax_perturbation,
    residual_perturbation,
)
from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.residual_transformer import (
    FeedForward,
    ResidualLayer,
    ResidualTransformer,
    rbf_attention,
)
from finetti.core.errors import InputError

RNG = np.random.default_rng(6)
WEIGHTS = [RNG.normal(size=(2, 4, width)) for width in (3, 3, 4)]
MOVED = [w + 0.1 * RNG.normal(size=w.shape) for w in WEIGHTS]
TOKENS = RNG.normal(size=(5, 4))
OTHER_TOKENS = TOKENS + 0.1 * RNG.normal(size=TOKENS.shape)
WIDTH = 2 * 3**0.5
AXES = np.eye(4)


def heads(query, key, value):
    return MultiHead(query, key, value, attention=rbf_attention(key.shape[-1]))


def norms(weights):
    return np.array([np.linalg.norm(w, 2) for w in weights])


def larger(index):
    return np.maximum(norms(WEIGHTS[index]), norms(MOVED[index]))


def longest(rows):
    return np.linalg.norm(rows, axis=1).max()


def test_both_sides_of_c_11():
    found = heads_weight_perturbation(heads(*WEIGHTS), heads(*MOVED), TOKENS)
    changes = [norms(a - b) for a, b in zip(WEIGHTS, MOVED, strict=True)]
    # The larger of the sums, not the sum of the larger: each network is inside the class.
    reach = np.maximum(norms(WEIGHTS[0]) + norms(WEIGHTS[1]), norms(MOVED[0]) + norms(MOVED[1]))
    radius = longest(TOKENS)
    second = larger(2) * reach * (changes[0] + changes[1])
    expected = radius * changes[2].sum() + radius**3 * second.sum() / WIDTH
    np.testing.assert_allclose(found.bound, expected)
    printed = heads_weight_perturbation(heads(*WEIGHTS), heads(*MOVED), TOKENS, "printed")
    expected = radius * changes[2].sum() + radius**3 * (second / larger(2)).sum()
    np.testing.assert_allclose(printed.bound, expected)
    moved = longest(heads(*WEIGHTS)(TOKENS, TOKENS) - heads(*MOVED)(TOKENS, TOKENS))
    np.testing.assert_allclose(found.measured, moved)
    assert bool(found.holds)


def test_both_sides_of_c_13():
    found = heads_token_perturbation(heads(*WEIGHTS), TOKENS, OTHER_TOKENS)
    radius = max(longest(TOKENS), longest(OTHER_TOKENS))
    reach, values = norms(WEIGHTS[0]) + norms(WEIGHTS[1]), norms(WEIGHTS[2])
    rho = values.sum() + radius**2 * (reach**2 * values).sum() / WIDTH
    np.testing.assert_allclose(found.bound, rho * longest(TOKENS - OTHER_TOKENS))
    assert bool(found.holds)


def test_output_weights_are_absorbed():
    output = RNG.normal(size=(2, 4, 4))
    with_output, moved = (
        MultiHead(*weights, output, rbf_attention(3)) for weights in (WEIGHTS, MOVED)
    )
    direct = heads_weight_perturbation(with_output, moved, TOKENS)
    absorbed = heads_weight_perturbation(with_output.absorbed(), moved.absorbed(), TOKENS)
    np.testing.assert_allclose(direct.bound, absorbed.bound)


@pytest.mark.parametrize("r", [1.0, 2.0, 3.0, np.inf])
def test_f_1_is_sharp_for_every_norm(r):
    along = np.ones(4) if r > 2 else AXES[0]
    signs, step = np.array([[1.0], [-1.0]]), 1e-5
    keys = np.stack([-along, -along])
    apart = rbf_softmax_perturbation(along, keys, along, keys + step * signs * along, 7.0, r)
    turned = rbf_softmax_perturbation(0 * along, signs * along, step * along, signs * along, 7.0, r)
    for found in (apart, turned):
        assert 0.98 <= found.ratio <= 1 + 1e-9


def test_f_1_as_printed_at_its_bandwidth():
    query, keys = RNG.normal(size=3), RNG.normal(size=(5, 3))
    near = keys + 0.1
    found = rbf_softmax_perturbation(query, keys, query, near, WIDTH, form="printed")
    reach = np.linalg.norm(query) + max(longest(keys), longest(near))
    np.testing.assert_allclose(found.bound, reach * longest(keys - near))
    assert bool(found.holds)


def network(weights, inner, outer, skip=True):
    part = FeedForward(inner, outer, skip=skip)
    return ResidualTransformer([ResidualLayer(part, heads(*weights), skip=skip)])


def test_one_layer_of_c_14_by_hand():
    inner, outer = RNG.normal(size=(2, 4, 4))
    inner2, outer2 = inner + 0.1, outer - 0.1
    pair = network(WEIGHTS, inner, outer), network(MOVED, inner2, outer2)
    found = residual_perturbation(*pair, TOKENS)
    spectral = [np.linalg.norm(m, 2) for m in (inner, inner2, outer, outer2)]
    alpha_x, alpha_s = max(spectral[:2]), max(spectral[2:])
    growth = 1 + alpha_x * alpha_s
    radius = longest(TOKENS)
    change = np.linalg.norm(inner - inner2, 2) * alpha_s
    change += np.linalg.norm(outer - outer2, 2) * alpha_x
    reach = np.maximum(norms(WEIGHTS[0]) + norms(WEIGHTS[1]), norms(MOVED[0]) + norms(MOVED[1]))
    values = larger(2)
    rho = 1 + values.sum() + (growth * radius) ** 2 * (reach**2 * values).sum() / WIDTH
    changes = [norms(a - b) for a, b in zip(WEIGHTS, MOVED, strict=True)]
    second = (values * reach * (changes[0] + changes[1])).sum() / WIDTH
    own = growth * radius * changes[2].sum() + (growth * radius) ** 3 * second
    np.testing.assert_allclose(found.bound, rho * change * radius + own)
    assert bool(found.holds)


def test_theorem_5_3_network_without_skips():
    inner = RNG.normal(size=(4, 4))
    pair = (network(weights, inner, None, skip=False) for weights in (WEIGHTS, MOVED))
    found = residual_perturbation(*pair, TOKENS)
    radius = longest(TOKENS) * np.linalg.norm(inner, 2)
    changes = [norms(a - b) for a, b in zip(WEIGHTS, MOVED, strict=True)]
    reach = np.maximum(norms(WEIGHTS[0]) + norms(WEIGHTS[1]), norms(MOVED[0]) + norms(MOVED[1]))
    second = (larger(2) * reach * (changes[0] + changes[1])).sum() / WIDTH
    np.testing.assert_allclose(found.bound, radius * changes[2].sum() + radius**3 * second)


PLAIN = MultiHead(*WEIGHTS)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: heads_weight_perturbation(PLAIN, heads(*MOVED), TOKENS), "heads"),
        (lambda: heads_weight_perturbation(heads(*WEIGHTS), PLAIN, TOKENS), "other"),
        (lambda: heads_token_perturbation(heads(*WEIGHTS), TOKENS, TOKENS[:1]), "other"),
        (lambda: heads_token_perturbation(PLAIN, TOKENS, TOKENS), "heads"),
        (lambda: rbf_softmax_perturbation(AXES[0], AXES, AXES[0], AXES, -1.0), "bandwidth"),
        (lambda: rbf_softmax_perturbation(AXES[0], AXES, AXES[0], AXES[:2], 1.0), "other_keys"),
        (lambda: rbf_softmax_perturbation(AXES[0], AXES, AXES[0], AXES, 1.0, r=0.5), "r"),
        (
            lambda: residual_perturbation(
                network(WEIGHTS, AXES, AXES),
                ResidualTransformer(network(WEIGHTS, AXES, AXES).layers * 2),
                TOKENS,
            ),
            "other",
        ),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=f"`{word}`"):
        call()


def test_two_bandwidths_are_refused():
    """The difference would be all of what moves, and the bound 0."""
    wide = MultiHead(*WEIGHTS, attention=rbf_attention(30))
    with pytest.raises(InputError, match="must have one bandwidth"):
        heads_weight_perturbation(heads(*WEIGHTS), wide, TOKENS)


def test_other_skip_connections_are_refused():
    pair = (network(WEIGHTS, np.eye(4), np.eye(4), skip) for skip in (True, False))
    with pytest.raises(InputError, match="same skip connections"):
        residual_perturbation(*pair, TOKENS)

"""The deep networks of papers S and E against their equations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.projected_transformer import (
    ProjectedLayer,
    ProjectedTransformer,
    project_ball,
)
from finetti.attention.networks.residual_transformer import (
    FeedForward,
    ResidualLayer,
    ResidualTransformer,
    rbf_attention,
)
from finetti.attention.networks.softmax_constants import bandwidth
from finetti.attention.networks.token_maps import TokenReadout
from finetti.core.errors import InputError

RNG = np.random.default_rng(3)
TOKENS = RNG.normal(size=(6, 4))
ROWS = hnp.arrays(np.float64, (3, 4), elements=st.floats(-1e6, 1e6))


@eqx.filter_jit
def read(network, *arguments):
    return network(*arguments)


def shorten(rows):
    return np.array([row / max(1, np.linalg.norm(row)) for row in rows])


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@settings(max_examples=50)
@given(ROWS, ROWS)
def test_projection_on_the_ball(a, b):
    np.testing.assert_allclose(project_ball(a), shorten(a), rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(project_ball(a[:, :1] * 0.0), np.zeros((3, 1)))
    moved = np.linalg.norm(project_ball(a) - project_ball(b), axis=1)
    assert (moved <= np.linalg.norm(a - b, axis=1) * (1 + 1e-9) + 1e-12).all()


def test_projection_at_the_extremes():
    huge = jnp.array([1e200, 1e200])
    np.testing.assert_allclose(project_ball(huge), [0.5**0.5] * 2)
    np.testing.assert_allclose(project_ball(jnp.full(2, 1e37, jnp.float32)), [0.5**0.5] * 2)
    gradient = jax.jacobian(project_ball)(jnp.zeros(3))
    np.testing.assert_array_equal(gradient, np.eye(3))
    outside = jax.jacobian(project_ball)(jnp.array([2.0, 0.0]))
    np.testing.assert_allclose(outside, [[0, 0], [0, 0.5]], atol=1e-15)
    np.testing.assert_allclose(project_ball(jnp.array([0.0, 6.0]), radius=3.0), [0, 3])


def test_projected_transformer_is_equation_4_3():
    network = ProjectedTransformer.init(jax.random.key(0), 3, dimension=4, head_dimension=3)
    state = TOKENS
    states = eqx.filter_jit(lambda network: network.states(TOKENS))(network)
    for layer, mine in zip(network.layers, states[1:], strict=True):
        q, k, v, c = (np.asarray(leaf) for leaf in jax.tree.leaves(layer))
        attended = softmax(state @ q @ (state @ k).T) @ state @ v
        state = shorten(np.maximum(shorten(attended), 0) @ c)
        np.testing.assert_allclose(mine, state, atol=1e-12)
    np.testing.assert_allclose(read(network, TOKENS), states[-1], atol=1e-15)
    batch = read(network, np.stack([TOKENS, TOKENS[::-1]]))
    np.testing.assert_allclose(batch[1, ::-1], states[-1], atol=1e-12)
    masked = read(network, TOKENS, np.arange(6) < 4)
    np.testing.assert_allclose(masked[:4], read(network, TOKENS[:4]), atol=1e-12)


@pytest.mark.parametrize("rule", ["C.1", "5.4"])
def test_residual_transformer_is_equation_c_1(rule):
    network = ResidualTransformer.init(
        jax.random.key(1), 2, n_heads=2, dimension=4, hidden_dimension=8, rule=rule
    )
    width = {"C.1": 2 * 2**0.5, "5.4": 2.0}[rule]
    state = TOKENS
    for layer in network.layers:
        inner, outer = np.asarray(layer.feed_forward.inner), np.asarray(layer.feed_forward.outer)
        state = np.maximum(state @ inner, 0) @ outer + state
        total = state
        for q, k, v in zip(*map(np.asarray, jax.tree.leaves(layer.heads)[:3]), strict=True):
            distances = np.sum(((state @ q)[:, None] - (state @ k)[None]) ** 2, axis=-1)
            total = total + softmax(-distances / (2 * width)) @ state @ v
        state = total
    np.testing.assert_allclose(read(network, TOKENS), state, atol=1e-10)
    assert layer.heads.value_weights.shape == (2, 4, 4)


def test_bandwidths():
    assert bandwidth(9) == 6.0
    assert bandwidth(9, r=np.inf) == 18.0
    assert bandwidth(9, r=1.0) == 2.0
    assert bandwidth(9, "5.4") == 9.0


def test_the_network_of_theorem_5_3():
    """One head, one layer, no skips, nn(x; A) = ReLU(Ax), then the masked position is read."""
    a, q, k, v = RNG.normal(size=(4, 4, 4))
    w = RNG.normal(size=(4, 2))
    heads = MultiHead(q[None], k[None], v[None], attention=rbf_attention(4, "5.4"))
    network = ResidualTransformer([ResidualLayer(FeedForward(a, skip=False), heads, skip=False)])
    out = TokenReadout(w, position=2)(read(network, TOKENS))
    inside = np.maximum(TOKENS @ a, 0)
    distances = np.sum((inside[2] @ q - inside @ k) ** 2, axis=1)
    weights = softmax(-distances[None] / 8)[0]
    np.testing.assert_allclose(out, weights @ inside @ v @ w, atol=1e-10)


@pytest.mark.parametrize("kind", ["projected", "residual"])
def test_gradients_by_differences(kind):
    key = jax.random.key(2)
    network = (
        ProjectedTransformer.init(key, 2, 4, 3, "tanh")
        if kind == "projected"
        else ResidualTransformer.init(key, 2, 2, 4, 8)
    )
    weights, structure = jax.tree.flatten(network)
    direction = [RNG.normal(size=leaf.shape) for leaf in weights]

    def loss(step):
        moved = [leaf + step * d for leaf, d in zip(weights, direction, strict=True)]
        return jnp.sum(structure.unflatten(moved)(TOKENS) ** 3)

    loss = jax.jit(loss)
    slope = jax.jit(jax.grad(loss))(0.0)
    np.testing.assert_allclose(slope, (loss(1e-5) - loss(-1e-5)) / 2e-5, rtol=1e-6)


Q, C = np.ones((4, 3)), np.ones((3, 4))
HEADS = MultiHead(*np.ones((3, 1, 4, 4)))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: ProjectedLayer(Q, Q[:, :2], Q, C), "key_weights"),
        (lambda: ProjectedLayer(Q, Q, Q[:2], C), "value_weights"),
        (lambda: ProjectedLayer(Q, Q, Q, C[:2]), "output_weights"),
        (lambda: ProjectedTransformer([]), "layers"),
        (lambda: ProjectedTransformer([ProjectedLayer(Q, Q, Q, C[:, :2])] * 2), "layers"),
        (lambda: ProjectedLayer(Q, Q, Q, C)(TOKENS[:, :2]), "tokens"),
        (lambda: ProjectedLayer(Q, Q, Q, C)(TOKENS * np.nan), "tokens"),
        (lambda: FeedForward(np.ones((4, 5))), "skip"),
        (lambda: FeedForward(np.ones((4, 5)), np.ones((4, 4))), "outer"),
        (lambda: ResidualLayer(FeedForward(np.ones((5, 5))), HEADS), "heads"),
        (
            lambda: ResidualLayer(FeedForward(np.ones((4, 4))), MultiHead(*np.ones((3, 1, 4, 3)))),
            "skip",
        ),
        (lambda: ResidualTransformer([]), "layers"),
        (lambda: bandwidth(4, "B.2"), "rule"),
        (lambda: bandwidth(4, r=0.5), "r"),
        (lambda: project_ball(TOKENS, radius=0), "radius"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=f"`{word}`"):
        call()


def test_a_masked_token_may_hold_anything():
    mask = np.array([True, True, False, True, True, False])
    spoiled = np.where(mask[:, None], TOKENS, np.nan)
    weights = [RNG.normal(size=(4, 4)) for _ in range(4)]
    heads = MultiHead(*RNG.normal(size=(3, 1, 4, 4)), attention=rbf_attention(4))
    networks = (
        ProjectedTransformer([ProjectedLayer(*weights), ProjectedLayer(*weights[::-1])]),
        ResidualTransformer([ResidualLayer(FeedForward(np.eye(4), np.eye(4)), heads)] * 2),
    )
    for network in networks:
        found, expected = network(spoiled, mask), network(TOKENS, mask)
        np.testing.assert_allclose(found[mask], expected[mask], rtol=1e-12)
        assert np.isfinite(found).all()
        with pytest.raises(InputError, match="`tokens`"):
            network(spoiled)

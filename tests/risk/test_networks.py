"""(4.7) and (5.1): the network against its formula, and Assumption 5.1."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti import attention, core, kernels
from finetti.risk import AttentionNetwork, NormLimits
from finetti.risk.networks.weight_limits import spectral_above

RNG = np.random.default_rng(0)
TOKENS, MASK_TOKEN = RNG.normal(size=(3, 4, 2)), RNG.normal(size=(3, 2))


def _network(**options) -> AttentionNetwork:
    return AttentionNetwork.init(jax.random.key(0), 2, 2, head_dimension=3, **options)


def _by_hand(network: AttentionNetwork, weights) -> np.ndarray:
    """The formula with loops; ``weights(query, keys)`` of one sequence."""
    inner, w_q, w_k, w_v, w = (
        np.asarray(each, np.float64)
        for each in (
            network.feed_forward.inner,
            network.query_weights,
            network.key_weights,
            network.value_weights,
            network.aggregation.weights,
        )
    )
    found = []
    for tokens, asked in zip(TOKENS, MASK_TOKEN, strict=True):
        hidden, query = np.maximum(tokens @ inner, 0), np.maximum(asked @ inner, 0) @ w_q
        found.append(w.T @ (w_v.T @ hidden.T @ weights(query, hidden @ w_k)))
    return np.stack(found)


def _rbf_softmax(query, keys):
    scores = np.exp(-np.sum((keys - query) ** 2, axis=1) / (2 * len(query)))  # (5.4)
    return scores / scores.sum()


def _ridge(query, keys):
    def gram(a, b):
        return np.exp(-np.sum((a[:, None] - b[None]) ** 2, axis=-1) / 2)

    return np.linalg.solve(gram(keys, keys) + 0.5 * np.eye(len(keys)), gram(keys, query[None]))[
        :, 0
    ]


@pytest.mark.parametrize(
    ("chosen", "weights"),
    [(None, _rbf_softmax), (attention.ConditionalMean(kernels.RBF(), ridge=0.5), _ridge)],
)
def test_network_is_the_formula(chosen, weights):
    network = _network(attention=chosen)
    tokens = TOKENS.astype(np.float32)
    found = network(tokens, MASK_TOKEN.astype(np.float32))
    np.testing.assert_allclose(found, _by_hand(network, weights), atol=2e-6)
    hidden = np.maximum(tokens @ np.asarray(network.feed_forward.inner), 0)
    values = hidden @ np.asarray(network.value_weights)
    np.testing.assert_allclose(network.values(tokens), values, atol=2e-6)


def test_limits_make_a_class():
    limits = NormLimits(0.7, 0.9, attention_size=0.8, feed_forward_size=1.0)
    network = dataclasses.replace(_network(), limits=limits)
    big = jax.tree.map(lambda leaf: 5 * leaf if eqx.is_inexact_array(leaf) else leaf, network)
    acting = big.limited()
    for matrix in (acting.query_weights, acting.key_weights, acting.value_weights):
        assert core.spectral(np.asarray(matrix)) <= 0.7 * (1 + 1e-6)
        assert core.frobenius(np.asarray(matrix)) <= 0.8 * (1 + 1e-6)
    inner = np.asarray(acting.feed_forward.inner)
    assert core.spectral(inner) <= 0.9 * (1 + 1e-6)
    assert core.frobenius(inner) <= 1.0 * (1 + 1e-6)
    out = np.asarray(big(TOKENS, MASK_TOKEN))
    assert np.linalg.norm(out, axis=1).max() <= 1 + 1e-6
    # who is inside stays as it is
    again = acting.limited()
    np.testing.assert_allclose(again.query_weights, acting.query_weights, rtol=2e-3)


def test_spectral_norm_from_above():
    rng = np.random.default_rng(1)
    for shape in ((1, 1), (3, 5), (6, 2)):
        matrix = rng.normal(size=shape).astype(np.float32) * 10 ** rng.uniform(-3, 3)
        ratio = float(spectral_above(jnp.asarray(matrix))) / np.linalg.norm(matrix, 2)
        assert 1 - 1e-6 <= ratio <= min(shape) ** (1 / 2048) + 1e-5


def test_bandwidth_stays_as_in_the_paper():
    slopes = eqx.filter_grad(lambda f: jnp.sum(f(TOKENS, MASK_TOKEN) ** 2))(_network())
    assert float(slopes.attention.kernel.log_lengthscale) == 0


def test_wrong_dimensions_are_refused_by_name():
    for name in ("token_dimension", "out_dimension"):
        with pytest.raises(core.InputError, match=f"`{name}`.*≥ 1"):
            AttentionNetwork.init(
                jax.random.key(0), **{"token_dimension": 2, "out_dimension": 2} | {name: 0}
            )


def test_wrong_parts_are_refused():
    network = _network()
    with pytest.raises(core.InputError, match="one per sequence"):
        network(TOKENS, MASK_TOKEN[:2])
    with pytest.raises(core.InputError, match=r"ReLU\(Ax\)"):
        dataclasses.replace(network, feed_forward=attention.FeedForward(jnp.eye(2)))
    with pytest.raises(core.InputError, match="attention"):
        NormLimits(attention=-1.0)

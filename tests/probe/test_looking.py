"""The attention that is shown is the one that the network reads with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.probe.learners.paper_transformer import TransformerLearner
from finetti.probe.learners.textbook_transformer import LayerMasks, Masks, textbook_logits


@pytest.mark.parametrize("n_layers", [1, 2])
def test_undoing_the_weights_makes_attention_uniform(n_layers):
    """Weights times 1/((T+1)·weights) are uniform, as are those of a network whose query is 0."""
    learner = TransformerLearner(width=8, n_heads=2, n_layers=n_layers, initial_scale=0.5)
    params = jax.tree.map(lambda a: a.astype(jnp.float64), learner.init(jax.random.key(0), 6))
    bits = jax.random.bernoulli(jax.random.key(1), shape=(5, 6)).astype(jnp.uint8)
    weights = learner.attention(params, bits)
    assert weights.shape == (5, 2, 7)
    np.testing.assert_allclose(weights.sum(axis=2), 1, rtol=1e-12)
    assert float(jnp.ptp(weights, axis=2).min()) > 1e-3
    *before, last = params["layers"]
    undo = LayerMasks(attention=1 / (7 * weights.swapaxes(1, 2)[:, None]))
    masks = Masks(None, (*[LayerMasks()] * len(before), undo))
    blind = {**last, "query": jax.tree.map(jnp.zeros_like, last["query"])}
    np.testing.assert_allclose(
        textbook_logits(params, bits, masks, 2),
        textbook_logits({**params, "layers": [*before, blind]}, bits, None, 2),
        rtol=1e-10,
    )

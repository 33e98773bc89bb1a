"""A network that is trained on a world's prior comes nearer to the exact predictive."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.coherence import fit_prior
from finetti.core.errors import InputError, UnsupportedError
from finetti.latent import BetaBernoulli, LinearGaussian

WORLD = LinearGaussian(key_dimension=1, value_dimension=1, noise_variance=0.25)


@pytest.fixture(scope="module")
def trained():
    return fit_prior(
        WORLD, 4, width=16, n_layers=1, iterations=150, n_sequences=2000, learning_rate=1e-2
    )


def test_training_on_the_prior_brings_it_nearer_to_the_truth(trained):
    table = trained.history(3, n_contexts=2, n_queries=2, n_orders=6, n_sequences=300, n_samples=20)
    first, last = table.rows[0], table.rows[-1]
    assert [row.name for row in table.rows][-1] == "step 150"
    assert last.distance.divergence_interval[1] < first.distance.divergence_interval[0]
    assert last.order.maximum < 1e-10  # nothing tells it where tokens stand
    assert not last.martingale.holds()
    assert "steps" in str(trained)


def test_masked_pairs_are_not_read(trained):
    rng = np.random.default_rng(0)
    keys, values, query = (
        jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((4, 1), (4, 1), 1)
    )
    whole = eqx.filter_jit(trained.network)(keys, values, query, jnp.arange(4) < 2)
    part = eqx.filter_jit(trained.network)(keys[:2], values[:2], query)
    np.testing.assert_allclose(np.array(whole), np.array(part), rtol=1e-4)


def test_what_it_cannot_be_trained_on():
    with pytest.raises(UnsupportedError, match="pairs"):
        fit_prior(BetaBernoulli())
    with pytest.raises(InputError, match="multiple of n_heads"):
        fit_prior(WORLD, width=5)

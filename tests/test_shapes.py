"""Signatures are held to their shapes in every test, and refusals stay the package's own."""

import jax.numpy as jnp
import jaxtyping
import pytest

from finetti.attention.cme.primal import primal_weights
from finetti.core.errors import InputError
from finetti.kernels import RBF


def test_a_shape_that_a_signature_excludes_is_seen():
    features, query_features = jnp.ones((4, 2)), jnp.ones((3, 2))
    assert primal_weights(features, query_features, jnp.ones(4)).shape == (4, 3)
    with pytest.raises(jaxtyping.TypeCheckError, match="primal"):
        primal_weights(features, query_features, jnp.ones(1))


def test_what_the_package_refuses_it_refuses_in_its_own_words():
    with pytest.raises(InputError, match="shape"):
        RBF().gram(jnp.ones(3))

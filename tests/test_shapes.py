"""Signatures are held to their shapes in every test, and refusals stay the package's own."""

import importlib
import inspect
import pkgutil

import jax.numpy as jnp
import jaxtyping
import pytest

import finetti
from finetti.attention.cme.feature_space import primal_weights
from finetti.core.errors import InputError
from finetti.kernels import RBF
from shapes import has_shape


def test_a_shape_that_a_signature_excludes_is_seen():
    features, query_features = jnp.ones((4, 2)), jnp.ones((3, 2))
    assert primal_weights(features, query_features, jnp.ones(4)).shape == (4, 3)
    with pytest.raises(jaxtyping.TypeCheckError, match="feature_space"):
        primal_weights(features, query_features, jnp.ones(1))


def test_what_the_package_refuses_it_refuses_in_its_own_words():
    with pytest.raises(InputError, match="shape"):
        RBF().gram(jnp.ones(3))


def test_modules_without_the_hook_have_no_shapes():
    """The hook is for the modules that import jaxtyping; a type of theirs may go elsewhere."""
    for info in pkgutil.walk_packages(finetti.__path__, "finetti."):
        if info.name == "finetti.__main__":
            continue  # runs the command
        module = importlib.import_module(info.name)
        if "from jaxtyping import" in inspect.getsource(module):
            continue
        classes = [each for each in vars(module).values() if inspect.isclass(each)]
        for holder in (module, *classes):
            for function in vars(holder).values():
                if getattr(function, "__module__", "") == info.name:
                    hints = getattr(function, "__annotations__", {})
                    assert not any(map(has_shape, hints.values())), function

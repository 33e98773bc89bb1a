"""Checks on arrays: what is seen is refused, what cannot be seen passes."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core.arguments import check_finite, check_positive, check_rank
from finetti.core.arrays import has_nan, is_concrete, namespace
from finetti.core.errors import InputError

BAD = [np.array([1.0, np.nan]), jnp.array([jnp.inf, 1.0]), jnp.array([1, jnp.nan], jnp.bfloat16)]


@pytest.mark.parametrize("array", BAD)
def test_non_finite_entries_are_counted_and_named(array):
    with pytest.raises(InputError, match=r"`x` argument of f must be finite. Got 1 .* of 2"):
        check_finite(array, "x", "f")


@pytest.mark.parametrize("array", [np.zeros((0, 2)), jnp.arange(3), np.array([1.0]), jnp.ones(2)])
def test_finite_arrays_pass(array):
    check_finite(array, "x", "f")


def test_nan_is_found_where_it_can_be_seen():
    for xp in (np, jnp):
        assert has_nan(xp.array([1.0, xp.nan]))
        assert not has_nan(xp.array([1.0, xp.inf]))
    seen = []
    jax.jit(lambda x: seen.append(has_nan(x)))(jnp.array([jnp.nan]))
    assert seen == [False]


def test_constants_inside_jit_are_seen_and_tracers_are_not():
    constant, dirty = jnp.ones(3), jnp.array([jnp.nan])

    @jax.jit
    def run(x):
        check_finite(x, "x", "f")
        check_finite(constant, "constant", "f")
        return x

    assert jnp.isnan(run(dirty)).all()
    with pytest.raises(InputError, match="`dirty`"):
        jax.jit(lambda x: check_finite(dirty, "dirty", "f"))(constant)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, jnp.array([1.0, 0.0])])
def test_numbers_that_are_not_positive_are_refused(value):
    with pytest.raises(InputError, match="`x` argument of f must be a finite number > 0"):
        check_positive(value, "x", "f")


def test_positive_numbers_and_tracers_pass():
    check_positive(1e-300, "x", "f")
    check_positive(jnp.ones((), jnp.bfloat16), "x", "f")
    check_positive(np.array([1e-300, 2.0]), "x", "f", ranks=(0, 1))
    jax.jit(lambda x: check_positive(x, "x", "f"))(jnp.array(-1.0))


@pytest.mark.parametrize("value", [0.0, np.nan, "1", True, None, 1j, [1.0, 2.0]])
def test_what_is_no_positive_number_is_refused(value):
    with pytest.raises(InputError, match="`x` argument of f must be a finite number > 0"):
        check_positive(value, "x", "f")
    with pytest.raises(InputError, match=r"`x` .* Got shape \(2,\)"):
        jax.jit(lambda x: check_positive(x, "x", "f"))(jnp.ones(2))


def test_rank():
    check_rank(np.ones((2, 3, 4)), 2, "(..., L, d)", "x", "f")
    with pytest.raises(InputError, match=r"`x` .* of shape \(..., L, d\). Got shape \(3,\)"):
        check_rank(np.ones(3), 2, "(..., L, d)", "x", "f")


def test_namespace_and_concreteness():
    assert namespace(np.ones(1)) is np
    assert namespace(np.ones(1), jnp.ones(1)) is jnp
    assert is_concrete(jnp.ones(1))
    assert not jax.eval_shape(lambda x: jnp.array(is_concrete(x)), jnp.ones(1)).shape


def test_needs_no_jax():
    program = (
        "import sys, numpy as np; from finetti.core.arguments import check_finite; "
        "from finetti.core.arrays import namespace; "
        "check_finite(np.ones(2), 'x', 'f'); assert namespace(np.ones(1)) is np; "
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

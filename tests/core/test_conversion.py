import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from finetti.core.arrays import as_array


@pytest.mark.parametrize(
    "given",
    [
        [1.5, 2.0],
        np.array([1.5, 2.0], np.float16),
        np.array([True, False]),
        pd.Series([1, 2]),
        pd.DataFrame({"a": [1.5], "b": [2.0]}),
        3.0,
    ],
)
def test_values_and_types_are_those_of_numpy(given):
    found = as_array(given)
    assert isinstance(found, jax.Array)
    np.testing.assert_array_equal(found, np.asarray(given), strict=True)


def test_arrays_of_jax_stay_what_they_are():
    array = jnp.ones(3)
    assert as_array(array) is array
    traced = jax.make_jaxpr(as_array)(array)
    assert not traced.eqns


def test_what_is_changed_later_is_not_changed_here():
    memory = np.zeros(4096 + 64, np.uint8)
    start = -memory.ctypes.data % 64  # what is aligned may be shared
    given = memory[start : start + 4096].view(np.float32)
    found = as_array(given)
    given[:] = 1.0
    assert not found.any()


def test_a_new_shape_compiles_nothing(caplog):
    array = np.ones((3, 17, 5), np.float32)
    with jax.log_compiles():
        found = as_array(array)
        assert not caplog.records
        found + 1  # to see that programs would be seen
    assert caplog.records

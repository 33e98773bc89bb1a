import math

import jax.numpy as jnp
import numpy as np
import pytest

from finetti.display import format_duration, format_interval, format_number, format_value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.000123456, "-0.0001235"),
        (9999.6, "10000"),
        (123456.7, "123457"),
        (1.5e12, "1.5e12"),
        (-math.inf, "-∞"),
        (10**20, "100000000000000000000"),
    ],
)
def test_numbers_have_four_significant_digits(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize("value", 10.0 ** np.arange(-12, 13) * 1.23456)
def test_a_written_number_can_be_read_back(value):
    assert float(format_number(float(value))) == pytest.approx(value, rel=5e-4)


def test_intervals():
    assert format_interval(0.52, (0.48, 0.56)) == "0.52 [0.48, 0.56]"
    assert format_interval(0.52, None) == "0.52"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "< 1 ms"), (0.9994, "999 ms"), (59.96, "1 min 00 s"), (3599.7, "1 h 00 min")],
)
def test_durations_never_show_sixty(seconds, text):
    assert format_duration(seconds) == text


def test_values_of_every_kind():
    assert format_value(np.float32(0.25)) == "0.25"
    assert format_value(np.bool_(True)) == "yes"
    assert format_value(jnp.ones(())) == "1"
    assert format_value(np.zeros((2, 3))) == "float64 array of shape (2, 3)"
    assert format_value([None, "a"]) == "(–, a)"

"""A number against its limits, drawn."""

import math
import re
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.report.gauge import LEFT, RIGHT, Gauge


def across(gauge):
    """Where the value stands and where the limits are, from left to right."""
    drawing = fromstring(gauge.svg)
    marks = [each for each in drawing if each.get("class", "").startswith("value")]
    lines = [each for each in drawing if each.get("class") == "limit"]
    (mark,) = marks
    at = float(mark.get("cx") or re.match(r"M([\d.]+)", mark.get("d"))[1])
    return at, [float(re.match(r"M([\d.]+)", each.get("d"))[1]) for each in lines]


@given(
    st.floats(-1e6, 1e6) | st.floats(0, 1e-8),
    st.floats(-1e6, 1e6) | st.floats(1e-12, 1e-3),
    st.booleans(),
)
def test_a_value_stands_on_its_side_of_the_limit(value, limit, upper):
    limits = {"high": limit} if upper else {"low": limit}
    gauge = Gauge(value, **limits, holds=value <= limit if upper else value >= limit)
    at, (line,) = across(gauge)
    shift = 4 if gauge.holds is False else 0  # a cross begins left of its middle
    if value < limit:
        assert at + shift <= line + 0.2
    elif value > limit:
        assert at + shift >= line - 0.2


def test_marks_differ_by_shape_and_not_only_by_color():
    obeyed, broken, undecided = (Gauge(1.0, high=2.0, holds=h).svg for h in (True, False, None))
    assert "<circle" in obeyed
    assert "undecided" in undecided
    assert "<circle" not in broken
    for gauge, word in ((obeyed, "obeyed"), (broken, "broken"), (undecided, "undecided")):
        assert f"1 against the limit ≤ 2: {word}" in fromstring(gauge).get("aria-label")


@pytest.mark.parametrize(
    ("gauge", "log"),
    [
        (Gauge(3e-16, high=1e-10), True),
        (Gauge(0.0, high=1e-10), True),
        (Gauge(0.5, 0.45, 0.55), False),
        (Gauge(-3.0, high=1e-10), False),
        (Gauge(5.0, low=1e-3, interval=(-1.0, 11.0)), False),
        (Gauge(0.9, high=1.0, interval=(1e-9, 2.0)), True),
    ],
)
def test_far_numbers_are_compared_by_their_powers(gauge, log):
    assert gauge.is_log is log
    assert ('class="tick"' in gauge.svg) is log


def test_a_logarithmic_axis_ends_at_powers_of_ten():
    gauge = Gauge(3e-3, high=1.0)  # from 1e-4 to 10, half a power beyond what is drawn
    ticks = [float(x) for x in re.findall(r'class="tick" d="M([\d.]+)', gauge.svg)]
    assert ticks == pytest.approx(np.linspace(LEFT, RIGHT, 6), abs=0.06)


def test_the_room_around_a_single_number_has_its_size():
    assert across(Gauge(-8.0, high=-8.0, holds=True))[0] == (LEFT + RIGHT) / 2
    assert Gauge(-8.0, high=-8.0)._span() == (-12.0, -4.0)


def test_intervals_and_both_limits_are_drawn():
    gauge = Gauge(0.5, 0.45, 0.55, True, (0.48, 0.52))
    assert "in [0.45, 0.55]" in gauge.text
    assert "0.5 [0.48, 0.52]" in gauge.text
    at, (low, high) = across(gauge)
    assert low < at < high
    assert 'class="range"' in gauge.svg


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_has_no_place_is_left_out_or_stands_at_the_end(value):
    svg = Gauge(value, high=1.0, holds=None).svg
    assert (svg == "") is math.isnan(value)
    assert Gauge(1.0).svg == ""

"""From covering numbers to the gap: two routes, limits, and what the printed form does wrong."""

import math

import numpy as np
import pytest
from scipy import special

from finetti.bounds import Sample
from finetti.bounds.covering.composition import allocate
from finetti.bounds.covering.dudley import (
    dudley_closed,
    dudley_printed,
    dudley_quadrature,
)
from finetti.bounds.sparse_variables import CoveringConstantGap
from finetti.core.errors import InputError


@pytest.mark.parametrize("log_constant", [-5.0, 0.0, 3.0, 50.0])
@pytest.mark.parametrize("log_samples", [0.0, 10.0, 100.0])
def test_constant_over_squares_integrates_to_the_closed_form(log_constant, log_samples):
    def cover(u):
        return log_constant - 2 * u

    closed = dudley_closed(log_constant, 0.7, log_samples)
    found = dudley_quadrature(cover, 0.7, log_samples)
    assert found.log_value == pytest.approx(closed, abs=1e-10)


def test_integral_against_a_known_one():
    """log N = 1 + log(1/ε) on [0, 1]: ∫ √log N = 1 + (e√π/2) erfc(1), for ever larger m."""
    found = dudley_quadrature(lambda u: np.log1p(-np.asarray(u)), 0.0, math.log(1e12))
    integral = 1 + math.e * math.sqrt(math.pi) / 2 * special.erfc(1)
    assert math.exp(found.log_value) == pytest.approx(12 * integral / 1e6, rel=1e-10)


def test_never_more_than_the_range():
    assert dudley_closed(10.0, 0.3, 0.0) == 0.3
    assert dudley_quadrature(lambda u: 10 - 2 * u, 0.3, 0.0).trivial
    # Just above x = 3 the formula exceeds the range, which is trivially enough.
    assert dudley_closed(0.0, 0.0, 2 * math.log(3.1)) == 0.0


def test_printed_closed_form_is_negative_and_grows_with_the_sample():
    printed = [dudley_printed(10.0, 0.0, math.log(m)) for m in (1, 10, 100, 1000)]
    values = [sign * math.exp(log_size) for log_size, sign in printed]
    assert values[0] < 0
    assert (np.diff(values) > 0).all()
    derived = [dudley_closed(10.0, 0.0, math.log(m)) for m in (1, 10, 1e6, 1e9)]
    assert (np.diff(derived) <= 0).all()


@pytest.mark.parametrize(("constant", "sign"), [(1e6, -1), (1.0, 1)])
def test_printed_gap_carries_its_sign(constant, sign):
    bound = CoveringConstantGap(covering_constant=constant, form="printed")
    value = bound.evaluate(Sample(n_samples=200, context_length=1))
    assert (value.sign, value.vacuous) == (sign, None)
    assert any("erratum 12" in note for note in value.notes) == (sign < 0)
    root = math.sqrt(constant / 200)
    expected = 4 * root * (1 - math.log(root)) + 2 * math.sqrt(math.log(20) / 400)
    assert value.value == pytest.approx(expected, rel=1e-12)


def test_derived_confidence_is_never_below_the_printed_one():
    for n, delta in ((10, 0.5), (1000, 0.05), (10**6, 1e-9)):
        sample = Sample(n, 1, delta=delta)
        parts = [
            CoveringConstantGap(covering_constant=0.0, output_range=0.0, form=form).evaluate(sample)
            for form in ("derived", "printed")
        ]
        assert parts[0].value > parts[1].value


def test_allocation_of_nothing_to_what_costs_nothing():
    least, shares = allocate([0.0, -math.inf], [0.0, 0.0])
    assert (least, shares[0], shares[1]) == (0.0, 0.0, -math.inf)
    with pytest.raises(InputError, match="as many as the costs"):
        allocate([0.0], [0.0, 1.0])

"""From covering numbers to the gap: two routes, limits, and what the printed form does wrong."""

import math

import numpy as np
import pytest
from scipy import special

from finetti.bounds import Sample
from finetti.bounds.covering.composition import allocate
from finetti.bounds.covering.dudley import (
    dudley_closed,
    dudley_quadrature,
)
from finetti.bounds.sparse_variables import CoveringConstantGap
from finetti.core.errors import InputError


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

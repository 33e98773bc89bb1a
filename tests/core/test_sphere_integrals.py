"""Lemma B.2: the constants by quadrature, Bessel functions and high precision."""

import math

import mpmath
import numpy as np
import pytest

from finetti.core import mean_resultant, sphere_constants, sphere_rule
from finetti.core.errors import InputError

pytestmark = pytest.mark.rounding


def area(dimension):
    return 2 * math.pi ** (dimension / 2) / math.gamma(dimension / 2)


@pytest.mark.parametrize("dimension", [2, 3, 4, 5])
def test_rule_integrates_monomials_exactly(dimension):
    """∫ ∏ a_i^{n_i} = 2 ∏ Γ((n_i+1)/2) / Γ((Σn_i + d)/2), or 0 with an odd exponent."""
    nodes, weights = sphere_rule(dimension, 7)
    assert (weights > 0).all()
    np.testing.assert_allclose(np.linalg.norm(nodes, axis=1), 1.0, atol=1e-14)
    for powers in ((0, 0), (2, 0), (1, 1), (2, 2), (4, 2), (3, 4), (1, 6), (6, 0)):
        exponents = np.array([*powers, *(0,) * (dimension - 2)])
        for shifted in {tuple(np.roll(exponents, shift)) for shift in range(dimension)}:
            found = weights @ np.prod(nodes ** np.array(shifted), axis=1)
            exact = 2 * math.prod(math.gamma((n + 1) / 2) for n in shifted)
            exact /= math.gamma((sum(shifted) + dimension) / 2)
            exact = 0.0 if any(n % 2 for n in shifted) else exact
            assert found == pytest.approx(exact, abs=1e-13)


@pytest.mark.parametrize("dimension", [2, 3, 4])
def test_rule_stops_being_exact_beyond_its_degree(dimension):
    nodes, weights = sphere_rule(dimension, 3)
    exact = 2 * math.gamma(8.5) * math.gamma(0.5) ** (dimension - 1) / math.gamma(8 + dimension / 2)
    assert abs(weights @ nodes[:, 0] ** 16 - exact) > 1e-3


@pytest.mark.parametrize("concentration", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("dimension", [2, 3, 4])
def test_constants_by_quadrature(dimension, concentration):
    nodes, weights = sphere_rule(dimension, 40)
    direction = np.random.default_rng(0).normal(size=dimension)
    direction /= np.linalg.norm(direction)
    heights = nodes @ direction
    density = weights * np.exp(concentration * heights)
    c0, c1 = sphere_constants(dimension, concentration)
    assert density.sum() == pytest.approx(c0, rel=1e-12)
    assert density @ heights == pytest.approx(c1, rel=1e-12)
    # The vector integral points along b: the statement of the lemma.
    np.testing.assert_allclose(density @ nodes, c1 * direction, atol=1e-12 * c0)


@pytest.mark.parametrize("dimension", [2, 3, 8, 64, 200])
@pytest.mark.parametrize("concentration", [1e-3, 1.0, 50.0, 500.0])
def test_constants_in_high_precision(dimension, concentration):
    """The one-dimensional integral over the height t, with no Bessel function in it."""
    with mpmath.workdps(40):
        kappa, exponent = mpmath.mpf(concentration), mpmath.mpf(dimension - 3) / 2
        slices = 2 * mpmath.pi ** (mpmath.mpf(dimension - 1) / 2)
        slices /= mpmath.gamma(mpmath.mpf(dimension - 1) / 2)

        def moment(power):  # t = cos θ has no singular ends
            return slices * mpmath.quad(
                lambda angle: (
                    mpmath.sin(angle) ** (2 * exponent + 1)
                    * mpmath.cos(angle) ** power
                    * mpmath.exp(kappa * mpmath.cos(angle))
                ),
                mpmath.linspace(0, mpmath.pi, 9),
            )

        c0, c1 = moment(0), moment(1)
    ours = sphere_constants(dimension, concentration)
    assert ours.c0 == pytest.approx(float(c0), rel=1e-11)
    assert ours.c1 == pytest.approx(float(c1), rel=1e-11)
    assert mean_resultant(dimension, concentration) == pytest.approx(float(c1 / c0), rel=1e-12)


def test_printed_numbers():
    """Erratum 4: C_0/C_1, and the shrinkage A_5(κ) of Proposition 4.2."""
    ratios = [1 / mean_resultant(dimension) for dimension in (2, 3, 8, 64)]
    assert ratios == pytest.approx([2.240, 3.195, 8.099, 64.015], abs=6e-4)
    shrinkages = [mean_resultant(5, concentration) for concentration in (1, 10, 100, 500)]
    assert shrinkages == pytest.approx([0.195, 0.811, 0.980, 0.996], abs=6e-4)


def test_limits():
    assert sphere_constants(6, 1e-9).c0 == pytest.approx(area(6))
    assert mean_resultant(6, 1e-9) == pytest.approx(1e-9 / 6)
    # Far beyond where exp(κ) itself would overflow, A_d(κ) → 1 − (d−1)/(2κ).
    assert mean_resultant(3, 600.0) == pytest.approx(1 - 1 / 600, rel=1e-12)


@pytest.mark.parametrize("dimension", [2, 3000, 4000, 10_000, 20_000])
@pytest.mark.parametrize("share", [1e-9, 0.3, 0.625, 1.0])
def test_the_ratio_exists_where_the_bessel_functions_underflow(dimension, share):
    concentration = share * dimension
    with mpmath.workdps(30):
        expected = mpmath.besseli(dimension / 2, concentration, maxterms=10**6)
        expected /= mpmath.besseli(dimension / 2 - 1, concentration, maxterms=10**6)
    assert mean_resultant(dimension, concentration) == pytest.approx(float(expected), rel=1e-13)


@pytest.mark.parametrize("concentration", [1e3, 1e5])
def test_the_ratio_exists_where_the_constants_overflow(concentration):
    assert mean_resultant(3, concentration) == pytest.approx(1 - 1 / concentration, rel=1e-12)


@pytest.mark.parametrize("dimension", [1, 0, 2.5])
def test_bad_dimensions_are_refused(dimension):
    for function in (sphere_constants, mean_resultant, lambda d: sphere_rule(d, 3)):
        with pytest.raises(InputError, match="`dimension`"):
            function(dimension)


def test_other_bad_arguments_are_refused():
    with pytest.raises(InputError, match="`degree`"):
        sphere_rule(3, -1)
    for concentration in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="`concentration`"):
            sphere_constants(3, concentration)

"""Log-space arithmetic against mpmath at many digits, in the regions where digits get lost."""

import math
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetti.core.errors import InputError
from finetti.core.numerics import logspace

TOLERANCE = 1e-14
LOG2 = math.log(2)
untimed = settings(deadline=None)  # a busy machine is no failure

positive = st.one_of(
    st.floats(-290, 2.8).map(lambda exponent: 10**exponent),
    st.floats(0.01, 3.0),
    st.floats(3.0, 30.0),
    st.floats(-16, -1).map(lambda exponent: LOG2 + 10**exponent),
    st.floats(-16, -1).map(lambda exponent: LOG2 - 10**exponent),
)
logs = st.floats(-800, 800)


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(650):  # e^{±700} beside 1, and then some
        yield


def relative_error(value, reference):
    return float(abs(mpmath.mpf(float(value)) - reference) / abs(reference))


@untimed
@given(positive)
def test_log1mexp(x):
    reference = mpmath.log(-mpmath.expm1(-mpmath.mpf(x)))
    assert relative_error(logspace.log1mexp(x), reference) < TOLERANCE


@untimed
@given(positive)
def test_log_expm1(x):
    reference = mpmath.log(mpmath.expm1(mpmath.mpf(x)))
    assert relative_error(logspace.log_expm1(x), reference) < TOLERANCE


@untimed
@given(positive, st.booleans())
def test_log1pexp(x, negative):
    x = -x if negative else x
    reference = mpmath.log1p(mpmath.exp(mpmath.mpf(x)))
    assert relative_error(logspace.log1pexp(x), reference) < TOLERANCE


def test_the_textbook_formulas_would_fail():
    """The points above are hard: the plain formulas are wrong there."""
    assert math.log(1 - math.exp(-1e-12)) != pytest.approx(logspace.log1mexp(1e-12), rel=1e-8)
    assert abs(math.log(math.expm1(LOG2)) / logspace.log_expm1(LOG2) - 1) > 1e-8
    assert np.log1p(np.exp(-40.0)) == logspace.log1pexp(-40.0) != math.log(1 + math.exp(-40.0))


def scale(reference, *terms):
    """What the error is measured by: the result, or the largest argument where they cancel."""
    return max(abs(reference), *(abs(term) for term in terms if math.isfinite(term)), 1e-300)


@untimed
@given(logs, logs)
def test_add_then_subtract(a, b):
    total = logspace.log_add(a, b)
    reference = mpmath.log(mpmath.exp(mpmath.mpf(a)) + mpmath.exp(mpmath.mpf(b)))
    assert abs(mpmath.mpf(float(total)) - reference) <= TOLERANCE * scale(reference, a, b)
    high, low = max(a, b), min(a, b)
    difference = logspace.log_subtract(high, low)
    if high == low:
        assert difference == -math.inf
        return
    exact = mpmath.log(mpmath.exp(mpmath.mpf(high)) - mpmath.exp(mpmath.mpf(low)))
    # Arguments far apart in scale (1 and 1e-30) still define their gap to one rounding.
    assert abs(mpmath.mpf(float(difference)) - exact) <= TOLERANCE * scale(exact, a, b)


@untimed
@given(st.lists(logs, min_size=1, max_size=12))
def test_sum_and_mean(values):
    reference = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(v)) for v in values))
    error = abs(mpmath.mpf(float(logspace.log_sum(values))) - reference)
    assert error <= TOLERANCE * scale(reference, max(values))


def test_zero_and_infinity():
    inf = math.inf
    assert logspace.log_sum([-inf, -inf]) == -inf
    assert logspace.log_sum([]) == -inf
    assert logspace.log_sum([inf, 0.0]) == inf
    assert logspace.log_add(-inf, -3.0) == -3.0
    assert logspace.log_subtract(-inf, -inf) == -inf
    assert logspace.log_subtract(2.0, -inf) == 2.0
    assert logspace.log_subtract(inf, 2.0) == inf
    assert logspace.log1mexp([0.0, inf]).tolist() == [-inf, 0.0]
    assert logspace.log_expm1([0.0, inf]).tolist() == [-inf, inf]
    assert logspace.log1pexp([-inf, inf]).tolist() == [0.0, inf]


def log_binomial_reference(n, k):
    n, k = mpmath.mpf(n), mpmath.mpf(k)
    return mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)


def test_log_binomial_by_enumeration():
    for n in range(2, 70):
        k = np.arange(1, n)
        exact = np.array([math.log(math.comb(n, int(j))) for j in k])
        assert logspace.log_binomial(n, k) == pytest.approx(exact, rel=TOLERANCE)
        assert logspace.log_binomial(n, [0, n]).tolist() == [0.0, 0.0]


@untimed
@given(st.floats(0.5, 300), st.floats(0, 1))
def test_log_binomial_for_huge_n(digits_of_n, share):
    n = int(10**digits_of_n) + 1
    n = int(float(n))
    k = int(float(int(10 ** (digits_of_n * share))))
    if not 0 < k < n:
        return
    reference = log_binomial_reference(n, k)
    assert relative_error(logspace.log_binomial(n, k), reference) < TOLERANCE


@untimed
@given(st.integers(1, 10**15), st.data())
def test_log_binomial_symmetry_and_pascal(n, data):
    k = data.draw(st.integers(1, n))
    assert logspace.log_binomial(n, k) == logspace.log_binomial(n, n - k)
    pascal = logspace.log_add(logspace.log_binomial(n, k), logspace.log_binomial(n, k - 1))
    assert logspace.log_binomial(n + 1, k) == pytest.approx(pascal, rel=1e-13)


def test_log_gamma_differences_would_fail():
    n, k = 10**12, 10**4
    reference = log_binomial_reference(n, k)
    naive = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    assert relative_error(naive, reference) > 1e-10
    assert relative_error(logspace.log_binomial(n, k), reference) < TOLERANCE


@pytest.mark.parametrize(
    ("n", "k", "argument"),
    [(3, 4, "k"), (3, -1, "k"), (3.5, 1, "n"), (math.inf, 1, "n"), (10**400, 1, "n")],
)
def test_log_binomial_refuses(n, k, argument):
    with pytest.raises(InputError, match=f"`{argument}` argument of log_binomial"):
        logspace.log_binomial(n, k)


def test_other_refusals():
    with pytest.raises(InputError, match="`log_b` argument of log_subtract"):
        logspace.log_subtract([3.0, 1.0], [2.0, 2.0])
    with pytest.raises(InputError, match="`log_b` argument of log_subtract"):
        logspace.log_subtract(math.inf, math.inf)
    for function in (logspace.log1mexp, logspace.log_expm1):
        with pytest.raises(InputError, match=f"`x` argument of {function.__name__}"):
            function([1.0, -1e-9])
    for function in (logspace.log_sum, logspace.log1pexp, logspace.log1mexp):
        with pytest.raises(
            InputError, match=f"argument of {function.__name__} must be free of NaN"
        ):
            function([0.0, math.nan])


def test_import_needs_no_jax():
    code = "import sys, finetti.core.numerics.logspace; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

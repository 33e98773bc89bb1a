"""The distance of finite sequences from mixtures, in fractions and at its extremes."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.latent import finite_distance


def by_hand(urn, k):
    """Σ |P − Q| over all sequences of k letters, in fractions."""
    total, n = Fraction(0), sum(urn)
    for letters in itertools.product(range(len(urn)), repeat=k):
        left, without, with_them = list(urn), Fraction(1), Fraction(1)
        for seen, letter in enumerate(letters):
            without *= Fraction(left[letter], n - seen)
            with_them *= Fraction(urn[letter], n)
            left[letter] -= 1
        total += abs(without - with_them)
    return float(total)


@pytest.mark.parametrize(
    ("urn", "k"), [([3, 2], 3), ([1, 1], 2), ([4, 0, 3], 4), ([2, 2, 1], 5), ([0, 1, 4, 0], 5)]
)
def test_distance_is_the_sum_over_all_sequences(urn, k):
    result = finite_distance(np.array(urn), k)
    assert result.distance == pytest.approx(by_hand(urn, k), abs=1e-13)
    assert result.distance <= min(result.alphabet_bound, result.general_bound)


def test_bounds_hold_and_one_is_attained():
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, c = int(rng.integers(2, 30)), int(rng.integers(1, 5))
        urn = rng.multinomial(n, rng.dirichlet(np.ones(c)))
        result = finite_distance(urn, int(rng.integers(1, n + 1)))
        assert result.distance <= result.alphabet_bound
        assert result.distance <= result.general_bound + 1e-12
    for n in (2, 5, 40):
        result = finite_distance([1] * n, 2)
        assert result.distance == pytest.approx(result.general_bound, rel=1e-12)
    # All of a long sequence: one count against a spread-out one, the distance is nearly 2.
    result = finite_distance([500, 500], 1000)
    assert result.distance / result.alphabet_bound == pytest.approx(0.487, abs=1e-3)


def test_one_token_and_one_letter_are_always_a_mixture():
    assert finite_distance([3, 4], 1).distance == pytest.approx(0, abs=1e-15)
    assert finite_distance([7], 5).distance == pytest.approx(0, abs=1e-15)


def test_many_letters_take_no_recursion():
    """1200 letters that differ: k(k − 1)/n is attained, and one token is always a mixture."""
    assert finite_distance([1] * 1200, 1).distance == pytest.approx(0, abs=1e-12)
    assert finite_distance([1] * 120, 2).distance == pytest.approx(2 / 120, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (([3, 2], 6), "no more balls"),
        (([3, 2], 0), "n_shown"),
        (([3, -2], 1), "counts"),
        (([0, 0], 1), "counts"),
        (([1.5, 2.0], 1), "counts"),
        (([[3, 2], [1, 1]], 1), "counts"),
        (([100] * 40, 100), "small enough"),
        (([1] * 900, 2), "small enough"),  # 405 450 rows, but of 900 numbers
    ],
)
def test_impossible_urns_are_refused(arguments, what):
    with pytest.raises(InputError, match=what):
        finite_distance(*arguments)


def test_a_distance_shows_itself():
    assert "2ck/n" in str(finite_distance([5, 5], 3))

"""The distance of finite sequences from mixtures, in fractions and at its extremes."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.latent import finite_distance


def by_hand(urns, k):
    """Σ |P − Q| over all sequences of k letters, in fractions; urns of equal weight."""
    total = Fraction(0)
    for letters in itertools.product(range(len(urns[0])), repeat=k):
        gap = Fraction(0)
        for urn in urns:
            n, left = sum(urn), list(urn)
            without = with_them = Fraction(1)
            for seen, letter in enumerate(letters):
                without *= Fraction(left[letter], n - seen)
                with_them *= Fraction(urn[letter], n)
                left[letter] -= 1
            gap += (without - with_them) / len(urns)
        total += abs(gap)
    return float(total)


@pytest.mark.parametrize(
    ("urns", "k"),
    [([[3, 2]], 3), ([[1, 1]], 2), ([[4, 0, 3]], 4), ([[2, 2, 1], [5, 0, 0], [0, 1, 4]], 3)],
)
def test_distance_is_the_sum_over_all_sequences(urns, k):
    result = finite_distance(np.array(urns), k)
    assert result.distance == pytest.approx(by_hand(urns, k), abs=1e-13)
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


def test_an_urn_from_a_mixture_is_a_mixture():
    """Binomial weights over all urns of n balls make n fair coins: no distance at all."""
    n = 6
    urns = np.array([[i, n - i] for i in range(n + 1)])
    weights = np.array([1, 6, 15, 20, 15, 6, 1]) / 64
    without = finite_distance(urns, 3, weights)
    # P is three fair coins; Q, with replacement from a random urn, is not quite.
    counts = np.arange(n + 1)
    fair = np.array([1, 3, 3, 1]) / 8
    shares = np.array([[1, 3, 3, 1]] * 7) * np.stack(
        [(counts / n) ** t * (1 - counts / n) ** (3 - t) for t in range(4)], axis=1
    )
    assert without.distance == pytest.approx(np.abs(fair - weights @ shares).sum(), abs=1e-13)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (([3, 2], 6), "no more balls"),
        (([3, 2], 0), "n_shown"),
        (([3, -2], 1), "counts"),
        (([0, 0], 1), "counts"),
        (([1.5, 2.0], 1), "counts"),
        (([[3, 2], [1, 1]], 1), "equal size"),
        (([3, 2], 1, [0.5, 0.5]), "weights"),
        (([100] * 40, 100), "small enough"),
    ],
)
def test_what_cannot_be_is_refused(arguments, what):
    with pytest.raises(InputError, match=what):
        finite_distance(*arguments)


def test_a_distance_shows_itself():
    assert "2ck/n" in str(finite_distance([5, 5], 3))

"""Finitely many exchangeable tokens: how far the first k of n are from a mixture."""

import itertools
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from finetti.core.arguments import as_floats, as_whole
from finetti.core.errors import bad_argument
from finetti.display.card import Card
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_number

MAX_COUNTS = 20_000_000  # numbers in the table of all counts of letters: 160 MB


@dataclass(frozen=True)
class FiniteDistance(Displayable):
    """The variation distance 2·sup|P − Q| of k tokens, beside the bounds of the theorem.

    Args:
        distance: between draws without and with replacement, in [0, 2].
        n_tokens: n of the whole sequence.
        n_shown: k that are looked at.
        n_letters: c of the alphabet.
    """

    distance: float
    n_tokens: int
    n_shown: int
    n_letters: int

    @property
    def alphabet_bound(self) -> float:
        """2ck/n."""
        return 2 * self.n_letters * self.n_shown / self.n_tokens

    @property
    def general_bound(self) -> float:
        """k(k − 1)/n, whatever the alphabet."""
        return self.n_shown * (self.n_shown - 1) / self.n_tokens

    def __card__(self) -> Card:
        fields = (
            ("tokens", f"the first {self.n_shown} of {self.n_tokens}, {self.n_letters} letters"),
            ("distance 2·sup|P − Q|", format_number(self.distance)),
            ("bound 2ck/n", format_number(self.alphabet_bound)),
            ("bound k(k − 1)/n", format_number(self.general_bound)),
        )
        return Card("Finite exchangeable sequence", fields)


def finite_distance(urn: Any, n_shown: int) -> FiniteDistance:
    """How far the first k of n exchangeable tokens are from independent ones.

    P: k draws without replacement from an urn of n balls;  Q: k draws with replacement from it.

    Every exchangeable law of n tokens is a mixture of such urns (the counts of its letters), and Q,
    mixed likewise, is the mixture that the theorem compares with. Exact, by a sum over the
    counts of k letters.

    Args:
        urn: counts of the c letters, (c,).
        n_shown: k ≤ n.

    >>> result = finite_distance([1] * 10, 2)  # ten balls that differ: the bound is attained
    >>> round(result.distance, 12), result.general_bound
    (0.2, 0.2)

    Reference: Proposition 3.1, zhang2022, for finite sequences; Diaconis and Freedman (1980),
    Theorems 3 and 4.
    """
    from scipy.stats import multinomial, multivariate_hypergeom  # slow to import

    owner = "finite_distance"
    counts = as_floats(urn, "urn", owner)
    is_whole = counts.ndim == 1 and counts.size and (counts == np.floor(counts)).all()
    if not is_whole or (counts < 0).any() or counts.sum() < 1:
        raise bad_argument("urn", owner, "counts ≥ 0 of letters, not all 0", repr(urn))
    n, n_letters = int(counts.sum()), len(counts)
    k = as_whole(n_shown, "n_shown", owner)
    if k > n:
        advice = "The urn has no more balls."
        raise bad_argument("n_shown", owner, f"at most the {n} tokens that there are", k, advice)
    n_types = comb(k + n_letters - 1, k)
    if n_types * n_letters > MAX_COUNTS:
        wanted = f"small enough for a table of {MAX_COUNTS} counts of letters"
        raise bad_argument("n_shown", owner, wanted, f"{n_types} rows of {n_letters} counts")
    types = _types(k, n_letters, n_types)
    without = multivariate_hypergeom.pmf(types, counts.astype(int), k)
    # Sequences of one type have equal probabilities, so their differences have one sign.
    gap = without - multinomial.pmf(types, k, counts / n)
    return FiniteDistance(float(np.abs(gap).sum()), n, k, n_letters)


def _types(total: int, n_letters: int, n_types: int) -> Any:
    """Return all counts of letters that sum to ``total``, one per row: places of bars among balls.

    >>> _types(2, 2, 3).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    bars = itertools.combinations(range(total + n_letters - 1), n_letters - 1)
    flat = itertools.chain.from_iterable(bars)
    places = np.fromiter(flat, np.int64, n_types * (n_letters - 1)).reshape(n_types, -1)
    return np.diff(places, axis=1, prepend=-1, append=total + n_letters - 1) - 1

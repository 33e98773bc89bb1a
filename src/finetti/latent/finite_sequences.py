"""Finitely many exchangeable tokens: how far the first k of n are from a mixture."""

from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy

from finetti.core.errors import bad_argument
from finetti.core.logspace import log_binomial
from finetti.core.numbers import as_whole
from finetti.latent.base import Floats, as_floats
from finetti.latent.laws import as_probabilities
from finetti.show.card import Card
from finetti.show.numbers import format_number
from finetti.show.shown import Shown

MAX_TYPES = 2_000_000


@dataclass(frozen=True)
class FiniteDistance(Shown):
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


def finite_distance(urns: Any, n_shown: int, weights: Any = None) -> FiniteDistance:
    """How far the first k of n exchangeable tokens are from a mixture of independent ones.

    P: k draws without replacement from an urn of n balls;  Q: k draws with replacement from it.

    Every exchangeable law of n tokens is a mixture of such urns (the counts of its letters), and Q,
    mixed likewise, is the mixture that the theorem compares with. Exact, by a sum over the
    counts of k letters.

    Args:
        urns: counts of the c letters, (c,); or of several urns of equal size, (m, c).
        n_shown: k ≤ n.
        weights: probabilities of the urns, (m,); uniform by default.

    >>> result = finite_distance([1] * 10, 2)  # ten balls that differ: the bound is attained
    >>> round(result.distance, 12), result.general_bound
    (0.2, 0.2)

    Reference: Proposition 3.1, zhang2022, for finite sequences; Diaconis and Freedman (1980),
    Theorems 3 and 4.
    """
    owner = "finite_distance"
    counts = np.atleast_2d(as_floats(urns, "urns", owner))
    is_whole = counts.ndim == 2 and counts.size and (counts == np.floor(counts)).all()
    if not is_whole or (counts < 0).any() or (counts.sum(axis=1) < 1).any():
        raise bad_argument("urns", owner, "counts ≥ 0 of letters, not all 0", repr(urns))
    sizes = counts.sum(axis=1)
    if sizes.min() != sizes.max():
        raise bad_argument("urns", owner, "of equal size", f"sizes {sorted(set(sizes.tolist()))}")
    n, (n_urns, n_letters) = int(sizes[0]), counts.shape
    k = as_whole(n_shown, "n_shown", owner)
    if k > n:
        advice = "The urn has no more balls."
        raise bad_argument("n_shown", owner, f"at most the {n} tokens that there are", k, advice)
    shares = np.full(n_urns, 1 / n_urns) if weights is None else weights
    shares = as_probabilities(shares, "weights", owner)
    if shares.shape != (n_urns,):
        raise bad_argument("weights", owner, f"of shape ({n_urns},)", f"shape {shares.shape}")
    n_types = comb(k + n_letters - 1, k)
    if n_types > MAX_TYPES:
        wanted = f"small enough for a sum over at most {MAX_TYPES} counts of letters"
        raise bad_argument("n_shown", owner, wanted, f"{n_types} of them")
    types = _types(k, n_letters)
    # Sequences of one type have equal probabilities, so their differences have one sign.
    gaps = [_without(urn, types) - _with(urn, types) for urn in counts]
    gap = shares @ np.stack(gaps)
    return FiniteDistance(float(np.abs(gap).sum()), n, k, n_letters)


def _types(total: int, n_letters: int) -> Floats:
    """All counts of ``n_letters`` letters that sum to ``total``, one per row."""
    if n_letters == 1:
        return np.array([[float(total)]])
    parts = []
    for first in range(total + 1):
        rest = _types(total - first, n_letters - 1)
        parts.append(np.column_stack([np.full(len(rest), float(first)), rest]))
    return np.concatenate(parts)


def _without(urn: Any, types: Floats) -> Floats:
    """Multivariate hypergeometric: ∏ C(n_i, t_i) / C(n, k)."""
    possible = np.all(types <= urn, axis=1)
    taken = np.where(possible[:, None], types, 0.0)
    logs = log_binomial(urn, taken).sum(axis=1) - log_binomial(urn.sum(), types[0].sum())
    return np.where(possible, np.exp(logs), 0.0)


def _with(urn: Any, types: Floats) -> Floats:
    """Multinomial: k! ∏ (n_i/n)^{t_i} / t_i!."""
    logs = xlogy(types, urn / urn.sum()) - gammaln(types + 1)
    return np.exp(logs.sum(axis=1) + gammaln(types[0].sum() + 1))

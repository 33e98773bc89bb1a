"""What exhaustive search will cost, known before it begins."""

from math import comb

import numpy as np
import scipy
from numpy.typing import NDArray

from finetti.boolean.simplification import find_profile
from finetti.core.errors import InputError
from finetti.probe.tasks.consistent_sets import (
    ENOUGH_FOR_SEARCH,
    MAX_ORDERED_BITS,
    MAX_TABLE_BITS,
    is_parity,
)
from finetti.probe.tasks.hidden_rule import HiddenRule
from finetti.probe.tasks.parity_sets import MAX_SUBSETS
from finetti.probe.tasks.set_search import MIN_VISITS
from finetti.probe.tasks.symmetries import arrangements


def refuse_hopeless(rule: HiddenRule, n_samples: int, max_visits: int) -> None:
    """Raise InputError if `best_set` would give up on a typical sample.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> refuse_hopeless(make_rule("and", 5, 3000), 20, 10**8)
    Traceback (most recent call last):
    finetti.core.errors.InputError: Exhaustive search for and at T = 3000 with m = 20 ...
    """
    where = f"Exhaustive search for {rule.name} at T = {rule.context_length}"
    symmetric = find_profile(rule.function) is not None
    most = MAX_TABLE_BITS if symmetric else MAX_ORDERED_BITS
    if rule.sparsity > most:
        raise InputError(
            f"{where} goes through at most {most} hidden bits of such a function. "
            f"Got {rule.sparsity} instead."
        )
    if _by_halves(rule):
        larger = rule.sparsity - rule.sparsity // 2
        halves = [comb(rule.context_length, each) for each in (rule.sparsity - larger, larger)]
        pairs = halves[0] * halves[1] / 2.0 ** min(n_samples, 64)
        if max(halves[1], pairs) > MAX_SUBSETS:
            raise InputError(
                f"{where} with m = {n_samples} samples would hold about "
                f"{max(halves[1], pairs):.1e} half sets, more than {MAX_SUBSETS:.0e}. Take a "
                "smaller context, fewer hidden bits or more samples."
            )
        return
    visits = typical_visits(rule, n_samples)
    if visits > max_visits:
        raise InputError(
            f"{where} with m = {n_samples} samples would look at about {visits:.1e} partial sets, "
            f"more than max_visits = {max_visits:.1e}. Take a smaller context, fewer hidden bits "
            "or more samples, or raise the learner's `max_visits`."
        )


def typical_visits(rule: HiddenRule, n_samples: int) -> float:
    """About how many partial sets a search looks at, on samples with as many ones as expected.

    Σ_k C(T, k)·P(k − 1 positions are not refuted)·P(the k-th alone is not)

    for each order of the function's bits: what is refuted is a prefix of positions, which have
    nothing to do with the labels, whose bits decide about the label and are wrong too often.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> f"{typical_visits(make_rule('and', 3, 400), 40):.1e}"
    '3.8e+04'
    """
    flipped, ones = rule.label_noise, rule.label_probability
    ones = ones * (1 - flipped) + (1 - ones) * flipped
    # The search allows 0, 1, 3, 7, … errors until a set fits: the last of these is the longest.
    errors = round(flipped * n_samples)
    errors = 2 ** (errors + 1).bit_length() - 1 if errors else 0
    length, total = rule.context_length, 0.0
    for table in arrangements(rule.function).values():
        cube = np.asarray(table).reshape((2,) * rule.sparsity)
        for k in range(1, rule.sparsity + 1):
            alone = np.moveaxis(cube, k - 1, 0)
            kept = [
                _survival(part, n_samples, ones, errors, rule.bit_probability)
                for part in (cube.reshape(2 ** (k - 1), -1), alone.reshape(2, -1))
            ]
            # However few prefixes there are, a step for each position is made.
            total += max(comb(length, k) * kept[0], MIN_VISITS * length) * kept[1]
    return total


def _survival(
    rows: NDArray[np.uint8], n_samples: int, ones: float, errors: int, probability: float
) -> float:
    """P(at most ``errors`` wrong labels), where a row of values that are all equal is a prediction.

    A row is a setting of the positions that are chosen, first bit most significant.
    """
    n_bits = len(rows).bit_length() - 1
    counts = np.array([number.bit_count() for number in range(len(rows))])
    chance = probability**counts * (1 - probability) ** (n_bits - counts)
    constant = (rows == rows[:, :1]).all(axis=1)
    wrong_one = float(chance[constant & (rows[:, 0] == 0)].sum())  # of a row with label 1
    wrong_zero = float(chance[constant & (rows[:, 0] == 1)].sum())
    if not errors:
        return (1 - wrong_one) ** (ones * n_samples) * (1 - wrong_zero) ** ((1 - ones) * n_samples)
    wrong = ones * wrong_one + (1 - ones) * wrong_zero
    return float(scipy.stats.binom.cdf(errors, n_samples, wrong))


def _by_halves(rule: HiddenRule) -> bool:
    """Whether the search is for a clean parity with so many sets that halves of them are sought."""
    many = comb(rule.context_length, rule.sparsity) > ENOUGH_FOR_SEARCH
    return many and not rule.label_noise and is_parity(rule)

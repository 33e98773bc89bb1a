"""What the claims about compiled rules share: rules, and how far a head is from its lemma."""

from typing import Any

import numpy as np

from finetti import boolean
from finetti.boolean.functions.base import all_bits
from finetti.boolean.network.worst_case import feature_ranges
from finetti.core.numbers import largest_of

THREE = (2, 5, 8)  # three bits of ten


def head_error(weights: Any, indices: tuple[int, ...], scalar: bool) -> float:
    """The largest error of the features over ALL inputs, found by the worst outside bits."""
    settings = all_bits(len(indices))
    points = weights.embedding.points(settings, scalar)
    low, high, _ = feature_ranges(weights.tables, indices, settings)
    return float(np.maximum(high - points, points - low).max())


def random_rule(rng: np.random.Generator, context_length: int, sparsity: int) -> Any:
    """A random truth table on random bits, real values included."""
    indices = rng.choice(context_length, size=sparsity, replace=False)
    return boolean.TruthTable(indices, rng.normal(size=2**sparsity))


def symmetric_rule(rng: np.random.Generator, context_length: int, sparsity: int) -> Any:
    """A random function of the number of ones."""
    indices = rng.choice(context_length, size=sparsity, replace=False)
    return boolean.Symmetric(indices, rng.normal(size=sparsity + 1))


def worst_certificate(rules: Any, context_length: int, **options: Any) -> tuple[float, float]:
    """Over compiled rules: the largest error in tolerances, and the largest norm over its bound."""
    found = [boolean.compile(rule, context_length, **options).certificate for rule in rules]
    error = largest_of(each.head_error / each.tolerance for each in found)
    ratio = largest_of(norm.value / norm.bound for each in found for norm in each.norms)
    return error, ratio

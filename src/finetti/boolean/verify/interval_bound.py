"""A bound on the network's error over ALL inputs, by intervals through the lookup.

The worst case gives the range of every feature for each setting of the relevant bits. Every unit of
the lookup's first layer looks at one feature (what a unit sees of others, as in a file with noise,
moves its ramp by no more than that), so the sum that enters a unit of the second layer is
a sum of piecewise linear functions of one feature each: its extremes lie at breakpoints and at the
ends of the ranges, and are exact. For a network as Lemma B.8 builds it every unit is then constant
(its point is recognized) or off, and the bound is 0 up to rounding.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.network.lookup import SIGNS, Lookup

BLOCK_ENTRIES = 2**22
MAX_ENTRIES = 2**26  # of one setting's arrays: 512 MB
RANGE_ATOL = 1e-12  # added to both ends of a range


def _sizes(lookup: Lookup) -> tuple[int, int]:
    """The entries of the arrays of one setting (the largest), and the multiplications it takes."""
    per_feature = np.count_nonzero(lookup.inner, axis=1)
    tried = (per_feature + 2) * per_feature
    n_units = 1 if lookup.middle is None else lookup.middle.shape[1]
    if lookup.single_bumps is not None:
        through = sum(each.size for each in lookup.single_bumps)
        ramps = (len(SIGNS) + 2) * per_feature
        # Passes over the units cost memory traffic, about as much as 40 multiplications each.
        work = int(ramps.sum()) + 2 * through + 40 * len(lookup.outer)
        return max(int(ramps.max()), n_units), work
    widest = (per_feature + 2) * np.maximum(per_feature, n_units)
    return int(widest.max()), int(n_units * tried.sum())


def proof_work(lookup: Lookup, n_settings: int) -> int:
    """Multiplications that `output_bounds` needs."""
    if _one_variable(lookup):
        return (2 * n_settings + len(lookup.inner_bias)) * len(lookup.inner_bias)
    return n_settings * _sizes(lookup)[1]


def proof_fits(lookup: Lookup) -> bool:
    """Whether the arrays of a single setting are small enough to be made."""
    return _one_variable(lookup) or _sizes(lookup)[0] <= MAX_ENTRIES


def _one_variable(lookup: Lookup) -> bool:
    return lookup.middle is None and len(lookup.inner) == 1


def output_bounds(
    lookup: Lookup,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    rounding: float = RANGE_ATOL,
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Bounds on the output for features between ``low`` and ``high``, shape (settings, features);
    a row for each setting if a gate writes two.

    None if a range is not known (NaN), or if the arrays of one setting are too large.

    >>> from finetti.boolean.network.lookup import make_lookup
    >>> step = make_lookup(np.array([[-1.0], [1.0]]), np.array([0.0, 1.0]), tolerance=0.5)
    >>> low, high = np.array([[0.6], [0.2]]), np.array([[1.4], [0.4]])
    >>> [bound.round(9).tolist() for bound in output_bounds(step, low, high)]
    [[1.0, 0.4], [1.0, 0.8]]
    """
    if np.isnan(low).any() or np.isnan(high).any():
        return None
    if not proof_fits(lookup):
        return None
    low, high = low - rounding, high + rounding
    if _one_variable(lookup):
        return _bounds_on_a_line(lookup, low, high)
    onward = lookup.outer[:, None] if lookup.middle is None else lookup.middle
    main = _main(lookup)
    # Ramps are 1-Lipschitz: what units see beside their main feature moves the sums by this.
    noise = np.abs(lookup.inner - main.inner) @ np.abs(onward)
    step = max(1, BLOCK_ENTRIES // _sizes(lookup)[0])
    parts = [
        _bounds_of(main, onward, noise, low[k : k + step], high[k : k + step])
        for k in range(0, len(low), step)
    ]
    least, most = (np.concatenate(each) for each in zip(*parts, strict=True))
    return least, most


def distance(
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How far what lies between two bounds may be from ``values``."""
    return np.maximum(*(np.abs(bound - values) for bound in bounds))


def _main(lookup: Lookup) -> Lookup:
    """The lookup whose units see one feature each, the one with the largest weight."""
    if not (np.count_nonzero(lookup.inner, axis=0) > 1).any():
        return lookup
    largest = np.abs(lookup.inner).argmax(axis=0)
    kept = np.arange(len(lookup.inner))[:, None] == largest
    return replace(lookup, inner=np.where(kept, lookup.inner, 0.0))


def _bounds_on_a_line(
    lookup: Lookup, low: NDArray[Any], high: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Extremes of a piecewise linear function of one variable: at the ends, and at bends between.

    Bends are run once for all settings.
    """
    slope, bias = lookup.inner[0], lookup.inner_bias
    used = slope != 0
    bends = np.unique(-bias[used] / slope[used])
    first, last = np.searchsorted(bends, low[:, 0]), np.searchsorted(bends, high[:, 0], "right")
    ends = lookup(low), lookup(high)
    least, most = np.minimum(*ends), np.maximum(*ends)
    between = last > first
    if between.any():
        # One value more, so that a range may end behind the last bend.
        values = np.append(lookup(bends[:, None]), 0.0)
        pairs = np.stack([first[between], last[between]], axis=1).ravel()
        least[between] = np.minimum(least[between], np.minimum.reduceat(values, pairs)[::2])
        most[between] = np.maximum(most[between], np.maximum.reduceat(values, pairs)[::2])
    return least, most


def _bump_extremes(
    slope: NDArray[Any], bias: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The least and the largest value of each bump between ``low`` and ``high`` (settings, 1): at
    the ends, or at one of its own four bends. Shape (settings, bumps)."""
    fours, biases = slope.reshape(-1, len(SIGNS)), bias.reshape(-1, len(SIGNS))
    inside = np.clip((-biases / fours)[None], low[..., None], high[..., None])
    ends = (np.broadcast_to(end[..., None], (*inside.shape[:2], 1)) for end in (low, high))
    tried = np.concatenate([*ends, inside], axis=2)  # (settings, bumps, 6)
    ramps = np.maximum(tried[..., None] * fours[:, None] + biases[:, None], 0)
    values = ramps @ SIGNS
    return values.min(axis=2), values.max(axis=2)


def _bounds_of(
    lookup: Lookup,
    onward: NDArray[Any],
    noise: NDArray[Any],
    low: NDArray[Any],
    high: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[Any]]:
    idle = ~lookup.inner.any(axis=0)  # units that look at nothing are constant
    constant = np.maximum(lookup.inner_bias[idle], 0) @ onward[idle]
    least, most = np.tile(constant, (len(low), 1)), np.tile(constant, (len(low), 1))
    for feature in range(lookup.inner.shape[0]):
        own = np.flatnonzero(lookup.inner[feature])
        slope, bias = lookup.inner[feature, own], lookup.inner_bias[own]
        ends = low[:, feature, None], high[:, feature, None]
        if lookup.single_bumps is not None:
            # Each unit takes one bump of this feature: extremes of bumps are extremes of units.
            through = lookup.single_bumps[feature]
            lowest, highest = _bump_extremes(slope, bias, *ends)
            least += lowest @ through
            most += highest @ through
        else:
            bends = np.unique(-bias / slope)
            tried = np.concatenate([*ends, np.clip(bends[None], *ends)], axis=1)
            hidden = np.maximum(tried[..., None] * slope + bias, 0)
            sums = hidden @ onward[own]  # (settings, tried, units)
            least += sums.min(axis=1)
            most += sums.max(axis=1)
    moved = np.maximum(np.abs(low), np.abs(high)) @ noise
    least, most = least - moved, most + moved
    if lookup.middle is None or lookup.middle_bias is None:
        return least[:, 0], most[:, 0]
    least = np.maximum(least + lookup.middle_bias, 0)
    most = np.maximum(most + lookup.middle_bias, 0)
    up, down = np.maximum(lookup.outer, 0), np.minimum(lookup.outer, 0)
    return least @ up + most @ down, most @ up + least @ down

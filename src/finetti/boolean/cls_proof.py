"""Why what [CLS] reads is right on all 2^T inputs: worst cases through the lookup as intervals.

What [CLS] attends to may depend on the bits, as with the bag. For given relevant bits the extremes
of every feature over all others are found exactly (`network.worst_case`), setting by setting.
"""

import numpy as np

from finetti.boolean.domain import value_sizes
from finetti.boolean.findings import InputBound
from finetti.boolean.functions.base import MAX_SETTING_BITS, BooleanFunction, all_bits
from finetti.boolean.network.proof import distance, output_bounds, proof_fits, proof_work
from finetti.boolean.network.tables import Tables
from finetti.boolean.network.weights import Network
from finetti.boolean.network.worst_case import feature_ranges
from finetti.boolean.trials import MAX_SETTINGS_BYTES, MAX_WORK, choose_settings, each_count
from finetti.core.keys import generator

SAME_ATOL = 1e-10  # differences between bits that count as rounding


def cls_bound(
    network: Network, function: BooleanFunction, tried: tuple[int, ...] | None
) -> InputBound:
    """Worst cases through the lookup as intervals; none is needed where all inputs were run.

    Every setting of the bits that are ``tried`` must be covered, or of those of the rule. More
    bits than settings can be listed for are covered by their number of ones, if every bit
    changes the sums by the same amount.
    """
    if tried is None:
        return InputBound(None)
    lookup, tables = network.blocks[0].lookup, network.tables
    if not proof_fits(lookup):
        return InputBound(None, "its lookup is too large to be followed by intervals")
    for indices in dict.fromkeys((tried, tuple(sorted(function.indices)))):
        widen, settings = 0.0, np.zeros((0, 0), dtype=np.uint8)
        if len(indices) <= MAX_SETTING_BITS and proof_work(lookup, 2 ** len(indices)) <= MAX_WORK:
            settings = all_bits(len(indices))
        elif len(indices) == function.sparsity and _alike(tables, function, indices):
            settings, widen = each_count(len(indices)), 10 * SAME_ATOL
        if not len(settings) or proof_work(lookup, len(settings)) > MAX_WORK:
            continue
        low, high, rounding = feature_ranges(tables, indices, settings)
        bounds = output_bounds(lookup, low, high, max(1e-12, rounding) + widen)
        if bounds is None:
            return InputBound(None, "its sums lose too many digits in float64")
        places = [indices.index(each) for each in function.indices]
        values = function.evaluate(settings[:, places])
        worst = float(distance(bounds, values).max())
        return InputBound(worst / value_sizes(function)[1])
    reason = f"2^{function.sparsity} settings of the relevant bits are too many to be followed"
    return InputBound(None, reason)


def _alike(tables: Tables, function: BooleanFunction, indices: tuple[int, ...]) -> bool:
    """Whether the rule is known by its number of ones, and the sums are, too."""
    too_long = (len(indices) + 1) * len(indices) > MAX_SETTINGS_BYTES
    if function.profile() is None or too_long:
        return False
    changes = tables.folded(tables.difference(list(indices)))
    return len(indices) * float(np.ptp(changes, axis=0).max()) <= SAME_ATOL


def cls_error(network: Network, indices: tuple[int, ...], scalar: bool) -> float:
    """The largest distance of what [CLS] reads from its points; ∞ if it is not known."""
    rng = generator("boolean certificate", network.context_length)
    settings, _ = choose_settings(len(indices), 2**MAX_SETTING_BITS, rng)
    points = network.embedding.points(settings, scalar)
    low, high, _ = feature_ranges(network.tables, indices, settings)
    error = float(np.maximum(high - points, points - low).max())
    return float("inf") if np.isnan(error) else error

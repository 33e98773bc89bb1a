"""Runs the network against its rule: on all inputs where they can be counted, else on the worst."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.check import EXACT, Check, Counterexample
from finetti.boolean.domain import refuse_values, value_sizes
from finetti.boolean.functions.base import BooleanFunction, all_bits
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.proof import output_bounds, proof_fits, proof_work
from finetti.boolean.network.tables import Tables
from finetti.boolean.network.worst_case import adversaries, known_ranges, settings_sums
from finetti.boolean.simplification import simplify
from finetti.boolean.trials import (
    ALL_SETTINGS,
    bits_to_try,
    choose_settings,
    counts_fit,
    each_count,
)
from finetti.core.keys import generator

ALL_INPUTS = 20  # bits of a context whose inputs are all run
WORK = 5 * 10**10  # multiplications that running all inputs may cost
BUDGET = 2 * 10**10  # the same for settings with outside bits, and for the proof
WORSE = 1.01  # a new counterexample must be this much worse: the first ones are the simplest
ALIKE = 1e-10  # differences between bits that count as rounding
KEPT = 12  # bits of a context whose features are kept between checks
ROUNDING_WORK = 2**31  # multiplications that the rounding of one batch may cost


@np.errstate(all="ignore")  # float32 may fail, which is reported
def verify(
    weights: HeadWeights,
    lookup: Lookup,
    function: BooleanFunction,
    seed: int = 0,
    hints: tuple[int, ...] = (),
) -> Check:
    """Compare the network with ``function``.

    Up to 20 bits: all 2^T inputs. Beyond: all 2^s settings of the relevant bits, each with the
    others all 0, all 1, random, and chosen for it by the adversary of every feature, which finds
    the worst of all 2^{T−s} (`finetti.boolean.network.worst_case`). Relevant are the bits of the
    rule, those that move a head (measured), and the ``hints``, such as the bits that a file says.
    """
    refuse_values(function)
    reduced = simplify(function)
    length = weights.context_length
    if length <= ALL_INPUTS and lookup.work << length <= WORK:
        return _verify_all(weights, lookup, reduced)
    return _verify_settings(weights, lookup, reduced, seed, hints)


@lru_cache(maxsize=4)
def _inputs(length: int) -> NDArray[np.uint8]:
    return all_bits(length)


def value_scales(
    function: BooleanFunction, values: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What errors are relative to, in float64: the largest value, so that no verdict depends on
    rounding; and in float32: the value itself, and where it is 0 the smallest that is not."""
    smallest, largest = value_sizes(function)
    return np.full(np.shape(values), largest), np.where(values == 0, smallest, np.abs(values))


@dataclass(eq=False)
class _Judge:
    """Keeps the worst error, and the worst input that is wrong by more than rounding."""

    tables: Tables
    lookup: Lookup
    smallest: float  # value of the rule
    searching: bool  # for counterexamples: in float64 only
    worst: float = 0.0
    found_error: float = 0.0
    found: Counterexample | None = None
    rounding: float = 0.0

    @cached_property
    def most_rounding(self) -> float:
        """No value moves by more when its sums are taken in another order."""
        return self.lookup.most_resolution(self.tables.largest)

    def _look_at_rounding(self, features: NDArray[Any]) -> None:
        """Measure it where the crude bound is not enough: on all rows, or some of too many."""
        if self.most_rounding <= EXACT * self.smallest:
            return
        size = len(self.lookup.inner_bias) * len(self.lookup.outer)
        step = 1 + len(features) * size // ROUNDING_WORK
        found = self.lookup.resolution(features[::step]).max(initial=0.0) / self.smallest
        self.rounding = max(self.rounding, float(found))

    def look(
        self,
        features: NDArray[Any],
        values: NDArray[Any],
        scales: NDArray[Any],
        bits_of: Callable[[int], NDArray[np.uint8]],
    ) -> None:
        """Judge a batch of inputs by their features; ``bits_of`` gives the input of a row."""
        errors = np.abs(self.lookup(features).astype(np.float64) - values) / scales
        errors = np.where(np.isnan(errors), np.inf, errors)  # of float32 that overflows
        peak = int(errors.argmax())
        self.worst = max(self.worst, float(errors[peak]))
        if not self.searching:
            return
        if self.found is None:
            self._look_at_rounding(features)
        if errors[peak] <= max(EXACT, WORSE * self.found_error):
            return
        if errors[peak] <= EXACT + self.most_rounding / scales[peak]:  # perhaps no more than that
            rows = np.flatnonzero(errors > EXACT)
            rounding = self.lookup.resolution(features[rows]) / scales[rows]
            rows = rows[errors[rows] > EXACT + rounding]
            if not len(rows):
                return
            peak = int(rows[errors[rows].argmax()])
        bits = bits_of(peak)
        output = float(self.lookup(self.tables.read(bits[None]))[0])
        if abs(output - values[peak]) / scales[peak] > EXACT:  # the input itself shows it
            self.found_error = float(errors[peak])
            self.found = Counterexample(bits, output, float(values[peak]))


def _judges(
    weights: HeadWeights, lookup: Lookup, function: BooleanFunction
) -> tuple[_Judge, _Judge]:
    smallest, _ = value_sizes(function)
    return (
        _Judge(weights.tables, lookup, smallest, True),
        _Judge(weights.tables32, lookup.single, smallest, False),
    )


def _verify_all(weights: HeadWeights, lookup: Lookup, function: BooleanFunction) -> Check:
    length = weights.context_length
    bits = _inputs(length)
    values = function(bits)
    scales = value_scales(function, values)
    double, single = judges = _judges(weights, lookup, function)
    for judge, own in zip(judges, scales, strict=True):
        tables = judge.tables
        kept = length <= KEPT
        blocks = [(0, tables.all_features)] if kept else tables.enumerate_features()
        for first, features in blocks:
            here = slice(first, first + len(features))
            judge.look(features, values[here], own[here], lambda row, at=first: bits[at + row])
    method = f"all 2^{length} = {2**length} inputs"
    worst = double.worst, single.worst
    return Check(method, 2**length, True, *worst, double.found, rounding=double.rounding)


def _verify_settings(
    weights: HeadWeights,
    lookup: Lookup,
    function: BooleanFunction,
    seed: int,
    hints: tuple[int, ...],
) -> Check:
    rng = generator("boolean verification", seed, weights.context_length)
    length = weights.context_length
    double, single = judges = _judges(weights, lookup, function)
    per_pattern = lookup.work << min(function.sparsity, ALL_SETTINGS)
    n_random = int(np.clip(min(2**24 // length, BUDGET // (8 * per_pattern)), 4, 64))
    n_patterns = n_random + 2 + 2 * lookup.inner.shape[0]
    limit = max(64, 2 * BUDGET // (lookup.work * n_patterns))
    tried = bits_to_try(weights.tables, function.indices, hints, limit)
    settings, described = choose_settings(len(tried), limit, rng)
    values = function.evaluate(settings[:, [tried.index(each) for each in function.indices]])
    scales = value_scales(function, values)
    # From no ones to only ones, so that features are met all over their range.
    rates = np.concatenate([[0.0, 1.0], np.linspace(0.0, 1.0, n_random)])[:, None]
    patterns = rng.random((n_random + 2, length), dtype=np.float32) < rates
    n_inputs = 0
    for judge, own in zip(judges, scales, strict=True):
        for features, outside in _batches(judge.tables, tried, settings, patterns):

            def bits_of(row: int, outside: Any = outside) -> NDArray[np.uint8]:
                bits = np.array(outside(row), dtype=np.uint8)
                bits[list(tried)] = settings[row]
                return bits

            judge.look(features, values, own, bits_of)
            n_inputs += len(settings) * judge.searching
    method = f"{described} × (all-0, all-1, {n_random} random, and the worst outside bits)"
    bound, reason = _error_bound(weights.tables, lookup, function, tried)
    worst = double.worst, single.worst
    outcome = double.found, bound, EXACT, reason, double.rounding
    return Check(method, n_inputs, False, *worst, *outcome)


Batch = tuple[NDArray[Any], Callable[[int], NDArray[Any]]]


def _batches(
    tables: Tables,
    tried: tuple[int, ...],
    settings: NDArray[np.uint8],
    patterns: NDArray[np.bool_],
) -> Iterator[Batch]:
    """Features of all settings, for one choice of the outside bits after the other."""
    aside = np.delete(np.arange(len(tables.zero)), list(tried))
    inside = settings_sums(tables, tried, settings)
    nothing = np.zeros_like(tables.cls)
    others = replace(tables, zero=tables.zero[aside], one=tables.one[aside], cls=nothing)
    for row, sums in zip(patterns, others.sums(patterns[:, aside]), strict=True):
        yield tables.features(inside + sums), lambda _, row=row: row
    for _, adversary in adversaries(tables, tried):
        _, used, sums = adversary.attack(inside)

        def bits(row: int, adversary: Any = adversary, used: Any = used) -> NDArray[Any]:
            whole = np.zeros(len(tables.zero), dtype=np.uint8)
            whole[aside] = adversary.bits(used[row])
            return whole

        yield tables.features(sums.astype(tables.zero.dtype)), bits


def _error_bound(
    tables: Tables, lookup: Lookup, function: BooleanFunction, tried: tuple[int, ...]
) -> tuple[float | None, str]:
    """The largest error over all 2^T inputs, relative to the largest value; or why there is none.

    Every setting of the bits that are ``tried`` must be covered, or of those of the rule. More bits
    than settings can be listed for are covered by their number of ones, if every bit changes the
    sums by the same amount.
    """
    if (np.count_nonzero(lookup.inner, axis=0) > 1).any():
        return None, "units of its lookup look at several features at once"
    if not proof_fits(lookup):
        return None, "its lookup is too large to be followed by intervals"
    reason = f"2^{function.sparsity} settings of the relevant bits are too many to be followed"
    for indices in dict.fromkeys((tried, tuple(sorted(function.indices)))):
        widen, settings = 0.0, np.zeros((0, 0), dtype=np.uint8)
        if len(indices) <= ALL_SETTINGS and proof_work(lookup, 2 ** len(indices)) <= BUDGET:
            settings = all_bits(len(indices))
        elif len(indices) == function.sparsity and _alike(tables, function, indices):
            settings, widen = each_count(len(indices)), 10 * ALIKE
        if not len(settings) or proof_work(lookup, len(settings)) > BUDGET:
            continue
        low, high, rounding = known_ranges(tables, indices, settings)
        bounds = output_bounds(lookup, low, high, max(1e-12, rounding) + widen)
        if bounds is None:
            return None, "its sums lose too many digits in float64"
        values = function.evaluate(settings[:, [indices.index(each) for each in function.indices]])
        errors = np.maximum(*(np.abs(bound - values) for bound in bounds))
        return float(errors.max() / value_sizes(function)[1]), ""
    return None, reason


def _alike(tables: Tables, function: BooleanFunction, indices: tuple[int, ...]) -> bool:
    """Whether the rule is known by its number of ones, and the sums are, too."""
    if function.profile() is None or not counts_fit(len(indices)):
        return False
    changes = tables.folded(tables.difference[list(indices)])
    return len(indices) * float(np.ptp(changes, axis=0).max()) <= ALIKE

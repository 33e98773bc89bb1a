"""Runs the network against its rule: on all inputs where they can be counted, else on the worst."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.functions.base import BooleanFunction, all_bits
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.proof import output_bounds, proof_work
from finetti.boolean.network.tables import Tables
from finetti.boolean.network.worst_case import adversaries, feature_ranges, settings_sums
from finetti.boolean.simplification import simplify
from finetti.core.keys import generator

ALL_INPUTS = 20  # bits of a context whose inputs are all run
ALL_SETTINGS = 16  # relevant bits whose settings are all run
WORK = 5 * 10**10  # multiplications that running all inputs may cost
BUDGET = 2 * 10**10  # the same for settings with outside bits, and for the proof
WORSE = 1.01  # a new counterexample must be this much worse: the first ones are the simplest
EXACT = 1e-9  # largest error in float64, relative to the largest value
ALIKE = 1e-10  # differences between bits that count as rounding
KEPT = 12  # bits of a context whose features are kept between checks


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input at which the network is wrong.

    Args:
        bits: the input, shape (T,).
        output: what the network says.
        value: what the rule says.
    """

    bits: NDArray[np.uint8]
    output: float
    value: float

    @property
    def ones(self) -> tuple[int, ...]:
        """Where the input is 1."""
        return tuple(map(int, np.flatnonzero(self.bits)))

    def __str__(self) -> str:
        ones = ", ".join(f"x{i}" for i in self.ones[:12])
        more = f" and {len(self.ones) - 12} more" if len(self.ones) > 12 else ""
        where = f"{ones}{more} = 1, the rest 0" if self.ones else "all bits 0"
        return f"at {where}: the network says {self.output:.6g}, the rule {self.value:.6g}"


@dataclass(frozen=True, eq=False)
class Check:
    """What a verification ran and found.

    Args:
        method: what was run, in words.
        n_inputs: how many inputs.
        complete: whether these are all 2^T.
        error64, error32: the largest error in float64 and float32, relative to the largest value
            of the rule.
        counterexample: the worst input, if the network is wrong in float64.
        error_bound: the error on ALL 2^T inputs is at most this (`network.proof`); None where that
            was not computed, because there are too many settings or the lookup has another form.
    """

    method: str
    n_inputs: int
    complete: bool
    error64: float
    error32: float
    counterexample: Counterexample | None
    error_bound: float | None = None

    @property
    def exact(self) -> bool:
        """Whether no input was wrong."""
        return self.counterexample is None

    @property
    def proven(self) -> bool:
        """Whether the network is exact on all 2^T inputs: all were run, or the bound says so."""
        bounded = self.error_bound is not None and self.error_bound <= EXACT
        return self.exact and (self.complete or bounded)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no infinity."""
        wrong = self.counterexample
        return {
            "method": self.method,
            "n_inputs": self.n_inputs,
            "complete": self.complete,
            "exact": self.exact,
            "proven": self.proven,
            "error_float64": _finite(self.error64),
            "error_float32": _finite(self.error32),
            "error_bound": None if self.error_bound is None else _finite(self.error_bound),
            "counterexample": None
            if wrong is None
            else {"ones": list(wrong.ones), "network": _finite(wrong.output), "rule": wrong.value},
        }


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def verify(weights: HeadWeights, lookup: Lookup, function: BooleanFunction, seed: int = 0) -> Check:
    """Compare the network with ``function``.

    Up to 20 bits: all 2^T inputs. Beyond: all 2^s settings of the relevant bits, each with the
    others all 0, all 1, random, and chosen for it by the adversary of every feature, which finds
    the worst of all 2^{T−s} (`finetti.boolean.network.worst_case`).
    """
    reduced = simplify(function)
    length = weights.context_length
    if length <= ALL_INPUTS and lookup.work << length <= WORK:
        return _verify_all(weights, lookup, reduced)
    return _verify_settings(weights, lookup, reduced, seed)


@lru_cache(maxsize=4)
def _inputs(length: int) -> NDArray[np.uint8]:
    return all_bits(length)


def _errors(outputs: NDArray[Any], values: NDArray[Any], scale: float) -> NDArray[np.float64]:
    """Relative errors; NaN, which is wrong too, counts as infinite."""
    errors = np.abs(outputs.astype(np.float64) - values) / scale
    return np.where(np.isnan(errors), np.inf, errors)


def _scale(function: BooleanFunction) -> float:
    """The largest value of the rule; 1 for the rule that is always 0."""
    profile = function.profile()
    return float(np.abs(function.table() if profile is None else profile).max()) or 1.0


def _all_blocks(tables: Tables, length: int) -> Iterator[tuple[int, NDArray[Any]]]:
    if length <= KEPT:
        yield 0, tables.all_features
        return
    for first, sums in tables.enumerate_sums():
        yield first, tables.features(sums)


def _verify_all(weights: HeadWeights, lookup: Lookup, function: BooleanFunction) -> Check:
    length, scale = weights.context_length, _scale(function)
    bits = _inputs(length)
    values = function(bits)
    worst, found = [0.0, 0.0], None
    for place, (tables, network) in enumerate(
        ((weights.tables, lookup), (weights.tables32, lookup.single))
    ):
        for first, features in _all_blocks(tables, length):
            outputs = network(features)
            errors = _errors(outputs, values[first : first + len(outputs)], scale)
            peak = int(errors.argmax())
            worse = errors[peak] > WORSE * worst[place]
            worst[place] = max(worst[place], float(errors[peak]))
            if place == 0 and worse and worst[0] > EXACT:
                row = first + peak
                found = Counterexample(bits[row], float(outputs[peak]), float(values[row]))
    method = f"all 2^{length} = {2**length} inputs"
    return Check(method, 2**length, True, worst[0], worst[1], found)


def each_count(n_bits: int) -> NDArray[np.uint8]:
    """One setting per number of ones, 0 to ``n_bits``: the first bits are 1."""
    return (np.arange(n_bits)[None] < np.arange(n_bits + 1)[:, None]).astype(np.uint8)


def choose_settings(
    function: BooleanFunction, limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], str]:
    """Settings of the relevant bits: all 2^s, or some, with every number of ones among them."""
    sparsity = function.sparsity
    if sparsity <= ALL_SETTINGS and 2**sparsity <= limit:
        return all_bits(sparsity), f"all 2^{sparsity} settings of the relevant bits"
    first = each_count(sparsity)
    n_some = int(np.clip(limit, 64, 512))
    some = rng.random((n_some, sparsity)) < rng.random((n_some, 1))  # few ones, many, all between
    settings = np.concatenate([first, first[:, ::-1], rng.permuted(first, axis=1), some])
    text = f"{len(settings)} of 2^{sparsity} settings of the relevant bits, every number of ones"
    return settings.astype(np.uint8), text


def _verify_settings(
    weights: HeadWeights, lookup: Lookup, function: BooleanFunction, seed: int
) -> Check:
    rng = generator("boolean verification", seed, weights.context_length)
    length, indices, scale = weights.context_length, function.indices, _scale(function)
    per_pattern = lookup.work << min(function.sparsity, ALL_SETTINGS)
    n_random = int(np.clip(min(2**24 // length, BUDGET // (8 * per_pattern)), 4, 64))
    n_patterns = n_random + 2 + 2 * lookup.inner.shape[0]
    limit = max(64, 2 * BUDGET // (lookup.work * n_patterns))
    settings, described = choose_settings(function, limit, rng)
    values = function.evaluate(settings)
    aside = np.delete(np.arange(length), list(indices))
    # From no ones to only ones, so that features are met all over their range.
    rates = np.concatenate([[0.0, 1.0], np.linspace(0.0, 1.0, n_random)])[:, None]
    patterns = rng.random((n_random + 2, len(aside)), dtype=np.float32) < rates
    whole = np.zeros((len(patterns), length), dtype=np.uint8)
    whole[:, aside] = patterns
    worst, found, n_inputs = [0.0, 0.0], None, 0
    for place, (tables, network) in enumerate(
        ((weights.tables, lookup), (weights.tables32, lookup.single))
    ):
        inside = settings_sums(tables, indices, settings)
        attacks = adversaries(tables, indices)
        n_inputs = len(settings) * (len(patterns) + len(attacks))
        batches: Iterator[tuple[NDArray[Any], Any]] = (
            (inside + (row - tables.base), whole[k]) for k, row in enumerate(tables.sums(whole))
        )
        for batch, source in _chain(batches, inside, attacks):
            outputs = network(tables.features(batch))
            errors = _errors(outputs, values, scale)
            peak = int(errors.argmax())
            worse = errors[peak] > WORSE * worst[place]
            worst[place] = max(worst[place], float(errors[peak]))
            if place == 0 and worse and worst[0] > EXACT:
                found = (peak, source, float(outputs[peak]), float(values[peak]))
    counterexample = None
    if found is not None:
        peak, source, output, value = found
        counterexample = Counterexample(
            _whole_input(source, aside, length, peak, indices, settings), output, value
        )
    method = f"{described} × (all-0, all-1, {n_random} random, and the worst outside bits)"
    bound = _error_bound(weights, lookup, function)
    return Check(method, n_inputs, False, worst[0], worst[1], counterexample, bound)


def _error_bound(weights: HeadWeights, lookup: Lookup, function: BooleanFunction) -> float | None:
    """The largest error over all 2^T inputs, if every setting is covered and the work is bearable.

    More bits than settings can be listed for are covered by their number of ones, if every bit
    changes the sums by the same amount.
    """
    indices, sparsity, widen = function.indices, function.sparsity, 0.0
    if sparsity <= ALL_SETTINGS:
        if proof_work(lookup, 2**sparsity) > BUDGET:
            return None
        settings = all_bits(sparsity)
    else:
        changes = weights.tables.folded(weights.tables.difference[list(indices)])
        spread = sparsity * float(np.ptp(changes, axis=0).max())
        if function.profile() is None or not spread <= ALIKE:
            return None
        settings, widen = each_count(sparsity), 10 * ALIKE
    low, high = feature_ranges(weights.tables, indices, settings)
    bounds = output_bounds(lookup, low - widen, high + widen)
    if bounds is None:
        return None
    errors = [np.abs(bound - function.evaluate(settings)) for bound in bounds]
    return float(np.maximum(*errors).max()) / _scale(function)


def _chain(batches: Any, inside: NDArray[Any], attacks: Any) -> Iterator[tuple[NDArray[Any], Any]]:
    yield from batches
    for _, adversary in attacks:
        levels, changed = adversary.attack(inside)
        yield changed, (adversary, levels)


def _whole_input(
    source: Any,
    aside: NDArray[np.int64],
    length: int,
    peak: int,
    indices: tuple[int, ...],
    settings: NDArray[np.uint8],
) -> NDArray[np.uint8]:
    """The bits of a found input: those of I, and the outside bits of its pattern or adversary."""
    bits = np.zeros(length, dtype=np.uint8)
    if isinstance(source, tuple):
        adversary, levels = source
        bits[aside] = adversary.bits(levels[peak])
    else:
        bits[:] = source
    bits[list(indices)] = settings[peak]
    return bits

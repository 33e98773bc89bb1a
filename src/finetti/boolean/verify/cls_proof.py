"""Why a network at [CLS] is right on all 2^T inputs.

[CLS] is followed case by case: through all settings of the bits that it should read, or, where they
can be exchanged, all numbers of ones. In each case what it reads lies between two extremes over all
other bits. What it attends to may depend on the bits, as with the bag: its extremes are found
exactly (`adversary`). Intervals through the lookup (`interval_bound`) then bound what it says.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.certificate import NormBound, ReaderRow
from finetti.boolean.embeddings.position_vectors import Indices
from finetti.boolean.explanation import Reading
from finetti.boolean.language.families import Symmetric
from finetti.boolean.language.rule import (
    MAX_SETTING_BITS,
    BooleanFunction,
    all_bits,
    all_values,
    value_sizes,
)
from finetti.boolean.language.simplify import simplify
from finetti.boolean.network.cls_network import ClsNetwork, ClsTables
from finetti.boolean.verify.adversary import adversaries, feature_ranges
from finetti.boolean.verify.family_proof import (
    MAX_SETTINGS_BYTES,
    MAX_WORK,
    N_RANDOM,
    Batch,
    ChosenInputs,
    InputBound,
    all_settings,
    mass_and_lead,
    reader_row,
    setting_batches,
)
from finetti.boolean.verify.interval_bound import distance, output_bounds, proof_fits, proof_work
from finetti.boolean.verify.norm_bounds import head_covering, head_norm_rows, lookup_norms
from finetti.bounds.value import BoundValue
from finetti.core.errors import UnsupportedError
from finetti.core.linalg.norms import frobenius
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.random_keys import generator
from finetti.display.formatting import plural

SAME_ATOL = 1e-10  # differences between bits that count as rounding
MIN_MOVING_SHARE = 0.05  # of what the strongest bit does: less moves no head
MAX_MOVING_BITS = 14  # bits that are tried together because they move a head


class ClsVerifier:
    """Verifies networks whose only reader is [CLS]."""

    def __init__(self, network: ClsNetwork, text: str = ""):
        self.network: ClsNetwork = network
        self.text = text  # the rule as it was written

    def comparable(self, function: BooleanFunction) -> BooleanFunction:
        """A rule on the bits that matter."""
        return function if function is self.network.rule else simplify(function)

    @property
    def work_per_input(self) -> int:
        """Multiplications that one input takes after the sums over its bits."""
        return self.network.lookup.work

    def choose_inputs(self, function: BooleanFunction) -> ChosenInputs:
        """Settings of the bits of the rule, of those that move a head (measured) and of those that
        the network was built for, each with the others all 0, all 1, random, and chosen for it by
        the adversary of every feature, which finds the worst of all (`adversary`)."""
        network, lookup, indices = self.network, self.network.lookup, function.indices
        length = network.context_length
        rng = generator("boolean verification", 0, length)
        per_pattern = lookup.work << min(len(indices), MAX_SETTING_BITS)
        n_random = int(np.clip(min(2**24 // length, MAX_WORK // (8 * per_pattern)), 4, N_RANDOM))
        n_patterns = n_random + 2 + 2 * lookup.inner.shape[0]
        limit = max(64, 2 * MAX_WORK // (lookup.work * n_patterns))
        tried = bits_to_try(network.float64, indices, network.rule.indices, limit)
        settings, described = choose_settings(len(tried), limit, rng)
        # From no ones to only ones, so that features are met all over their range.
        rates = np.concatenate([[0.0, 1.0], np.linspace(0.0, 1.0, n_random)])[:, None]
        patterns = rng.random((n_random + 2, length), dtype=np.float32) < rates
        method = f"{described} × (all-0, all-1, {n_random} random, and the worst outside bits)"
        return ChosenInputs(tried, settings, patterns, method)

    def batches(self, tables: Any, inputs: ChosenInputs) -> Iterator[Batch]:
        """Sums of all settings, for each choice of the other bits and for the worst, which the
        adversary of every feature chooses for each setting."""
        yield from setting_batches(tables, inputs)
        inside = tables.settings_sums(inputs.tried, inputs.settings)
        for _, adversary in adversaries(tables, inputs.tried):
            _, used, sums = adversary.maximize_ratio(inside)

            def bits(row: int, adversary: Any = adversary, used: Any = used) -> NDArray[Any]:
                whole = np.zeros(tables.length, dtype=np.uint8)
                whole[adversary.aside] = adversary.bits(used[row])
                return whole

            yield sums.astype(tables.zero.dtype), bits

    def n_batches(self, tables: Any, inputs: ChosenInputs) -> int:
        """How many of them there are."""
        return len(inputs.patterns) + len(adversaries(tables, inputs.tried))

    def bound_all_inputs(
        self, function: BooleanFunction, tried: tuple[int, ...] | None
    ) -> InputBound:
        """The largest error of [CLS]; none is needed where all inputs were run.

        Every setting of the bits that are ``tried`` must be covered, or of those of the rule. More
        bits than settings can be listed for are covered by their number of ones, if every bit
        changes the sums by the same amount.
        """
        if tried is None:
            return InputBound(None)
        lookup, tables = self.network.lookup, self.network.float64
        if not proof_fits(lookup):
            return InputBound(None, "its lookup is too large to be followed by intervals")
        for indices in dict.fromkeys((tried, tuple(sorted(function.indices)))):
            count, widen, settings = len(indices), 0.0, np.zeros((0, 0), dtype=np.uint8)
            if count <= MAX_SETTING_BITS and proof_work(lookup, 2**count) <= MAX_WORK:
                settings = all_bits(count)
            elif count == function.sparsity and _alike(tables, function, indices):
                settings, widen = each_count(count), 10 * SAME_ATOL
            if not len(settings) or proof_work(lookup, len(settings)) > MAX_WORK:
                continue
            low, high, rounding = feature_ranges(tables, indices, settings)
            bounds = output_bounds(lookup, low, high, largest_of(1e-12, rounding) + widen)
            if bounds is None:
                return InputBound(None, "its sums lose too many digits in float64")
            places = [indices.index(each) for each in function.indices]
            values = function.evaluate(settings[:, places])
            worst = float(distance(bounds, values).max())
            return InputBound(worst / value_sizes(function)[1])
        reason = f"2^{function.sparsity} settings of the relevant bits are too many to be followed"
        return InputBound(None, reason)

    @property
    def _scalar(self) -> bool:
        return isinstance(self.network.rule, Symmetric)

    @property
    def route(self) -> str:
        """The lemmas that built the network."""
        rule, n_features = self.network.rule, self.network.heads.output.shape[2]
        if n_features != (1 if self._scalar else rule.sparsity):
            raise UnsupportedError(
                f"A network with {plural(n_features, 'feature')} was not built for a rule of "
                f"{plural(rule.sparsity, 'bit')}, so no lemma certifies it. `verify` compares any "
                "network with any rule."
            )
        form, kind = ("B.5", "symmetric") if self._scalar else ("B.6", "general")
        lemma = self.network.embedding.lemma
        return f"Lemmas {lemma} and {form} ({kind} rule), lookup of Lemma B.8"

    @property
    def readers(self) -> str:
        """[CLS] alone."""
        return "[CLS]"

    @cached_property
    def places(self) -> list[list[int]]:
        """The token positions that each head is built to attend to: all relevant bits, or the one
        that a head with a key of its own looks at."""
        network, n_heads = self.network, len(self.network.heads.query)
        relevant = list(network.rule.indices)
        if not relevant or not network.embedding.own_keys(self._scalar):
            return [relevant] * n_heads
        seen = network.float64.one[relevant, :n_heads]
        return [[relevant[int(which)]] for which in seen.argmax(axis=0)]

    def _attention(self, head: int, places: list[int]) -> tuple[float, float]:
        """The least attention of a head on what it should read, and the least lead of scores."""
        if not places:
            return 1.0, 0.0
        tables = self.network.float64
        own = tables.zero[:, head], tables.one[:, head], tables.always[head : head + 1]
        return mass_and_lead(*self.network.embedding.worst_attention(*own, places))

    @property
    def reader_rows(self) -> tuple[ReaderRow, ...]:
        """Why [CLS] is right, as was measured."""
        rule, embedding = self.network.rule, self.network.embedding
        rng = generator("boolean certificate", self.network.context_length)
        settings, _ = choose_settings(rule.sparsity, 2**MAX_SETTING_BITS, rng)
        points = embedding.points(settings, self._scalar)
        low, high, _ = feature_ranges(self.network.float64, rule.indices, settings)
        error = float(np.maximum(high - points, points - low).max())
        sizes = [len(places) for places in self.places]
        errors = np.full(len(sizes), np.inf if np.isnan(error) else error)
        known = {
            "text": self.text,
            "level": 1,
            "sparsity": rule.sparsity,
            "score_scale": float(np.abs(self.network.heads.query).max()),
        }
        seen = [self._attention(head, places) for head, places in enumerate(self.places)]
        return (reader_row(embedding, sizes, errors, seen, **known),)

    @property
    def _tolerance(self) -> float:
        """δ of the lookup."""
        return self.network.embedding.tolerance(max(map(len, self.places)), True)

    def norms(self, margin: float) -> tuple[NormBound, ...]:
        """The norms of the heads and of the lookup beside their bounds."""
        network, rule, embedding = self.network, self.network.rule, self.network.embedding
        limits = embedding.bounds(network.relevant, margin)
        said = f"Lemma {embedding.lemma}" + ", measured gap" * (not limits.prior)
        stated = "" if margin == 1 else f", margin {margin:g} as stated"
        sources = (said + stated, said, said, said)
        found = head_norm_rows("", [frobenius(each) for each in network.heads], limits, sources)
        extra = embedding.position_bounds(network.positions, tuple(sorted(rule.indices)))
        found += [NormBound(*row, said) for row in extra]
        ends = np.repeat(np.array([[0], [1]], dtype=np.uint8), rule.sparsity, axis=1)
        points = embedding.points(ends, self._scalar)  # the largest is there for all 0 or all 1
        radius, largest = float(np.abs(points).max()), float(np.abs(all_values(rule)).max())
        return (*found, *lookup_norms(network.lookup, radius, self._tolerance, largest))

    def capacities(self) -> tuple[BoundValue, ...]:
        """Of the heads (Corollary 4.4, or Lemma A.12 for several)."""
        query, key, value, output = self.network.heads
        # W_QK = W_Q W_Kᵀ is d × d, and has rank 1: rows of W_Q times ‖W_K‖.
        rows = np.abs(query).max(axis=(1, 2)) * np.linalg.norm(key, axis=(1, 2))
        found = head_covering(
            self.network,
            (rows, value, output),
            self._tolerance,
            query_norm=1.0,
            input_norm=self.network.embedding.token_norm,
            class_token=True,
        )
        return (found,)

    def readings(
        self, bits: NDArray[np.uint8]
    ) -> tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]:
        """What [CLS] reads on one input."""
        tables = self.network.float64
        sums, attention = tables.sums(bits[None]), tables.attention(bits)
        seen, value = tables.features(sums)[0].tolist(), float(tables.outputs(sums)[0])
        own = len(seen) == len(attention)  # a feature of its own for every head
        found = tuple(
            Reading(
                "[CLS]",
                self.text,
                head,
                tuple(places),
                attention[head],
                tuple(seen[head : head + 1] if own else seen),
                value,
            )
            for head, places in enumerate(self.places)
        )
        return (found,), {"[CLS]": value}


def each_count(n_bits: int, counts: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
    """One setting per number of ones, 0 to ``n_bits`` or those given: the first bits are 1."""
    counts = np.arange(n_bits + 1) if counts is None else counts
    return (np.arange(n_bits)[None] < counts[:, None]).astype(np.uint8)


def choose_settings(
    n_bits: int, limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], str]:
    """Settings of the relevant bits: all 2^s, or some, with every number of ones among them."""
    every = all_settings(n_bits, limit)
    if every is not None:
        return every
    n_counts = min(n_bits + 1, max(2, MAX_SETTINGS_BYTES // n_bits))
    counts = np.unique(np.linspace(0, n_bits, n_counts).astype(np.int64))
    first = each_count(n_bits, counts)
    n_some = int(np.clip(min(limit, MAX_SETTINGS_BYTES // n_bits), 64, 512))
    some = rng.random((n_some, n_bits)) < rng.random((n_some, 1))  # few ones, many, all between
    settings = np.concatenate([first, first[:, ::-1], rng.permuted(first, axis=1), some])
    which = "every number" if len(counts) == n_bits + 1 else f"{len(counts)} numbers"
    text = f"{len(settings)} of 2^{n_bits} settings of the relevant bits, {which} of ones"
    return settings.astype(np.uint8), text


def influences(tables: ClsTables) -> NDArray[np.float64]:
    """By how much each bit moves a feature, to first order, from a string of half ones."""
    heads = tables.n_heads
    total = tables.always[:heads] + (tables.zero + tables.one)[:, :heads].sum(axis=0) / 2
    changes = np.abs(tables.folded(tables.difference()))
    weights = changes[:, :heads] * tables.largest
    moved = changes[:, heads:].reshape(len(changes), heads, -1).max(axis=2)
    return (np.maximum(weights, moved) / total).max(axis=1)


def bits_to_try(tables: ClsTables, indices: Indices, hints: Iterable[int], limit: int) -> Indices:
    """The bits of the rule, the hints, and the bits that move a head most, while there is room.

    What a file says of itself is a hint and nothing more; what its numbers do is measured.
    """
    named = list(dict.fromkeys([*indices, *(each for each in hints if 0 <= each < tables.length)]))
    if len(named) <= MAX_MOVING_BITS:
        room = min(MAX_MOVING_BITS, max(0, limit.bit_length() - 1)) - len(named)
    else:
        room = 0 if len(named) <= MAX_SETTING_BITS else MAX_MOVING_BITS
    if room > 0:
        moved = influences(tables)
        least = MIN_MOVING_SHARE * moved.max(initial=0.0)
        moved[named] = 0.0
        strongest = np.argsort(-moved, kind="stable")[:room]
        named += [int(each) for each in strongest if moved[each] > least]
    return tuple(sorted(named))


def _alike(tables: ClsTables, function: BooleanFunction, indices: Indices) -> bool:
    """Whether the rule is known by its number of ones, and the sums are, too."""
    too_long = (len(indices) + 1) * len(indices) > MAX_SETTINGS_BYTES
    if function.profile() is None or too_long:
        return False
    changes = tables.folded(tables.difference(list(indices)))
    return len(indices) * float(np.ptp(changes, axis=0).max()) <= SAME_ATOL

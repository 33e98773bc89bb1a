"""A rule at [CLS]: one block, whose one reader is [CLS]."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.capacity import capacity
from finetti.boolean.certificate import ReaderProof
from finetti.boolean.compiled import Compiled
from finetti.boolean.domain import value_sizes
from finetti.boolean.embeddings.base import Embedding
from finetti.boolean.explanation import Reading
from finetti.boolean.functions.base import BooleanFunction, all_bits
from finetti.boolean.functions.symmetric import Symmetric
from finetti.boolean.functions.truth_table import TruthTable
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.positions import BitPositions
from finetti.boolean.network.proof import output_bounds, proof_fits, proof_work
from finetti.boolean.network.runner import Batch, Runner, Trials
from finetti.boolean.network.tables import Tables
from finetti.boolean.network.worst_case import (
    adversaries,
    feature_ranges,
    known_ranges,
    settings_sums,
)
from finetti.boolean.norms import NormBound, head_norm_bounds, lookup_norms
from finetti.boolean.routes import is_scalar_route, lookup_values
from finetti.boolean.simplification import simplify
from finetti.boolean.trials import (
    MAX_SETTING_BITS,
    bits_to_try,
    choose_settings,
    counts_fit,
    each_count,
)
from finetti.boolean.verification import InputBound
from finetti.boolean.words import counted
from finetti.bounds.value import BoundValue
from finetti.core.errors import UnsupportedError
from finetti.core.keys import generator

MAX_WORK = 2 * 10**10  # multiplications of settings with outside bits, and of the proof
MAX_ROUNDING_WORK = 2**31  # multiplications that the rounding of one batch may cost
MAX_KEPT_BITS = 12  # of a context whose features are kept between checks
SAME_ATOL = 1e-10  # differences between bits that count as rounding


@dataclass(frozen=True, eq=False)
class LayerRunner(Runner):
    """States are features: what [CLS] reads, before the lookup."""

    tables: Tables
    lookup: Lookup

    def most_rounding(self) -> float:
        """As if every unit of the lookup were on."""
        return self.lookup.most_resolution(self.tables.largest)

    def states(self, rows: Any) -> NDArray[Any]:
        """Features of every row."""
        dense = isinstance(rows, np.ndarray)
        return self.tables.read(rows) if dense else self.tables.read_sparse(rows)

    def all_states(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Features of all inputs, kept where they are few."""
        if len(self.tables.zero) <= MAX_KEPT_BITS:
            return iter([(0, self.tables.all_features)])
        return self.tables.enumerate_features()

    def batches(self, trials: Trials) -> Iterator[Batch]:
        """The patterns outside, and what the adversary of every feature makes of each setting."""
        tables, tried = self.tables, trials.tried
        aside = np.delete(np.arange(len(tables.zero)), list(tried))
        inside = settings_sums(tables, tried, trials.settings)
        nothing = np.zeros_like(tables.cls)
        others = replace(tables, zero=tables.zero[aside], one=tables.one[aside], cls=nothing)
        for row, sums in zip(trials.patterns, others.sums(trials.patterns[:, aside]), strict=True):
            yield tables.features(inside + sums), lambda _, row=row: row
        for _, adversary in adversaries(tables, tried):
            _, used, sums = adversary.attack(inside)

            def bits(row: int, adversary: Any = adversary, used: Any = used) -> NDArray[Any]:
                whole = np.zeros(len(tables.zero), dtype=np.uint8)
                whole[aside] = adversary.bits(used[row])
                return whole

            yield tables.features(sums.astype(tables.zero.dtype)), bits

    def outputs(self, states: NDArray[Any]) -> NDArray[Any]:
        """The lookup."""
        return self.lookup(states)

    def rounding(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Of the lookup."""
        return self.lookup.resolution(states)

    def largest_rounding(self, states: NDArray[Any]) -> float:
        """The largest of all rows, or of some of too many."""
        size = len(self.lookup.inner_bias) * len(self.lookup.outer)
        step = 1 + len(states) * size // MAX_ROUNDING_WORK
        return float(self.rounding(states[::step]).max(initial=0.0))


@dataclass(frozen=True, eq=False, repr=False)
class LayerNetwork(Compiled):
    """One layer that [CLS] reads: what `compile` makes.

    Args:
        function: the rule.
        head: the weights below the lookup.
        lookup: the weights of the lookup.
        settings: how it was made: basis, width, coherence, margin, seed.
    """

    function: BooleanFunction
    head: HeadWeights
    lookup: Lookup
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def embedding(self) -> Embedding:
        """How bits become tokens."""
        return self.head.embedding

    @property
    def positions(self) -> BitPositions:
        """Of the bits."""
        return self.head.positions

    @property
    def heads_per_block(self) -> tuple[int, ...]:
        """H of the one block."""
        return (self.head.n_heads,)

    @property
    def readers(self) -> str:
        """Which token reads."""
        return "[CLS]"

    @property
    def width(self) -> int:
        """d."""
        return self.head.width

    @property
    def n_parameters(self) -> int:
        """Numbers in all matrices, positions written out."""
        return self.head.n_parameters + sum(each.size for each in self.lookup.arrays.values())

    @property
    def work(self) -> int:
        """Multiplications for one input."""
        return self.lookup.work

    def runner(self, dtype: Any) -> LayerRunner:
        """Through tables of 2T + 1 rows."""
        if dtype == np.float32:
            return LayerRunner(self.head.tables32, self.lookup.single)
        return LayerRunner(self.head.tables, self.lookup)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every matrix but the positions, by its name in a file."""
        head = self.head
        heads = {name: getattr(head, name) for name in ("query", "key", "value", "output")}
        return {
            "embedding.tokens": head.tokens,
            "embedding.cls": head.cls,
            **{f"blocks.0.{name}": array for name, array in (heads | self.lookup.arrays).items()},
        }

    def written(self) -> dict[str, NDArray[Any]]:
        """All arrays, and the positions."""
        return {"embedding.positions": self.positions.dense(), **self.arrays}

    def comparable(self, function: BooleanFunction) -> Symmetric | TruthTable:
        """The rule on the bits that matter."""
        return simplify(function)

    def trials(self, function: BooleanFunction) -> Trials:
        """Settings of the bits of the rule, of those that move a head (measured) and of those that
        the network was built for, each with the others all 0, all 1, random, and chosen for it by
        the adversary of every feature, which finds the worst of all (`network.worst_case`)."""
        length = self.context_length
        rng = generator("boolean verification", 0, length)
        per_pattern = self.work << min(function.sparsity, MAX_SETTING_BITS)
        n_random = int(np.clip(min(2**24 // length, MAX_WORK // (8 * per_pattern)), 4, 64))
        n_patterns = n_random + 2 + 2 * self.lookup.inner.shape[0]
        limit = max(64, 2 * MAX_WORK // (self.work * n_patterns))
        tried = bits_to_try(self.head.tables, function.indices, self.function.indices, limit)
        settings, described = choose_settings(len(tried), limit, rng)
        # From no ones to only ones, so that features are met all over their range.
        rates = np.concatenate([[0.0, 1.0], np.linspace(0.0, 1.0, n_random)])[:, None]
        patterns = rng.random((n_random + 2, length), dtype=np.float32) < rates
        method = f"{described} × (all-0, all-1, {n_random} random, and the worst outside bits)"
        return Trials(tried, settings, patterns, method)

    def bound(self, function: BooleanFunction, tried: tuple[int, ...] | None) -> InputBound:
        """Worst cases through the lookup as intervals; none is needed where all inputs were run.

        Every setting of the bits that are ``tried`` must be covered, or of those of the rule. More
        bits than settings can be listed for are covered by their number of ones, if every bit
        changes the sums by the same amount.
        """
        if tried is None:
            return InputBound(None)
        lookup, tables = self.lookup, self.head.tables
        if not proof_fits(lookup):
            return InputBound(None, "its lookup is too large to be followed by intervals")
        for indices in dict.fromkeys((tried, tuple(sorted(function.indices)))):
            widen, settings = 0.0, np.zeros((0, 0), dtype=np.uint8)
            if (
                len(indices) <= MAX_SETTING_BITS
                and proof_work(lookup, 2 ** len(indices)) <= MAX_WORK
            ):
                settings = all_bits(len(indices))
            elif len(indices) == function.sparsity and self._alike(function, indices):
                settings, widen = each_count(len(indices)), 10 * SAME_ATOL
            if not len(settings) or proof_work(lookup, len(settings)) > MAX_WORK:
                continue
            low, high, rounding = known_ranges(tables, indices, settings)
            bounds = output_bounds(lookup, low, high, max(1e-12, rounding) + widen)
            if bounds is None:
                return InputBound(None, "its sums lose too many digits in float64")
            places = [indices.index(each) for each in function.indices]
            values = function.evaluate(settings[:, places])
            errors = np.maximum(*(np.abs(bound - values) for bound in bounds))
            return InputBound(float(errors.max() / value_sizes(function)[1]))
        reason = f"2^{function.sparsity} settings of the relevant bits are too many to be followed"
        return InputBound(None, reason)

    def _alike(self, function: BooleanFunction, indices: tuple[int, ...]) -> bool:
        """Whether the rule is known by its number of ones, and the sums are, too."""
        if function.profile() is None or not counts_fit(len(indices)):
            return False
        tables = self.head.tables
        changes = tables.folded(tables.difference[list(indices)])
        return len(indices) * float(np.ptp(changes, axis=0).max()) <= SAME_ATOL

    @cached_property
    def _reduced(self) -> Symmetric | TruthTable:
        function, n_features = simplify(self.function), self.head.output.shape[2]
        if n_features != (1 if isinstance(function, Symmetric) else function.sparsity):
            raise UnsupportedError(
                f"A network with {counted(n_features, 'feature')} was not built for a rule of "
                f"{counted(function.sparsity, 'bit')}, so no lemma certifies it. `verify` compares "
                "any network with any rule."
            )
        return function

    @property
    def route(self) -> str:
        """The lemmas that built it."""
        scalar = isinstance(self._reduced, Symmetric)
        form, kind = ("B.5", "symmetric") if scalar else ("B.6", "general")
        return f"Lemmas {self.embedding.lemma} and {form} ({kind} rule), lookup of Lemma B.8"

    def proofs(self) -> tuple[ReaderProof, ...]:
        """What [CLS] reads, over all inputs."""
        function, head = self._reduced, self.head
        sparsity, scalar = function.sparsity, isinstance(function, Symmetric)
        rng = generator("boolean certificate", head.context_length)
        settings, _ = choose_settings(sparsity, 2**MAX_SETTING_BITS, rng)
        points = self.embedding.points(settings, scalar)
        low, high = feature_ranges(head.tables, function.indices, settings)
        error = float(np.maximum(high - points, points - low).max())
        mass, lead = self._attention(function.indices, scalar)
        return (
            ReaderProof(
                text=self.rule,
                level=1,
                sparsity=sparsity,
                separation=self.embedding.separation(sparsity, scalar),
                tolerance=self.embedding.tolerance(sparsity, scalar),
                head_error=math.inf if math.isnan(error) else error,  # unknown: no margin
                score_scale=float(np.abs(head.query).max()),
                score_gap=lead,
                attention_mass=mass,
            ),
        )

    def _attention(self, indices: tuple[int, ...], scalar: bool) -> tuple[float, float]:
        """The least attention on what is meant to be read, and the least lead of its scores."""
        tables, mass, lead = self.head.tables, 1.0, math.inf
        if not indices:
            return 1.0, 0.0
        for each in range(self.head.n_heads):
            columns = tables.zero[:, each], tables.one[:, each], float(tables.cls[each])
            meant, least, others = self.embedding.reading(*columns, indices, scalar)
            mass = min(mass, meant / (meant + float(others.sum())) if meant > 0 else 0.0)
            top = float(others.max(initial=0.0))
            lead = min(lead, math.log(least / top) if top > 0 and least > 0 else math.inf)
        return mass, lead

    def norms(self, margin: float) -> tuple[NormBound, ...]:
        """Of the heads and of the lookup."""
        function = self._reduced
        sparsity, scalar = function.sparsity, isinstance(function, Symmetric)
        ends = np.repeat(np.array([[0], [1]], dtype=np.uint8), sparsity, axis=1)
        radius = float(np.abs(self.embedding.points(ends, scalar)).max())  # is there for all 0 or 1
        tolerance = self.embedding.tolerance(sparsity, scalar)
        largest = float(np.abs(lookup_values(function)).max())
        heads = head_norm_bounds(self.head, function.indices, scalar, margin)
        return heads + lookup_norms(self.lookup, radius, tolerance, largest)

    def capacities(self) -> tuple[BoundValue, ...]:
        """Corollary 4.4, or Lemma A.12 for several heads."""
        return (capacity(self.head, self.proofs()[0].tolerance),)

    def readings(
        self, bits: NDArray[np.uint8]
    ) -> tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]:
        """The attention of [CLS], whose token is the last."""
        function = simplify(self.function)
        relevant, each = list(function.indices), self.embedding.own_keys(is_scalar_route(function))
        features, value = self.head.tables.read(bits[None])[0], float(self.predict(bits))
        found = []
        for head, row in enumerate(self.head.tables.attention(bits)):
            weights = np.roll(row, -1)
            own = [relevant[int(weights[relevant].argmax())]] if each and relevant else relevant
            read = features[head : head + 1] if len(features) == self.head.n_heads else features
            seen = tuple(own), weights, tuple(map(float, read)), value
            found.append(Reading("[CLS]", self.rule, head, *seen))
        return (tuple(found),), {"[CLS]": value}

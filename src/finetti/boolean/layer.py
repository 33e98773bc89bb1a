"""A rule at [CLS]: one block, whose one reader is [CLS]."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.compiled import Compiled
from finetti.boolean.domain import all_values, value_sizes
from finetti.boolean.embeddings.base import Embedding
from finetti.boolean.embeddings.positions import BitPositions
from finetti.boolean.findings import InputBound, NetworkEvidence, ReaderProof, Reading
from finetti.boolean.functions.base import MAX_SETTING_BITS, BooleanFunction, all_bits
from finetti.boolean.functions.symmetric import Symmetric
from finetti.boolean.functions.truth_table import TruthTable
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.proof import distance, output_bounds, proof_fits, proof_work
from finetti.boolean.network.runner import LayerRunner, Trials
from finetti.boolean.network.worst_case import feature_ranges
from finetti.boolean.norms import head_capacity, head_norm_bounds, lookup_norms
from finetti.boolean.simplification import simplify
from finetti.boolean.trials import (
    MAX_SETTINGS_BYTES,
    MAX_WORK,
    choose_settings,
    each_count,
    layer_trials,
)
from finetti.boolean.words import counted
from finetti.core.errors import UnsupportedError
from finetti.core.keys import generator

SAME_ATOL = 1e-10  # differences between bits that count as rounding


@dataclass(frozen=True, eq=False, repr=False)
class LayerNetwork(Compiled):
    """One layer that [CLS] reads: what `compile` makes."""

    function: BooleanFunction
    head: HeadWeights  # the weights below the lookup
    lookup: Lookup
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def embedding(self) -> Embedding:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How bits become tokens."""
        return self.head.embedding

    @property
    def positions(self) -> BitPositions:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the bits."""
        return self.head.positions

    @property
    def heads_per_block(self) -> tuple[int, ...]:
        """H of the one block."""
        return (self.head.n_heads,)

    @property
    def width(self) -> int:
        """d."""
        return self.head.width

    @property
    def n_parameters(self) -> int:
        """Numbers in all matrices, positions written out."""
        return self.context_length * self.width + sum(each.size for each in self.arrays.values())

    @property
    def work(self) -> int:
        """Multiplications for one input."""
        return self.lookup.work

    def runner(self, dtype: Any) -> LayerRunner:
        """Through tables of 2T + 1 rows."""
        if dtype == np.float64:
            return LayerRunner(self.head.tables, self.lookup)
        return LayerRunner(self.head.tables_in(dtype), self.lookup.astype(dtype))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every matrix but the positions, by its name in a file."""
        return {
            f"{'embedding' if name in ('tokens', 'cls') else 'blocks.0'}.{name}": array
            for name, array in (self.head.arrays | self.lookup.arrays).items()
        }

    def written(self) -> dict[str, NDArray[Any]]:
        """All arrays, and the positions."""
        return {"embedding.positions": self.positions.dense(), **self.arrays}

    def comparable(self, function: BooleanFunction) -> Symmetric | TruthTable:
        """The rule on the bits that matter."""
        return simplify(function)

    def trials(self, function: BooleanFunction) -> Trials:
        """Settings of the bits that matter, with the worst choices of the others."""
        hints = self.function.indices
        return layer_trials(self.head.tables, self.lookup, function.indices, hints)

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

    def _alike(self, function: BooleanFunction, indices: tuple[int, ...]) -> bool:
        """Whether the rule is known by its number of ones, and the sums are, too."""
        tables, too_long = self.head.tables, (len(indices) + 1) * len(indices) > MAX_SETTINGS_BYTES
        if function.profile() is None or too_long:
            return False
        changes = tables.folded(tables.difference(list(indices)))
        return len(indices) * float(np.ptp(changes, axis=0).max()) <= SAME_ATOL

    def evidence(self, margin: float) -> NetworkEvidence:
        """What [CLS] reads, over all inputs; the norms of the heads and of the lookup; Corollary
        4.4, or Lemma A.12 for several heads."""
        function, head, embedding = simplify(self.function), self.head, self.embedding
        sparsity, scalar = function.sparsity, isinstance(function, Symmetric)
        n_features = head.output.shape[2]
        if n_features != (1 if scalar else sparsity):
            raise UnsupportedError(
                f"A network with {counted(n_features, 'feature')} was not built for a rule of "
                f"{counted(sparsity, 'bit')}, so no lemma certifies it. `verify` compares any "
                "network with any rule."
            )
        tolerance = embedding.tolerance(sparsity, scalar)
        rng = generator("boolean certificate", self.context_length)
        settings, _ = choose_settings(sparsity, 2**MAX_SETTING_BITS, rng)
        points = embedding.points(settings, scalar)
        low, high, _ = feature_ranges(head.tables, function.indices, settings)
        error = float(np.maximum(high - points, points - low).max())
        mass, lead = self._attention(function.indices, scalar)
        proof = ReaderProof(
            text=self.rule,
            level=1,
            sparsity=sparsity,
            separation=embedding.separation(sparsity, scalar),
            tolerance=tolerance,
            head_error=math.inf if math.isnan(error) else error,  # unknown: no margin
            score_scale=float(np.abs(head.query).max()),
            score_gap=lead,
            attention_mass=mass,
        )
        ends = np.repeat(np.array([[0], [1]], dtype=np.uint8), sparsity, axis=1)
        radius = float(np.abs(embedding.points(ends, scalar)).max())  # is there for all 0 or 1
        largest = float(np.abs(all_values(function)).max())
        norms = head_norm_bounds(head, function.indices, scalar, margin)
        norms += lookup_norms(self.lookup, radius, tolerance, largest)
        form, kind = ("B.5", "symmetric") if scalar else ("B.6", "general")
        route = f"Lemmas {embedding.lemma} and {form} ({kind} rule), lookup of Lemma B.8"
        return NetworkEvidence(route, "[CLS]", (proof,), norms, (head_capacity(head, tolerance),))

    def _own(self, weights: NDArray[Any], indices: tuple[int, ...], scalar: bool) -> list[int]:
        """What a head with this attention should read: all of I, or the one that it looks at."""
        relevant = list(indices)
        if relevant and self.embedding.own_keys(scalar):
            return [relevant[int(weights[relevant].argmax())]]
        return relevant

    def _attention(self, indices: tuple[int, ...], scalar: bool) -> tuple[float, float]:
        """The least attention on what is meant to be read, and the least lead of its scores."""
        tables, mass, lead = self.head.tables, 1.0, math.inf
        if not indices:
            return 1.0, 0.0
        for each in range(self.head.n_heads):
            zero, one, cls = tables.zero[:, each], tables.one[:, each], float(tables.cls[each])
            own = self._own(one, indices, scalar)
            meant, least, others = self.embedding.reading(zero, one, cls, own)
            mass = min(mass, meant / (meant + float(others.sum())) if meant > 0 else 0.0)
            top = float(others.max(initial=0.0))
            lead = min(lead, math.log(least / top) if top > 0 and least > 0 else math.inf)
        return mass, lead

    def readings(
        self, bits: NDArray[np.uint8]
    ) -> tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]:
        """The attention of [CLS], whose token is the last."""
        function = simplify(self.function)
        features, value = self.head.tables.read(bits[None])[0], float(self.predict(bits))
        found = []
        for head, weights in enumerate(self.head.tables.attention(bits)):
            own = self._own(weights, function.indices, isinstance(function, Symmetric))
            read = features[head : head + 1] if len(features) == self.head.n_heads else features
            seen = tuple(own), weights, tuple(map(float, read)), value
            found.append(Reading("[CLS]", self.rule, head, *seen))
        return (tuple(found),), {"[CLS]": value}

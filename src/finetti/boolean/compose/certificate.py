"""The certificate of a network of gates: every gate proven, the whole run against its rule."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.basis import measure
from finetti.boolean.certificate import short_text, single_precision
from finetti.boolean.check import EXACT, Check, Counterexample
from finetti.boolean.compose.block import separation
from finetti.boolean.compose.composed import Composed, written_out
from finetti.boolean.compose.proof import network_bound, read_error
from finetti.boolean.functions.base import BooleanFunction, all_bits
from finetti.boolean.norms import NormBound
from finetti.boolean.trials import ALL_SETTINGS
from finetti.boolean.verification import ALL_INPUTS
from finetti.core.keys import generator
from finetti.core.norms import frobenius
from finetti.show.card import Card, Table
from finetti.show.numbers import format_number
from finetti.show.shown import Shown

SAMPLED = 2**10  # settings of the relevant bits, at most
MOST_BITS = 2**27  # bits of all inputs together: 128 MB
N_RANDOM = 4


@dataclass(frozen=True)
class GateProof:
    """Why one gate is right on every input, if its sources are.

    Args:
        text: the gate.
        level: its block.
        sparsity: how many sources it reads.
        head_error: the largest error of its features over all inputs, from its attention.
        tolerance: δ, what its lookup bears.
        score_scale: the largest R of its heads.
        attention_mass: the least attention on what it should read.
    """

    text: str
    level: int
    sparsity: int
    head_error: float
    tolerance: float
    score_scale: float
    attention_mass: float

    @property
    def margin(self) -> float:
        """δ over the error."""
        return math.inf if self.head_error == 0 else self.tolerance / self.head_error


@dataclass(frozen=True, eq=False)
class NetworkCertificate(Shown):
    """What is known of a network of gates.

    Args:
        rule: as text.
        context_length, depth, width, basis: the network.
        gates: one proof per gate. Together they cover all 2^T inputs, level by level.
        norms: every norm of every block beside its bound.
        check: what was run against the rule.
    """

    rule: str
    context_length: int
    depth: int
    width: int
    basis: str
    gates: tuple[GateProof, ...]
    norms: tuple[NormBound, ...]
    check: Check

    @property
    def margin(self) -> float:
        """The least margin of a gate; at least 1 proves the network on all 2^T inputs."""
        return min(gate.margin for gate in self.gates)

    @property
    def holds(self) -> bool:
        """Proven on all inputs, a margin of at least 1 everywhere, all norms in their bounds."""
        return self.check.proven and self.margin >= 1 and all(norm.within for norm in self.norms)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "rule": self.rule,
            "context_length": self.context_length,
            "depth": self.depth,
            "width": self.width,
            "basis": self.basis,
            "holds": self.holds,
            "margin": self.margin if math.isfinite(self.margin) else None,
            "gates": [dict(vars(gate)) for gate in self.gates],
            "norms": [dict(vars(norm)) for norm in self.norms],
            "check": self.check.to_dict(),
        }

    def __card__(self) -> Card:
        verdict = "exact" if self.check.exact else f"WRONG {self.check.counterexample}"
        error = self.check.error_bound
        proof = f"for no more than the inputs that were run: {self.check.why_not}"
        if error is not None:
            proof = (
                f"every gate, error ≤ {format_number(error)} on all 2^{self.context_length} "
                f"inputs (margin {format_number(self.margin)})"
            )
        fields = (
            ("network", f"{self.depth} blocks, {len(self.gates)} gate tokens, width {self.width}"),
            ("verified", f"{verdict} on {self.check.method}"),
            ("proven" if self.check.proven else "NOT proven", proof),
            ("float64, float32 error", (self.check.error64, self.check.error32)),
            *single_precision(self.check),
        )
        rows = [
            (g.level, f"g{k} = {g.text}", g.sparsity, g.head_error, g.tolerance, g.attention_mass)
            for k, g in enumerate(self.gates)
        ]
        columns = ("block", "gate", "reads", "head's error", "δ", "attention")
        norms = [(n.name, n.value, n.bound, n.source, n.within) for n in self.norms]
        tables = (
            Table("Gates", columns, tuple(rows)),
            Table("Norms", ("norm", "measured", "bound", "from", "kept"), tuple(norms)),
        )
        where = f"over {self.context_length} bits, {self.basis}, {self.depth} blocks"
        notes = ("The paper's capacity bounds do not cover residual blocks; none is given.",)
        return Card(f"{short_text(self.rule)}   {where}", fields, tables, notes)


def _proofs(composed: Composed) -> list[GateProof]:
    proofs: dict[int, GateProof] = {}
    for block, mixture in zip(composed.blocks, composed.mixtures, strict=True):
        for which in block.gates:
            gate = composed.gates[which]
            columns = [column for column, read in enumerate(block.reads) if read.gate == which]
            found = [read_error(composed, block, mixture, column) for column in columns]
            proofs[which] = GateProof(
                gate.text,
                gate.level,
                gate.sparsity,
                max(error for error, _ in found),
                separation(gate) / 4,
                max(block.reads[column].scale for column in columns),
                min(mass for _, mass in found),
            )
    return [proofs[which] for which in range(len(composed.gates))]


def _norms(composed: Composed) -> list[NormBound]:
    """The blocks' norms, the largest over the heads; bounds add up over gates as squares do."""
    found = []
    for number, block in enumerate(composed.blocks, start=1):
        query, key = np.zeros(block.n_heads), np.zeros(block.n_heads)
        for read in block.reads:
            gate = composed.gates[read.gate]
            bits = tuple(s.index for s in gate.sources if not s.is_gate)
            least = measure(composed.layout.positions, bits).smallest
            scale = math.log(8 * composed.layout.n_tokens / separation(gate)) / read.gap
            query[read.head] += scale**2
            span = len(bits) / least + gate.sparsity - len(bits)
            key[read.head] += span if gate.symmetric else 1.0
        delta = min(separation(composed.gates[which]) / 4 for which in block.gates)
        written = written_out(block, composed.layout)
        bounds = {"query": np.sqrt(query), "key": np.sqrt(key), "value": 2.0, "output": 1.0}
        names = {"query": "W_Q", "key": "W_K", "value": "W_V", "output": "W_C"}
        for part, bound in bounds.items():
            sizes, limits = frobenius(written[part]), np.broadcast_to(bound, block.n_heads)
            worst = int((sizes / limits).argmax())
            name = f"‖{names[part]}‖_F, block {number}"
            found.append(
                NormBound(name, float(sizes[worst]), float(limits[worst]), "Lemma B.2, per gate")
            )
        size = max(float(np.abs(written[part]).max()) for part in ("inner", "inner_bias"))
        bound = max(1.0, 1 + 2 * delta) / delta
        found.append(NormBound(f"‖W_1‖_∞, block {number}", size, bound, "Lemma B.8"))
    return found


def _inputs(composed: Composed, function: BooleanFunction) -> tuple[NDArray[np.uint8], str, bool]:
    length = composed.context_length
    # What the network says that it reads is tried as well, if the rule leaves it out.
    indices = sorted({*function.indices, *composed.function.indices})
    if length <= ALL_INPUTS:
        return all_bits(length), f"all 2^{length} = {2**length} inputs", True
    rng = generator("network of gates", length, len(indices))
    most = int(np.clip(MOST_BITS // (length * (N_RANDOM + 2)), 2**4, SAMPLED))
    if 2 ** len(indices) <= most:
        settings = all_bits(len(indices))
        text = f"all 2^{len(indices)} settings of the relevant bits"
    else:
        # Half of the bits set, nearly none and nearly all: gates of each kind change their value.
        rates = rng.choice([0.03, 0.2, 0.5, 0.8, 0.97], size=(most, 1))
        settings = (rng.random((most, len(indices))) < rates).astype(np.uint8)
        text = f"{most} of 2^{len(indices)} settings of the relevant bits"
    outside = rng.integers(0, 2, size=(N_RANDOM + 2, length), dtype=np.uint8)
    outside[0], outside[1] = 0, 1
    rows = np.repeat(outside, len(settings), axis=0)
    rows[:, indices] = np.tile(settings, (len(outside), 1))
    return rows, f"{text} × (all-0, all-1, {N_RANDOM} random outside bits)", False


def check_network(composed: Composed, function: BooleanFunction | None = None) -> Check:
    """Run the network against a rule, its own by default, and bound its error on all inputs."""
    function = composed.function if function is None else function
    bits, method, complete = _inputs(composed, function)
    values = function(bits)
    outputs = [composed.predict(bits, dtype) for dtype in (np.float64, np.float32)]
    errors = [np.abs(each.astype(np.float64) - values) for each in outputs]
    worst = [float(np.nan_to_num(each, nan=np.inf).max()) for each in errors]
    wrong = np.flatnonzero(~(errors[0] <= EXACT))  # NaN is wrong as well
    found = None
    if len(wrong):
        first = wrong[0]
        found = Counterexample(bits[first], float(outputs[0][first]), float(values[first]))
    bound, reason = None, "the rule is not known to be the one that the gates were built for"
    if _same(composed.function, function):
        bound, reason = network_bound(composed), ""
        if not math.isfinite(bound):
            bound, reason = None, "intervals do not go through the lookup of a gate"
    return Check(method, len(bits), complete, worst[0], worst[1], found, bound, reason=reason)


def _same(own: BooleanFunction, other: BooleanFunction) -> bool:
    """Whether two rules are known to be equal: one object, or alike on all settings."""
    indices = sorted({*own.indices, *other.indices})
    if own is other or str(own) == str(other):
        return True
    if len(indices) > ALL_SETTINGS:
        return False
    settings = all_bits(len(indices))
    places = [[indices.index(index) for index in function.indices] for function in (own, other)]
    values = own.evaluate(settings[:, places[0]]), other.evaluate(settings[:, places[1]])
    return np.array_equal(*values)


def certify_network(composed: Composed) -> NetworkCertificate:
    """Measure a network of gates."""
    return NetworkCertificate(
        rule=str(composed.function),
        context_length=composed.context_length,
        depth=composed.depth,
        width=composed.layout.width,
        basis=str(composed.settings["basis"]),
        gates=tuple(_proofs(composed)),
        norms=tuple(_norms(composed)),
        check=check_network(composed),
    )

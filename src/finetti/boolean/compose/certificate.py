"""The certificate of a network of gates: every gate proven, the whole run against its rule."""

import math
from dataclasses import dataclass
from typing import Any

from finetti.boolean.certificate import norm_table, proof_fields, single_precision
from finetti.boolean.check import Check, finite_or_none
from finetti.boolean.compose.capacity import block_capacities
from finetti.boolean.compose.checking import check_network
from finetti.boolean.compose.composed import Composed
from finetti.boolean.compose.norms import network_norms
from finetti.boolean.compose.proof import ReadErrors, read_errors
from finetti.boolean.compose.recognition import separation, tolerance
from finetti.boolean.embeddings import find_embedding
from finetti.boolean.norms import NormBound
from finetti.boolean.words import counted, short_text
from finetti.bounds.value import BoundValue
from finetti.show.card import Card, Table
from finetti.show.numbers import format_number
from finetti.show.shown import Shown

MOST_GATES = 24  # that are listed one by one


@dataclass(frozen=True)
class GateProof:
    """Why one gate is right on every input, if its sources are.

    Args:
        text: the gate.
        level: its block.
        sparsity: how many sources it reads.
        separation: γ of the head with the least margin, its own if it has one.
        tolerance: δ = γ/4, what the lookup bears there.
        head_error: the largest error of that head's feature over all inputs.
        score_scale: the largest R of its heads.
        score_gap: by how much the scores of its sources exceed all others, at least.
        attention_mass: the least attention on what it should read.
    """

    text: str
    level: int
    sparsity: int
    separation: float
    tolerance: float
    head_error: float
    score_scale: float
    score_gap: float
    attention_mass: float

    @property
    def margin(self) -> float:
        """δ over the error."""
        return math.inf if self.head_error == 0 else self.tolerance / self.head_error

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no infinity."""
        plain = {name: getattr(self, name) for name in ("text", "level", "sparsity")}
        numbers = {
            name: finite_or_none(getattr(self, name)) for name in (*list(vars(self))[3:], "margin")
        }
        return plain | numbers


@dataclass(frozen=True, eq=False)
class NetworkCertificate(Shown):
    """What is known of a network of gates.

    Args:
        rule: as text.
        indices: the bits that the rule names.
        context_length, depth, n_heads, width, n_parameters, embedding, basis: the network.
        asked_margin: the margin that was asked for.
        gates: one proof per gate. Together they cover all 2^T inputs, level by level.
        norms: every norm of every block beside its bound.
        check: what was run against the rule.
        capacities: Lemma A.12 for the heads of every block, at the resolution of its lookup.
    """

    rule: str
    indices: tuple[int, ...]
    context_length: int
    depth: int
    n_heads: tuple[int, ...]
    width: int
    n_parameters: int
    embedding: str
    basis: str
    asked_margin: float
    gates: tuple[GateProof, ...]
    norms: tuple[NormBound, ...]
    check: Check
    capacities: tuple[BoundValue, ...]

    @property
    def margin(self) -> float:
        """The least margin of a gate; at least 1 proves the network on all 2^T inputs."""
        return min(gate.margin for gate in self.gates)

    @property
    def attention_mass(self) -> float:
        """The least attention of any gate on what it should read."""
        return min(gate.attention_mass for gate in self.gates)

    @property
    def score_gap(self) -> float:
        """The least lead of the scores of any gate's sources."""
        return min(gate.score_gap for gate in self.gates)

    @property
    def holds(self) -> bool:
        """Proven on all inputs, the margin asked for in every gate, all norms in their bounds."""
        kept = all(norm.within for norm in self.norms)
        return self.check.proven and self.margin >= self.asked_margin and kept

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "rule": self.rule,
            "indices": list(self.indices),
            "sparsity": max(gate.sparsity for gate in self.gates),
            "context_length": self.context_length,
            "embedding": self.embedding,
            "basis": self.basis,
            "depth": self.depth,
            "n_heads": list(self.n_heads),
            "width": self.width,
            "n_parameters": self.n_parameters,
            "holds": self.holds,
            "margin": finite_or_none(self.margin),
            "asked_margin": self.asked_margin,
            "score_gap": finite_or_none(self.score_gap),
            "attention_mass": self.attention_mass,
            "gates": [gate.to_dict() for gate in self.gates],
            "norms": [norm.to_dict() for norm in self.norms],
            "check": self.check.to_dict(),
            "capacities": [value.to_dict() for value in self.capacities],
        }

    def __card__(self) -> Card:
        heads = " + ".join(map(str, self.n_heads))
        network = (
            f"{counted(self.depth, 'block')}, {heads} {'head' if heads == '1' else 'heads'}, "
            f"{counted(len(self.gates), 'gate token')}, width {self.width}, "
            f"{self.n_parameters} numbers"
        )
        worst = min(self.gates, key=lambda gate: gate.margin)
        error = (
            f"{format_number(worst.head_error)} in the worst gate on all 2^{self.context_length} "
            f"inputs; its lookup bears δ = {format_number(worst.tolerance)} (margin "
            f"{format_number(self.margin)})"
        )
        scores = (
            f"R ≤ {format_number(max(gate.score_scale for gate in self.gates))}, sources lead by "
            f"at least {format_number(self.score_gap)}"
        )
        counts = ", ".join(value.text for value in self.capacities)
        lemma = find_embedding(self.embedding).lemma
        fields = (
            ("network", network),
            ("built by", f"Lemma {lemma} for the heads of every gate, lookups of Lemma B.8"),
            ("relevant bits", f"{len(self.indices)} in all, {_most(self.gates)} in one gate"),
            *proof_fields(self.check, self.context_length),
            ("head's error", error),
            ("attention", f"≥ {format_number(100 * self.attention_mass)} % on what it should read"),
            ("scores", scores),
            ("float64, float32 error", (self.check.error64, self.check.error32)),
            *single_precision(self.check),
            (
                "capacity",
                f"log N_∞(ε=δ) ≤ {counts} for all heads with the norms of each block "
                f"({self.capacities[0].citation})",
            ),
        )
        columns = ("block", "gate", "reads", "error", "δ", "R", "lead", "attention")
        listed = list(enumerate(self.gates))
        if len(listed) > MOST_GATES:  # the last ones are those at the top
            listed = listed[: MOST_GATES - 4] + listed[-4:]
        rows = [
            (
                g.level,
                f"g{k} = {short_text(g.text, 48)}",
                g.sparsity,
                g.head_error,
                g.tolerance,
                g.score_scale,
                g.score_gap,
                g.attention_mass,
            )
            for k, g in listed
        ]
        left = len(self.gates) - len(listed)
        title = "Gates" + (f" ({left} of {len(self.gates)} are not listed)" if left else "")
        where = f"over {counted(self.context_length, 'bit')}, {self.embedding}, {self.basis}"
        notes = (
            "Blocks are covered one by one: the paper's bound for deep networks (Theorem A.17) is "
            "for layers without residuals.",
        )
        tables = (Table(title, columns, tuple(rows)), norm_table(self.norms))
        return Card(f"{short_text(self.rule)}   {where}", fields, tables, notes)


def _most(gates: tuple[GateProof, ...]) -> str:
    most = max(gate.sparsity for gate in gates)
    return f"at most {counted(most, 'source')}"


def _proofs(composed: Composed, found: ReadErrors) -> tuple[GateProof, ...]:
    """One proof per gate, from what was measured of its reads."""
    reads = [(block, k) for block in composed.blocks for k in range(len(block.reads))]
    columns: dict[int, list[int]] = {}
    for column, (block, k) in enumerate(reads):
        columns.setdefault(block.reads[k].gate, []).append(column)
    proofs = []
    for which, gate in enumerate(composed.gates):
        own = columns[which]
        errors = [float(found.errors[column]) for column in own]
        sizes = [len(group) for group in gate.groups]
        worst = max(range(len(own)), key=lambda k: errors[k] * sizes[k])
        proofs.append(
            GateProof(
                gate.text,
                gate.level,
                gate.sparsity,
                separation(sizes[worst]),
                tolerance(sizes[worst]),
                errors[worst],
                max(float(reads[column][0].scales[reads[column][1]]) for column in own),
                min(float(composed.mixture.leads[column]) for column in own),
                min(float(found.masses[column]) for column in own),
            )
        )
    return tuple(proofs)


def certify_network(composed: Composed) -> NetworkCertificate:
    """Measure a network of gates."""
    found = read_errors(composed)
    margin = float(composed.settings.get("margin", 1.0))
    return NetworkCertificate(
        rule=composed.rule,
        indices=composed.function.indices,
        context_length=composed.context_length,
        depth=composed.depth,
        n_heads=tuple(block.n_heads for block in composed.blocks),
        width=composed.layout.width,
        n_parameters=composed.n_parameters,
        embedding=composed.embedding.name,
        basis=str(composed.settings.get("basis", "given")),
        asked_margin=margin,
        gates=_proofs(composed, found),
        norms=network_norms(composed, margin),
        check=check_network(composed, measured=found),
        capacities=block_capacities(composed),
    )

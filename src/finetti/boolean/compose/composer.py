"""From a rule of gates to a deep network: split → positions → one block per level → verify."""

from typing import Any

import numpy as np

from finetti.boolean.arguments import MAX_BYTES, CompilerArguments, check_arguments
from finetti.boolean.compiler import BYTES_PER_ENTRY
from finetti.boolean.compose.block import Block, level_gates, level_reads, read_scales
from finetti.boolean.compose.gates import SparseGate, as_tree, split
from finetti.boolean.compose.layouts import Placed, choose_layout
from finetti.boolean.compose.network import GateNetwork
from finetti.boolean.compose.recognition import make_recognition, recognition_bytes
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.functions.expressions import ExpressionRule
from finetti.boolean.parser import parse
from finetti.boolean.planning import MAX_TABLE_BYTES, MIN_GAP
from finetti.boolean.refusals import Refusals, readable_bytes
from finetti.boolean.words import counted
from finetti.core.errors import InputError


def compose(
    rule: BooleanFunction | str,
    context_length: int,
    embedding: str = "deterministic",
    basis: Any = "orthonormal",
    width: int | None = None,
    coherence: float | None = None,
    margin: float = 1.0,
    seed: int = 0,
    max_bytes: int = MAX_BYTES,
) -> GateNetwork:
    """A network with one block per level of gates, so that sparsity counts per gate.

    An AND of ten ORs of five bits each depends on 50 bits, too many for one lookup; here no gate
    reads more than ten. Blocks are attention + lookup + residual, with the heads of Lemma B.2 (or
    B.3) and the lookup of Lemma B.8; the composition is not in the paper.

    Args:
        rule: an expression, whose parentheses make the gates; or a family such as `And`, one gate.
        context_length: T.
        embedding: "deterministic" or "trained" positions, as in `compile`; a bag has no gates.
        basis: "orthonormal", "random", or unit vectors as rows, for the positions of the bits.
        width: dimensions of bits and positions, chosen by default; gates and features add theirs.
        coherence: the largest |⟨v_i, v_j⟩| that relevant vectors may have with others.
        margin: at least 1; what a gate reads errs by at most δ/margin, where δ is what its lookup
            tolerates.
        seed: of the random basis.
        max_bytes: refuse a lookup (or a random basis) larger than this.

    Raises:
        InputError: with every reason why the rule cannot be compiled so.

    >>> network = compose("(x1 | x2 | x3) & (x4 | ~x5) & maj(x6, x7, x8)", context_length=12)
    >>> network.depth, len(network.gates), network.certificate.check.exact
    (2, 4, True)
    """
    tree = parse(rule) if isinstance(rule, str) else as_tree(rule)
    refusals = Refusals("The rule")
    arguments = check_arguments(
        refusals, tree, context_length, embedding, basis, width, coherence, margin, seed, max_bytes
    )
    refusals.unless(not arguments.embedding.no_gates, arguments.embedding.no_gates)
    gates = _split(refusals, tree)
    placed = _place(refusals, arguments, gates) if gates else None
    refusals.raise_if_any()
    assert placed is not None  # or there was a reason
    blocks = make_blocks(gates, placed, float(arguments.margin))
    network = GateNetwork(tree, gates, placed.layout, blocks, arguments.settings)
    network.raise_if_wrong()
    return network


def _split(refusals: Refusals, rule: ExpressionRule) -> tuple[SparseGate, ...]:
    """The gates, or none and the reason."""
    try:
        return split(rule)
    except InputError as error:
        said = str(error).rstrip(".")
        refusals.add(said[0].lower() + said[1:])
        return ()


def _place(
    refusals: Refusals, arguments: CompilerArguments, gates: tuple[SparseGate, ...]
) -> Placed | None:
    """Positions that are good enough for all gates, or None and the reasons."""
    fits = _check_sizes(refusals, arguments, gates)
    sources = {s.index for gate in gates for s in gate.sources if not s.is_gate}
    indices = tuple(sorted(sources))
    length = arguments.length_to_try(indices)
    if not fits or length is None:
        return None
    request = arguments.request("compose", "its gates", length, indices, False)
    placed, reasons = choose_layout(gates, request)
    for reason in reasons:
        refusals.add(reason)
    return placed


def _check_sizes(
    refusals: Refusals, arguments: CompilerArguments, gates: tuple[SparseGate, ...]
) -> bool:
    """Refuse lookups and tables by their bytes; whether the tables can be made at all."""
    for level in range(1, max(gate.level for gate in gates) + 1):
        size = recognition_bytes([gates[which] for which in level_gates(gates, level)])
        refusals.unless(
            size <= arguments.max_bytes,
            f"the lookup of its block {level} takes {readable_bytes(size)}, above the budget "
            f"of {readable_bytes(arguments.max_bytes)}; split its gates into smaller ones with "
            "parentheses, or raise max_bytes",
        )
    n_reads = sum(len(gate.groups) for gate in gates)
    tables = BYTES_PER_ENTRY * arguments.context_length * (n_reads + 1)
    return refusals.unless(
        tables <= MAX_TABLE_BYTES,
        f"its tables of {counted(n_reads, 'read')} over {arguments.context_length} bits take "
        f"{readable_bytes(tables)}, and tables end at {readable_bytes(MAX_TABLE_BYTES)}; choose a "
        "shorter context, or fewer gates",
    )


def make_blocks(gates: tuple[SparseGate, ...], placed: Placed, margin: float) -> tuple[Block, ...]:
    """The weights of every level."""
    layout, keys = placed.layout, placed.keys
    blocks, first = [], 0
    for level in range(1, max(gate.level for gate in gates) + 1):
        here, reads = level_gates(gates, level), level_reads(gates, level)
        own = slice(first, first + len(reads))
        gaps = keys.gaps[own]
        scales = read_scales(reads, np.maximum(gaps, MIN_GAP), layout.n_tokens, margin)
        lookup = make_recognition([gates[which] for which in here])
        blocks.append(
            Block(
                here,
                reads,
                max(read.head for read in reads) + 1,
                layout.first_features[level - 1],
                keys.vectors[own],
                scales,
                gaps,
                keys.spans[own],
                lookup,
            )
        )
        first += len(reads)
    return tuple(blocks)

"""From a rule of gates to a deep network: split → positions → one block per level → verify."""

from typing import Any

import numpy as np

from finetti.boolean.compiler import (
    MAX_BYTES,
    MAX_TABLES,
    MAX_TRIED,
    TABLE_BYTES,
    check_arguments,
    check_whole,
    is_number,
    is_whole,
    plain_settings,
)
from finetti.boolean.compose.block import Block, level_gates, level_reads, read_scales
from finetti.boolean.compose.composed import Composed
from finetti.boolean.compose.gates import SparseGate, as_tree, split
from finetti.boolean.compose.layouts import LayoutRequest, Placed, choose_layout
from finetti.boolean.compose.recognition import make_recognition, recognition_bytes
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.network.head_weights import Embedding
from finetti.boolean.parser import parse
from finetti.boolean.planning import LEAST_GAP
from finetti.boolean.refusals import Refusals, readable_bytes
from finetti.boolean.words import counted
from finetti.core.errors import FinettiError, InputError

NO_BAG = (
    "a bag of vectors has no token for a bit that is 0, so that what its head reads depends on the "
    "number of ones, and gates, whose tokens are always there, cannot stand beside its bits; use "
    'embedding="deterministic" or "trained"'
)


def compose(
    rule: BooleanFunction | str,
    context_length: int,
    embedding: Embedding = "deterministic",
    basis: Any = "orthonormal",
    width: int | None = None,
    coherence: float | None = None,
    margin: float = 1.0,
    seed: int = 0,
    max_bytes: int = MAX_BYTES,
) -> Composed:
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
            bears.
        seed: of the random basis.
        max_bytes: refuse a lookup (or a random basis) larger than this.

    Raises:
        InputError: with every reason why the rule cannot be compiled so.

    >>> network = compose("(x1 | x2 | x3) & (x4 | ~x5) & maj(x6, x7, x8)", context_length=12)
    >>> network.depth, len(network.gates), network.certificate.check.exact
    (2, 4, True)
    """
    function = parse(rule) if isinstance(rule, str) else as_tree(rule)
    refusals = Refusals("The rule")
    check_arguments(refusals, function, context_length, embedding, basis, width, coherence, margin)
    check_whole(refusals, seed=seed, max_bytes=max_bytes)
    if embedding == "bag":
        refusals.add(NO_BAG)
    gates: tuple[SparseGate, ...] = ()
    try:
        gates = split(function)
    except InputError as error:
        said = str(error).rstrip(".")
        refusals.add(said[0].lower() + said[1:])
    placed = None
    if gates and _fit(refusals, gates, context_length, max_bytes):
        placed = _place(
            refusals, gates, context_length, embedding, basis, width, coherence, seed, max_bytes
        )
    refusals.raise_if_any()
    assert placed is not None  # or there was a reason
    blocks = make_blocks(gates, placed, float(margin))
    settings = plain_settings(basis, width, coherence, margin, seed) | {"embedding": embedding}
    composed = Composed(function, gates, placed.layout, blocks, settings)
    if not composed.certificate.check.exact:
        found = composed.certificate.check.counterexample
        raise FinettiError(f"The compiled network is wrong {found}: choose a larger width.")
    return composed


def _fit(
    refusals: Refusals, gates: tuple[SparseGate, ...], context_length: int, max_bytes: Any
) -> bool:
    """Refuse lookups and tables by their bytes; whether the tables can be made at all."""
    depth = max(gate.level for gate in gates)
    for level in range(1, depth + 1):
        here = [gates[which] for which in level_gates(gates, level)]
        size = recognition_bytes(here)
        if is_whole(max_bytes) and size > max_bytes >= 0:
            refusals.add(
                f"the lookup of its block {level} takes {readable_bytes(size)}, above the budget "
                f"of {readable_bytes(max_bytes)}; split its gates into smaller ones with "
                "parentheses, or raise max_bytes"
            )
    n_reads = sum(len(gate.groups) for gate in gates)
    tables = TABLE_BYTES * int(context_length) * (n_reads + 1)
    if tables > MAX_TABLES:
        refusals.add(
            f"its tables of {counted(n_reads, 'read')} over {context_length} bits take "
            f"{readable_bytes(tables)}, and tables end at {readable_bytes(MAX_TABLES)}; choose a "
            "shorter context, or fewer gates"
        )
    return tables <= MAX_TABLES


def _place(
    refusals: Refusals,
    gates: tuple[SparseGate, ...],
    context_length: int,
    embedding: Any,
    basis: Any,
    width: Any,
    coherence: Any,
    seed: Any,
    max_bytes: Any,
) -> Placed | None:
    """Positions that are good enough; arguments that were refused already count as not given."""
    top = max((s.index for gate in gates for s in gate.sources if not s.is_gate), default=0)
    named = isinstance(basis, str)
    if top >= max(context_length, MAX_TRIED if named else 0):
        return None  # an index outside is a reason by itself
    request = LayoutRequest(
        gates,
        max(int(context_length), top + 1) if named else int(context_length),
        embedding == "trained",
        "orthonormal" if named and basis not in ("orthonormal", "random") else basis,
        int(width) if is_whole(width) and width >= 1 else None,
        coherence if is_number(coherence) and 0 < coherence < 1 else None,
        seed if is_whole(seed) and seed >= 0 else 0,
        max_bytes if is_whole(max_bytes) else MAX_BYTES,
    )
    placed, reasons = choose_layout(request)
    for reason in reasons:
        refusals.add(reason)
    return placed


def make_blocks(gates: tuple[SparseGate, ...], placed: Placed, margin: float) -> tuple[Block, ...]:
    """The weights of every level."""
    layout, keys = placed.layout, placed.keys
    blocks, first = [], 0
    for level in range(1, max(gate.level for gate in gates) + 1):
        here, reads = level_gates(gates, level), level_reads(gates, level)
        own = slice(first, first + len(reads))
        gaps = keys.gaps[own]
        scales = read_scales(reads, np.maximum(gaps, LEAST_GAP), layout.n_tokens, margin)
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

"""From a rule of gates to a deep network: split → positions → one block per level → verify."""

from typing import Any

from finetti.boolean.compiled import Compiled
from finetti.boolean.compiler.cls_compiler import BYTES_PER_ENTRY
from finetti.boolean.compiler.compiler_options import MAX_BYTES, CompilerArguments, check_arguments
from finetti.boolean.compiler.width_search import (
    MAX_TABLE_BYTES,
    Attempt,
    PositionRequest,
    choose_positions,
)
from finetti.boolean.embeddings.position_geometry import MIN_GAP, automatic_width, measure_geometry
from finetti.boolean.embeddings.position_vectors import BitPositions
from finetti.boolean.language.expression import ExpressionRule
from finetti.boolean.language.gate_graph import Gates, as_tree, split
from finetti.boolean.language.parser import parse
from finetti.boolean.language.rule import BooleanFunction
from finetti.boolean.network.gate_heads import Keys, level_gates, make_blocks, make_keys
from finetti.boolean.network.recognition import recognition_bytes
from finetti.boolean.refusals import Refusals, readable_bytes
from finetti.boolean.verify.verification import OnProgress
from finetti.boolean.words import counted
from finetti.core.errors import InputError

WIDTH_HEADROOM = 1.1  # dual vectors are longer than √s, so that a first guess would often just miss


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
    on_progress: OnProgress = lambda share: None,
) -> Compiled:
    """A network with one block per level of gates, so that sparsity counts per gate.

    An AND of ten ORs of five bits each depends on 50 bits, too many for one lookup; here no gate
    reads more than ten. Blocks are attention + lookup + residual, with the heads of Lemma B.2 (or
    B.3) and the lookup of Lemma B.8; the composition is not in the paper.

    Args:
        rule: an expression, whose parentheses make the gates; or a family such as `And`, one gate.
        context_length, embedding, basis, coherence, seed, max_bytes, on_progress: as in `compile`;
            a bag has no gates.
        width: dimensions of bits and positions, chosen by default; gates and features add theirs.
        margin: at least 1; what a gate reads errs by at most δ/margin, where δ is what its lookup
            tolerates.

    Raises:
        InputError: with every reason why the rule cannot be compiled so.

    >>> network = compose("(x1 | x2 | x3) & (x4 | ~x5) & maj(x6, x7, x8)", context_length=12)
    >>> network.depth, len(network.gates), network.certificate.check.exact
    (2, 4, True)
    """
    tree = parse(rule) if isinstance(rule, str) else as_tree(rule)
    refusals = Refusals()
    arguments = check_arguments(
        refusals, tree, context_length, embedding, basis, width, coherence, margin, seed, max_bytes
    )
    refusals.unless(not arguments.embedding.no_gates, arguments.embedding.no_gates)
    gates = _split(refusals, tree)
    keys = _place(refusals, arguments, gates) if gates else None
    refusals.raise_if_any()
    assert keys is not None  # or there was a reason
    blocks = make_blocks(gates, keys, float(arguments.margin))
    made_as = {"function": tree, "settings": arguments.settings}
    network = Compiled.build(arguments.embedding, keys.positions, blocks, gates, **made_as)
    network.raise_if_wrong(on_progress)
    return network


def _split(refusals: Refusals, rule: ExpressionRule) -> Gates:
    """The gates, or none and the reason."""
    try:
        return split(rule)
    except InputError as error:
        said = str(error).rstrip(".")
        refusals.add(said[0].lower() + said[1:])
        return ()


def _place(refusals: Refusals, arguments: CompilerArguments, gates: Gates) -> Keys | None:
    """Keys on positions that are good enough for all gates, or None and the reasons."""
    fits = _check_sizes(refusals, arguments, gates)
    indices = tuple(sorted({s.index for gate in gates for s in gate.sources if not s.is_gate}))
    length, coherence = arguments.length_to_try(indices), arguments.coherence
    if not fits or length is None:
        return None

    def build(vectors: BitPositions) -> Attempt:
        positions = arguments.embedding.place(vectors, length, indices)
        keys, found = make_keys(gates, positions), 0.0
        if coherence is not None:
            found = measure_geometry(positions, indices).coherence
        gap = float(keys.gaps.min())
        complaint = (
            f"a gate's sparsity is above what width {positions.width} allows: its sources lead by "
            f"{gap:.3g} (needed: {MIN_GAP}); leave width free, or choose a larger one"
        )
        return Attempt(keys, gap, found, complaint)

    request = PositionRequest(arguments, "compose", "its gates", length, indices, False)
    sizes = [sum(not s.is_gate for s in group) for gate in gates for group in gate.groups]
    # Every read has a lead over all tokens, and the least of them counts.
    n_scores = request.n_vectors * max(1, sum(size > 0 for size in sizes))
    first_width = int(WIDTH_HEADROOM * automatic_width(n_scores, max(1, *sizes), coherence))
    keys, reasons = choose_positions(request, build, first_width)
    refusals.add(*reasons)
    return keys


def _check_sizes(refusals: Refusals, arguments: CompilerArguments, gates: Gates) -> bool:
    """Refuse lookups and tables by their bytes; whether the tables can be made at all."""
    for number, own in enumerate(level_gates(gates), start=1):
        size = recognition_bytes([gates[which] for which in own])
        refusals.unless(
            size <= arguments.max_bytes,
            f"the lookup of its block {number} takes {readable_bytes(size)}, above the budget "
            f"of {readable_bytes(arguments.max_bytes)}; split its gates into smaller ones with "
            "parentheses, or raise `max_bytes`",
        )
    n_reads = sum(len(gate.groups) for gate in gates)
    tables = BYTES_PER_ENTRY * arguments.context_length * (n_reads + 1)
    return refusals.unless(
        tables <= MAX_TABLE_BYTES,
        f"its tables of {counted(n_reads, 'read')} over {arguments.context_length} bits take "
        f"{readable_bytes(tables)}, and tables end at {readable_bytes(MAX_TABLE_BYTES)}; choose a "
        "shorter context, or fewer gates",
    )

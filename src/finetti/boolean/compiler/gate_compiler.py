"""A rule of gates: split → choose positions → one block per level."""

from finetti.boolean.compiler.cls_compiler import BYTES_PER_ENTRY
from finetti.boolean.compiler.compiler_options import CompilerOptions, Refusals
from finetti.boolean.compiler.width_search import VectorRequest, check_width, search_width
from finetti.boolean.embeddings.position_geometry import MIN_GAP, automatic_width
from finetti.boolean.embeddings.position_vectors import BitPositions
from finetti.boolean.language.expression import ExpressionRule
from finetti.boolean.language.gate_graph import Gates, split
from finetti.boolean.network.gate_heads import Keys, make_blocks, make_keys
from finetti.boolean.network.gate_lookup import gate_lookup_bytes
from finetti.boolean.network.gate_network import GateNetwork, level_gates
from finetti.core.errors import InputError
from finetti.display.formatting import plural

WIDTH_HEADROOM = 1.1  # dual vectors are longer than √s, so that a first guess would often just miss


def compile_gates(
    refusals: Refusals, options: CompilerOptions, rule: ExpressionRule
) -> GateNetwork:
    """One block per level of gates: attention + lookup + residual, with the heads of Lemma B.2 (or
    B.3) and the lookup of Lemma B.8; the composition is not in the paper."""
    if options.embedding.no_gates:
        refusals.add(options.embedding.no_gates)
    indices = tuple(sorted(rule.indices))
    try:
        gates = split(rule)
    except InputError as error:
        said = str(error).rstrip(".")
        refusals.add(said[0].lower() + said[1:])
        gates = ()
    if gates:
        sources = {source for gate in gates for source in gate.sources}
        indices = tuple(sorted(source.index for source in sources if not source.is_gate))
        count = options.embedding.n_vectors(options.context_length, len(indices), False)
        _check_sizes(refusals, options, gates)
        check_width(refusals, options, count)
    refusals.raise_if_any()
    keys = _place(refusals, options, gates, indices)
    blocks = make_blocks(gates, keys, options.margin)
    return GateNetwork(options.embedding, rule, keys.positions, gates, blocks)


def _place(
    refusals: Refusals, options: CompilerOptions, gates: Gates, indices: tuple[int, ...]
) -> Keys:
    """Keys on positions that are good enough for all gates."""

    def build(vectors: BitPositions) -> tuple[Keys, float, str]:
        positions = options.embedding.place(vectors, options.context_length, indices)
        keys = make_keys(gates, positions)
        gap = float(keys.gaps.min())
        complaint = (
            f"a gate's sparsity is above what width {positions.width} allows: its sources lead by "
            f"{gap:.3g} (needed: {MIN_GAP}); leave width free, or choose a larger one"
        )
        return keys, gap, complaint

    count = options.embedding.n_vectors(options.context_length, len(indices), False)
    sizes = [sum(not s.is_gate for s in group) for gate in gates for group in gate.groups]
    # Every read has a lead over all tokens, and the least of them counts.
    n_scores = count * max(1, sum(size > 0 for size in sizes))
    first_width = int(WIDTH_HEADROOM * automatic_width(n_scores, max(1, *sizes)))
    return search_width(refusals, options, VectorRequest(count, first_width, indices), build)


def _check_sizes(refusals: Refusals, options: CompilerOptions, gates: Gates) -> None:
    """Refuse lookups and tables by their bytes."""
    for number, own in enumerate(level_gates(gates), start=1):
        size = 4 * gate_lookup_bytes([gates[which] for which in own])
        advice = "split its gates into smaller ones with parentheses"
        refusals.check_memory(f"the matrices of the lookup of its block {number}", size, advice)
    n_reads = sum(len(gate.groups) for gate in gates)
    refusals.check_memory(
        f"its tables of {plural(n_reads, 'read')} over {options.context_length} bits",
        BYTES_PER_ENTRY * options.context_length * (n_reads + 1),
        "choose a shorter context, or fewer gates",
    )

"""A rule at [CLS]: simplify → choose positions → head → lookup."""

import numpy as np

from finetti.boolean.compiler.compiler_options import GATES_ADVICE, CompilerOptions, Refusals
from finetti.boolean.compiler.width_search import VectorRequest, check_width, search_width
from finetti.boolean.embeddings.position_geometry import (
    MIN_GAP,
    automatic_width,
    measure_geometry,
)
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions
from finetti.boolean.embeddings.token_embedding import Embedding, Relevant
from finetti.boolean.embeddings.weight_range import MAX_WEIGHT
from finetti.boolean.language.families import Symmetric, TruthTable
from finetti.boolean.language.rule import (
    MAX_TABLE_BITS,
    BooleanFunction,
    all_bits,
    all_values,
    values_reason,
)
from finetti.boolean.language.simplify import simplify
from finetti.boolean.network.cls_network import ClsNetwork
from finetti.boolean.network.lookup import CORNERS, Lookup, make_lookup
from finetti.display.formatting import plural

BYTES_PER_ENTRY = 48  # of every column at every position: two tables and more, in two precisions
LOOKUP_COPIES = 4  # of its largest matrix, while it is made and run


def compile_cls(refusals: Refusals, options: CompilerOptions, rule: BooleanFunction) -> ClsNetwork:
    """One block: one head and a lookup on s + 1 points for a symmetric rule (Lemma B.5), else one
    head per bit, or one in all for the bag, and a lookup on 2^s points (Lemma B.6)."""
    if rule.sparsity > MAX_TABLE_BITS and rule.profile() is None:
        refusals.add(
            f"it has {rule.sparsity} bits and is not symmetric, and its table of "
            f"2^{rule.sparsity} values is too long: tables end at 2^{MAX_TABLE_BITS}; "
            f"{GATES_ADVICE}"
        )
        count = options.embedding.n_vectors(options.context_length, rule.sparsity, False)
        check_width(refusals, options, count)
        refusals.raise_if_any()
    reduced = simplify(rule)
    reason = values_reason(reduced)
    if reason:
        refusals.add(reason)
    _check_sizes(refusals, options, reduced)
    refusals.raise_if_any()
    relevant = _place(refusals, options, reduced.indices, isinstance(reduced, Symmetric))
    heads = options.embedding.head(relevant, options.margin)
    lookup = _lookup(options.embedding, reduced)
    return ClsNetwork.build(options.embedding, reduced, relevant, heads, lookup)


def _check_sizes(
    refusals: Refusals, options: CompilerOptions, reduced: Symmetric | TruthTable
) -> None:
    """Refuse a lookup, tables or vectors that are too large."""
    sparsity, context, embedding = reduced.sparsity, options.context_length, options.embedding
    scalar = isinstance(reduced, Symmetric)
    points = plural(int(np.count_nonzero(all_values(reduced))), "point")
    size = LOOKUP_COPIES * _lookup_bytes(reduced, embedding)
    refusals.check_memory(f"the matrices of its lookup on {points}", size, GATES_ADVICE)
    if 4 * sparsity > MAX_WEIGHT:
        refusals.add(
            f"its lookup tells {sparsity} bits apart with weights of {4 * sparsity}, and weights "
            f"end at {MAX_WEIGHT:g}; {GATES_ADVICE}"
        )
    tables = BYTES_PER_ENTRY * context * (2 if scalar else 2 * sparsity)
    refusals.check_memory(f"its tables over {context} bits", tables, "choose a shorter context")
    count = embedding.n_vectors(context, sparsity, scalar)
    refusals.check_memory(
        f"the vectors of its {sparsity} relevant bits and their products",
        _vector_bytes(options, sparsity, count),
        'choose fewer bits, or embedding="trained" with basis="random"',
    )
    check_width(refusals, options, count)


def _lookup_bytes(function: Symmetric | TruthTable, embedding: Embedding) -> int:
    """What the largest matrix of the lookup takes in float64.

    Bumps are shared, one for every level of a coordinate; points of value 0 have no unit.
    """
    sparsity = function.sparsity
    if isinstance(function, Symmetric):
        return 8 * len(CORNERS) * (sparsity + 1)
    n_bumps = sparsity * embedding.n_levels(sparsity)
    n_points = max(1, int(np.count_nonzero(function.table())))
    return 8 * len(CORNERS) * n_bumps * 2 * n_points


def _vector_bytes(options: CompilerOptions, sparsity: int, count: int) -> int:
    """What relevant vectors, their duals and their products take."""
    if not isinstance(options.basis, str):
        width = np.shape(options.basis)[-1] if np.ndim(options.basis) else 0
    elif options.basis == "orthonormal":
        width = count
    else:
        width = automatic_width(options.context_length, sparsity)
    if options.embedding.marks_relevant:
        return 8 * count * width
    return 3 * 8 * sparsity * (width + sparsity)


def _place(
    refusals: Refusals, options: CompilerOptions, indices: tuple[int, ...], scalar: bool
) -> Relevant:
    """The best positions, and what was measured of those that are relevant."""
    embedding, sparsity = options.embedding, len(indices)
    count = embedding.n_vectors(options.context_length, sparsity, scalar)
    places = tuple(range(count)) if embedding.marks_relevant else indices

    def build(vectors: BitPositions) -> tuple[Relevant, float, str]:
        geometry = measure_geometry(vectors, places)
        joint = embedding.joint_key(scalar)
        dependent = joint and not geometry.independent
        gap = geometry.joint_gap if joint else geometry.single_gap
        gap = 0.0 if dependent else gap
        free = plural(vectors.width - RESERVED, "free coordinate")
        complaint = (
            f"sparsity {sparsity} is more than {free} can tell apart: the vectors of the relevant "
            "positions are linearly dependent; choose a larger width"
            if dependent
            else f"sparsity {sparsity} is above what width {vectors.width} allows: the scores of "
            f"the relevant positions exceed the others by {gap:.3g} of their size (needed: "
            f"{MIN_GAP}) at a coherence of {geometry.coherence:.3g}; leave width free, or choose a "
            "larger one"
        )
        positions = embedding.place(vectors, options.context_length, indices)
        return Relevant(positions, geometry, indices, scalar), gap, complaint

    factor = 1 if embedding.own_keys(scalar) else max(1, sparsity)
    request = VectorRequest(count, automatic_width(count, factor), indices)
    return search_width(refusals, options, request, build)


def _lookup(embedding: Embedding, reduced: Symmetric | TruthTable) -> Lookup:
    """The values at the features without noise, one per number of ones or per setting."""
    sparsity, scalar = reduced.sparsity, isinstance(reduced, Symmetric)
    by_count = embedding.by_count(sparsity)[:, None]
    points = by_count if scalar else embedding.by_setting(all_bits(sparsity))
    return make_lookup(points, all_values(reduced), embedding.tolerance(sparsity, scalar))

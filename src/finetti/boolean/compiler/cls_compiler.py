"""From a rule to weights: parse → simplify → plan → head → lookup → verify."""

from functools import lru_cache
from typing import Any

import numpy as np

from finetti.boolean.compiled import Compiled
from finetti.boolean.compiler.compiler_options import MAX_BYTES, CompilerArguments, check_arguments
from finetti.boolean.compiler.width_search import (
    MAX_TABLE_BYTES,
    Attempt,
    Found,
    PositionRequest,
    choose_positions,
)
from finetti.boolean.domain import MAX_WEIGHT, all_values, values_reason
from finetti.boolean.embeddings.position_geometry import MIN_GAP, automatic_width, measure_geometry
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions
from finetti.boolean.embeddings.token_embedding import Embedding, HeadMatrices, Relevant
from finetti.boolean.language.families import Symmetric
from finetti.boolean.language.parser import as_function
from finetti.boolean.language.rule import MAX_TABLE_BITS, BooleanFunction, all_bits
from finetti.boolean.language.simplify import simplify
from finetti.boolean.language.truth_table import TruthTable
from finetti.boolean.network.block import Block
from finetti.boolean.network.lookup import CORNERS, Lookup, make_lookup
from finetti.boolean.refusals import GATES_ADVICE, Refusals, readable_bytes
from finetti.boolean.verify.verification import OnProgress
from finetti.boolean.words import counted

BYTES_PER_ENTRY = 48  # of every column at every position: two tables and more, in two precisions
MAX_KEPT_BITS = 64  # of contexts whose heads are kept


def compile(
    function: BooleanFunction | str,
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
    """A one-layer Transformer that computes ``function`` exactly on all inputs of its context.

    Symmetric rules take one head and a lookup on s + 1 points (Lemma B.5), others one head per bit
    (one in all for the bag) and a lookup on 2^s points (Lemma B.6).

    Args:
        function: a `BooleanFunction`, or an expression for `parse`.
        context_length: T, how many bits there are.
        embedding: "deterministic": tokens E_b + v_t (Lemma B.2); "trained": positions mark the
            relevant bits only (B.3); "bag": tokens b_t v_t without order (B.4).
        basis: "orthonormal": v_t, T dimensions; "random": signs in O(s log T) dimensions; or the T
            unit vectors themselves, as rows.
        width: d, with three dimensions for e_0, e_1 and v_[CLS]; chosen by default.
        coherence: the largest |⟨v_i, v_j⟩| that relevant vectors may have with others.
        margin: at least 1; the head's error is at most δ/margin, where δ is what the lookup
            tolerates.
        seed: of the random basis.
        max_bytes: refuse a lookup (or a random basis) larger than this.
        on_progress: is told the share of the inputs that have been run against the rule.

    Raises:
        InputError: with every reason why the rule cannot be compiled so.

    >>> compiled = compile("x3 & (x7 | ~x9)", context_length=10)
    >>> compiled.predict([[0, 0, 0, 1, 0, 0, 0, 1, 0, 1], [1] * 3 + [0] * 7]).round(6).tolist()
    [1.0, 0.0]
    >>> compiled.check.method, compiled.certificate.n_heads
    ('all 2^10 = 1024 inputs', 3)

    Reference: Section 4.4 and Appendix B, edelman2022 (Proposition 4.7).
    """
    rule = as_function(function, "compile")
    refusals = Refusals()
    arguments = check_arguments(
        refusals, rule, context_length, embedding, basis, width, coherence, margin, seed, max_bytes
    )
    reduced = _simplify(refusals, rule)
    request = _plan(refusals, arguments, rule, reduced)
    heads = _heads(refusals, request) if request else None
    refusals.raise_if_any()
    assert heads is not None  # or there was a reason
    assert reduced is not None
    positions, matrices = heads
    block = Block.at_cls(matrices, _lookup(arguments.embedding, reduced))
    made_as = {"function": rule, "settings": arguments.settings}
    compiled = Compiled.build(arguments.embedding, positions, (block,), **made_as)
    compiled.raise_if_wrong(on_progress)
    return compiled


Reduced = Symmetric | TruthTable | None  # None: its table would be too long


def _simplify(refusals: Refusals, rule: BooleanFunction) -> Reduced:
    """The rule on the bits that matter, or None and the reason."""
    if rule.sparsity > MAX_TABLE_BITS and rule.profile() is None:
        refusals.add(
            f"it has {rule.sparsity} bits and is not symmetric, and its table of "
            f"2^{rule.sparsity} values is too long: tables end at 2^{MAX_TABLE_BITS}; "
            f"{GATES_ADVICE}"
        )
        return None
    reason = values_reason(rule)
    refusals.unless(not reason, reason)
    return simplify(rule)


def _plan(
    refusals: Refusals, arguments: CompilerArguments, rule: BooleanFunction, reduced: Reduced
) -> PositionRequest | None:
    """What is to be read: without a table, all bits of the rule, each by itself. None if its
    lookup, tables or vectors are too large."""
    indices = tuple(sorted(rule.indices)) if reduced is None else reduced.indices
    scalar, sparsity, context = (
        isinstance(reduced, Symmetric),
        len(indices),
        arguments.context_length,
    )
    size = 0 if reduced is None else _lookup_bytes(reduced, arguments.embedding)
    if reduced is not None and size > arguments.max_bytes:
        refusals.add(
            f"its lookup on {counted(int(np.count_nonzero(all_values(reduced))), 'point')} "
            f"takes {readable_bytes(size)}, above the budget of "
            f"{readable_bytes(arguments.max_bytes)}; raise `max_bytes`, or {GATES_ADVICE}"
        )
    refusals.unless(
        4 * sparsity <= MAX_WEIGHT,
        f"its lookup tells {sparsity} bits apart with weights of {4 * sparsity}, and weights "
        f"end at {MAX_WEIGHT:g}; {GATES_ADVICE}",
    )
    limit = readable_bytes(MAX_TABLE_BYTES)
    tables = BYTES_PER_ENTRY * context * (2 if scalar else 2 * sparsity)
    tables_fit = refusals.unless(
        tables <= MAX_TABLE_BYTES,
        f"its tables over {context} bits take {readable_bytes(tables)}, and tables end at {limit}; "
        "choose a shorter context",
    )
    vectors = _vector_bytes(arguments, sparsity)
    vectors_fit = refusals.unless(
        vectors <= MAX_TABLE_BYTES,
        f"the vectors of its {sparsity} relevant bits and their products take "
        f"{readable_bytes(vectors)}, and these end at {limit}; choose fewer bits, or "
        'embedding="trained"',
    )
    length = arguments.length_to_try(rule.indices)
    if length is None or not (tables_fit and vectors_fit):
        return None
    return PositionRequest(arguments, "compile", f"sparsity {sparsity}", length, indices, scalar)


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


def _vector_bytes(arguments: CompilerArguments, sparsity: int) -> int:
    """What relevant vectors, their duals and their products take."""
    if arguments.embedding.marks_relevant:
        return 0  # a vector of its own for few, and one for all of a symmetric rule
    if not isinstance(arguments.basis, str):
        width = np.shape(arguments.basis)[-1] if np.ndim(arguments.basis) else 0
    elif arguments.basis == "orthonormal":
        width = arguments.context_length
    else:
        width = automatic_width(arguments.context_length, sparsity, None)
    return 3 * 8 * sparsity * (width + sparsity)


def _heads(
    refusals: Refusals, request: PositionRequest
) -> tuple[BitPositions, HeadMatrices] | None:
    """The best positions and the heads on them, or None and the reasons."""
    kept = request.context_length <= MAX_KEPT_BITS and isinstance(request.arguments.basis, str)
    found, reasons = _kept_heads(request) if kept else _new_heads(request)
    refusals.add(*reasons)
    return found


def _new_heads(request: PositionRequest) -> Found:
    asked, indices, scalar = request.arguments, request.indices, request.scalar
    embedding, count, sparsity = asked.embedding, request.n_vectors, len(indices)
    places = tuple(range(count)) if embedding.marks_relevant else indices

    def build(vectors: BitPositions) -> Attempt:
        geometry = measure_geometry(vectors, places)
        dependent = embedding.joint_key(scalar) and not geometry.independent
        gap = geometry.joint_gap if embedding.joint_key(scalar) else geometry.single_gap
        gap = 0.0 if dependent else gap
        free = counted(vectors.width - RESERVED, "free coordinate")
        complaint = (
            f"sparsity {sparsity} is more than {free} can tell apart: the vectors of the relevant "
            "positions are linearly dependent; choose a larger width"
            if dependent
            else f"sparsity {sparsity} is above what width {vectors.width} allows: the scores of "
            f"the relevant positions exceed the others by {gap:.3g} of their size (needed: "
            f"{MIN_GAP}) at a coherence of {geometry.coherence:.3g}; leave width free, or choose a "
            "larger one"
        )
        positions = embedding.place(vectors, request.context_length, indices)
        relevant = Relevant(positions, geometry, indices, scalar)
        return Attempt(relevant, gap, geometry.coherence, complaint)

    factor = 1 if embedding.own_keys(scalar) else max(1, sparsity)
    first_width = automatic_width(count, factor, asked.coherence)
    relevant, reasons = choose_positions(request, build, first_width)
    if relevant is None:
        return None, reasons
    return (relevant.positions, embedding.head(relevant, float(asked.margin))), reasons


_kept_heads = lru_cache(maxsize=256)(_new_heads)


def _lookup(embedding: Embedding, reduced: Symmetric | TruthTable) -> Lookup:
    """The values at the features without noise, one per number of ones or per setting."""
    sparsity, scalar = reduced.sparsity, isinstance(reduced, Symmetric)
    by_count = embedding.by_count(sparsity)[:, None]
    points = by_count if scalar else embedding.by_setting(all_bits(sparsity))
    return make_lookup(points, all_values(reduced), embedding.tolerance(sparsity, scalar))

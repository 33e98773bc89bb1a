"""From a rule of gates to a deep network: split → positions → one block per level → verify."""

from typing import Any

import numpy as np

from finetti.boolean.basis import GOOD_GAP, GROWTH, MAX_GROWTHS, automatic_width, draw_basis
from finetti.boolean.compiler import BASES, MAX_BYTES, check_context, check_whole, check_width
from finetti.boolean.compose.block import Layout, head_counts, make_block, make_reads
from finetti.boolean.compose.composed import Composed
from finetti.boolean.compose.gates import SparseGate, as_tree, split
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.network.positions import RESERVED, Positions
from finetti.boolean.parser import parse
from finetti.boolean.planning import LEAST_GAP
from finetti.boolean.refusals import Refusals, readable_bytes
from finetti.core.errors import FinettiError, InputError


def compose(
    rule: BooleanFunction | str,
    context_length: int,
    basis: Any = "orthonormal",
    width: int | None = None,
    seed: int = 0,
    max_bytes: int = MAX_BYTES,
) -> Composed:
    """A network with one block per level of gates, so that sparsity counts per gate.

    An AND of ten ORs of five bits each depends on 50 bits, too many for one lookup; here no gate
    reads more than ten. Blocks are attention + lookup + residual, with the heads of Lemma B.2
    (deterministic positions) and the lookup of Lemma B.8; the composition is not in the paper.

    Args:
        rule: an expression, whose parentheses make the gates; or a family such as `And`, one gate.
        context_length: T.
        basis: "orthonormal" or "random", for the positions of the bits.
        width: dimensions of bits and positions, chosen by default; gates and features add theirs.
        seed: of the random basis.
        max_bytes: refuse a lookup larger than this.

    >>> network = compose("(x1 | x2 | x3) & (x4 | ~x5) & maj(x6, x7, x8)", context_length=12)
    >>> network.depth, len(network.gates), network.certificate.check.exact
    (2, 4, True)
    """
    function = parse(rule) if isinstance(rule, str) else as_tree(rule)
    refusals = Refusals("The rule")
    check_context(refusals, function, context_length)
    check_width(refusals, width)
    check_whole(refusals, seed=seed, max_bytes=max_bytes)
    gates: tuple[SparseGate, ...] = ()
    try:
        gates = split(function)
    except InputError as error:
        said = str(error).rstrip(".")
        refusals.add(said[0].lower() + said[1:])
    if not isinstance(basis, str) or basis not in BASES:
        refusals.add(f"basis {basis!r} is neither orthonormal nor random")
    for gate in gates:
        size = _lookup_bytes(gate)
        if size > max_bytes:
            refusals.add(
                f"the lookup of the gate {gate.text} takes {readable_bytes(size)}, above the "
                f"budget of {readable_bytes(max_bytes)}; split it, or raise max_bytes"
            )
    if basis == "orthonormal" and isinstance(width, int) and width < RESERVED + context_length:
        refusals.add(
            f"width {width} is too small for {context_length} orthonormal vectors beside e_0, e_1 "
            f'and v_[CLS]: at least {RESERVED + context_length}, or basis="random"'
        )
    refusals.raise_if_any()
    layout, gap = _choose_layout(gates, context_length, basis, width, seed)
    if gap < LEAST_GAP:
        refusals.add(
            f"a gate's sparsity is above what width {layout.basis_width} allows: its sources lead "
            f"by {gap:.3g} (needed: {LEAST_GAP}); leave width free, or choose a larger one"
        )
    refusals.raise_if_any()
    depth = max(gate.level for gate in gates)
    blocks = tuple(make_block(gates, level, layout) for level in range(1, depth + 1))
    settings = {"basis": basis, "width": width, "seed": seed}
    composed = Composed(function, gates, layout, blocks, settings)
    if not composed.certificate.check.exact:
        found = composed.certificate.check.counterexample
        raise FinettiError(f"The compiled network is wrong {found}: choose a larger width.")
    return composed


def _lookup_bytes(gate: SparseGate) -> int:
    if gate.symmetric:
        return 0
    n_points = int(np.count_nonzero(gate.function.table()))
    return 8 * 4 * 2 * gate.sparsity * n_points


def lay_out(gates: tuple[SparseGate, ...], positions: Positions) -> Layout:
    """Where positions, gates and the features of each level are in a token."""
    first = [positions.width + len(gates)]
    for level in range(1, max(gate.level for gate in gates) + 1):
        mean, n_single = head_counts(gates, level)
        first.append(first[-1] + int(mean) + n_single)
    return Layout(positions, len(gates), tuple(first[:-1]), first[-1])


def _choose_layout(
    gates: tuple[SparseGate, ...], count: int, basis: Any, width: int | None, seed: int
) -> tuple[Layout, float]:
    """The layout on positions that are wide enough, and the least lead that a gate has."""
    largest = max(gate.sparsity if gate.symmetric else 1 for gate in gates)
    if basis == "orthonormal":
        given = RESERVED + count if width is None else width
        layout = lay_out(gates, draw_basis("orthonormal", count, given, seed))
        return layout, 1.0
    tried = automatic_width(count, largest, None) if width is None else width
    layout, gap = None, 0.0
    for _ in range(MAX_GROWTHS):
        layout = lay_out(gates, draw_basis("random", count, max(tried, RESERVED + 1), seed))
        gap = min(
            read.gap
            for which, gate in enumerate(gates)
            for read in make_reads(gates, which, layout, head_counts(gates, gate.level)[0])
        )
        if gap >= GOOD_GAP or width is not None:
            break
        tried = RESERVED + int(GROWTH * (tried - RESERVED)) + 1
    assert layout is not None  # MAX_GROWTHS is positive
    return layout, gap

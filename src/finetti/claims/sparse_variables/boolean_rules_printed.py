"""Errata 6 and 16: the lookup as printed."""

import numpy as np

from finetti import boolean
from finetti.boolean.embeddings import find_embedding
from finetti.boolean.functions.base import all_bits
from finetti.boolean.network.lookup import CORNERS, SIGNS, make_lookup
from finetti.boolean.printed import printed_bump
from finetti.claims.claim import Context, claim
from finetti.claims.evidence import Evidence, Measurement, at_most, within


def wrong_inputs(rule: str, factor: float) -> int:
    """Inputs of all 2^10 at which the lookup with δ = γ·factor is wrong; values are ±1, so that
    every point has its unit."""
    length = 10
    reduced = boolean.simplify(boolean.parse(rule))
    signs = boolean.TruthTable(reduced.indices, 2 * reduced.table() - 1)
    compiled = boolean.compile(signs, length)
    points = find_embedding("deterministic").by_setting(all_bits(signs.sparsity))
    lookup = make_lookup(points, signs.table(), 2.0 * factor)
    outputs = lookup(compiled.head.tables.all_features)
    return int((np.abs(outputs - signs(all_bits(length))) > 1e-9).sum())


@claim(
    id="S-erratum-6",
    title="printed: δ = γ/8",
    statement="The head of Lemmas B.2 and B.3 errs by up to γ/4, and the lookup with δ = γ/8 is "
    "exact on it.",
    label="Lemmas B.5 and B.6",
    erratum="The lookup must tolerate γ/4: δ = γ/4, for which points γ = 4δ apart are far enough.",
)
def s_erratum_6(context: Context) -> Evidence:
    """Wrong inputs of all 1024 at T = 10, δ = γ/8 and γ/4: one bit, and three with three heads."""

    def measured(factor: float) -> tuple[Measurement, ...]:
        return (
            at_most("wrong inputs, s = 1", wrong_inputs("x2", factor), 0),
            at_most("wrong inputs, three heads", wrong_inputs("x3 & (x7 | ~x9)", factor), 0),
        )

    return Evidence(
        *measured(1 / 8),
        derived=measured(1 / 4),
        note="One-head rules of s ≥ 2 bits and the bag happen to pass with γ/8 too.",
    )


@claim(
    id="S-erratum-16",
    title="printed: the bump of the lookup, and its bound on W_1",
    statement="The bump ψ = r(z+2) − r(z+1) − r(2−z) + r(1−z) of Lemma B.8, z = (x − a)/δ, is 1 "
    "within δ of its point, and ‖W_1‖_∞ ≤ max(1, B)/δ.",
    label="Lemma B.8",
    erratum="Both of its steps are 1 there, and it is 0. ψ = r(z+2) − r(z+1) − r(z−1) + r(z−2) is "
    "1. The bound is max(1, B + 2δ)/δ.",
)
def s_erratum_16(context: Context) -> Evidence:
    """Both bumps within δ of their point, and the entries of W_1 and its biases against a bound."""
    near = np.linspace(-1, 1, 21)  # z = (x − a)/δ
    printed, bump = printed_bump(near), np.maximum(near[:, None] + CORNERS, 0) @ SIGNS
    points, tolerance = np.array([[-1.0], [1.0]]), 0.5
    lookup = make_lookup(points, np.ones(2), tolerance)
    largest = max(np.abs(lookup.inner).max(), np.abs(lookup.inner_bias).max())
    radius = np.abs(points).max()
    derived = max(1.0, radius + 2 * tolerance) / tolerance
    return Evidence(
        within("largest bump within δ of its point", np.abs(printed).max(), 1.0, 1.0),
        at_most("‖W_1‖_∞ against max(1, B)/δ", largest, max(1.0, radius) / tolerance),
        derived=(
            within("least bump within δ of its point", bump.min(), 1 - 1e-12, 1.0),
            within("largest bump within δ of its point", bump.max(), 1.0, 1 + 1e-12),
            at_most("‖W_1‖_∞ against max(1, B + 2δ)/δ", largest, derived),
        ),
    )

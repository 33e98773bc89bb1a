"""Erratum 6: a lookup with δ = γ/8 does not bear the head's noise of γ/4."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Measurement, Verdict, at_most

LENGTH = 10


def wrong_inputs(rule: str, factor: float) -> int:
    """Inputs of all 2^10 at which the lookup with δ = γ·factor is wrong; values are ±1, so that
    every point has its unit."""
    from finetti.boolean import TruthTable, compile, parse, simplify
    from finetti.boolean.embeddings import find_embedding
    from finetti.boolean.functions.base import all_bits
    from finetti.boolean.network.lookup import make_lookup

    reduced = simplify(parse(rule))
    signs = TruthTable(reduced.indices, 2 * reduced.table() - 1)
    compiled = compile(signs, LENGTH)
    points = find_embedding("deterministic").by_setting(all_bits(signs.sparsity))
    lookup = make_lookup(points, signs.table(), 2.0 * factor)
    outputs = lookup(compiled.head.tables.all_features)
    return int((np.abs(outputs - signs(all_bits(LENGTH))) > 1e-9).sum())


def run(context: Context) -> Evidence:
    """Wrong inputs of all 1024 at T = 10, δ = γ/8 and γ/4: one bit, and three with three heads."""

    def measured(factor: float) -> tuple[Measurement, ...]:
        return (
            at_most("wrong inputs, s = 1", wrong_inputs("x2", factor), 0),
            at_most("wrong inputs, three heads", wrong_inputs("x3 & (x7 | ~x9)", factor), 0),
        )

    return Evidence(
        measured(1 / 8),
        derived=measured(1 / 4),
        note="One-head rules of s ≥ 2 bits and the bag happen to pass with γ/8 too.",
    )


CLAIM = Claim(
    id="S-erratum-6",
    title="printed: δ = γ/8",
    statement="The head of Lemmas B.2 and B.3 errs by up to γ/4, and the lookup with δ = γ/8 is "
    "exact on it.",
    paper="S",
    label="Lemmas B.5 and B.6",
    run=run,
    expected=Verdict.FAILS,
    erratum="The lookup must bear γ/4: δ = γ/4, for which points γ = 4δ apart are far enough.",
)

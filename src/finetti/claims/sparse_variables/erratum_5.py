"""Erratum 5: over a bag, γ > sΔ is not enough."""

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.sparse_variables.boolean_cases import head_error
from finetti.show.card import Table

LENGTH, SPARSITY, COHERENCE = 10, 3, 0.01


def run(context: Context) -> Evidence:
    """The printed head's largest error at Δ = .01, where γ > 4sΔ, against γ/4."""
    from finetti.boolean import And, compile
    from finetti.boolean.embeddings.printed import coherent_basis, printed_bag_head

    places, separation = tuple(range(SPARSITY)), 1 / SPARSITY
    vectors = coherent_basis(LENGTH, COHERENCE, (1, 1, 1))
    printed = head_error(printed_bag_head(vectors, SPARSITY, COHERENCE), places, scalar=True)
    repaired = compile(And(places), LENGTH, "bag", vectors)
    derived = head_error(repaired.head, places, scalar=True)
    row = (separation, 4 * SPARSITY * COHERENCE, printed, derived, separation / 4)
    columns = ("γ", "4sΔ", "printed", "dual vectors", "allowed")
    return Evidence(
        (at_most("printed head at Δ = 0.01", printed, separation / 4),),
        derived=(at_most("dual vectors at Δ = 0.01", derived, separation / 4),),
        note="Dual vectors on the key and on the value side need no condition (S-lemma-B.4).",
        tables=(Table(f"Largest head error, T = {LENGTH}, s = 3", columns, (row,)),),
    )


CLAIM = Claim(
    id="S-erratum-5",
    title="printed: over a bag γ > sΔ is enough",
    statement="With keys Σ_Iv_i + v_[CLS] and values v_i the head of Lemma B.4 is within γ/4 of "
    "g_I whenever γ > sΔ.",
    paper="S",
    label="Lemma B.4",
    run=run,
    expected=Verdict.FAILS,
    erratum="Not even γ > 4sΔ suffices. Dual vectors do, for any γ. The tokens are diag(b)V, and "
    "g_I(r) = (r − s)/(r + 1), which lost its denominator.",
)

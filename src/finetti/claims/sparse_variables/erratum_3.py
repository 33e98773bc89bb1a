"""Erratum 3: the sum of the relevant vectors does not score them equally."""

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.sparse_variables.boolean_cases import head_error
from finetti.show.card import Table

LENGTH, SPARSITY = 8, 3


def run(context: Context) -> Evidence:
    """The printed head's largest error at Δ = .05 and .10 against γ/4, beside the repaired one."""
    from finetti.boolean import And, compile
    from finetti.boolean.embeddings.printed import coherent_basis, printed_mean_head

    places, allowed = tuple(range(SPARSITY)), 2 / SPARSITY / 4
    rows, measurements, derived = [], [], []
    for coherence in (0.10, 0.05):
        vectors = coherent_basis(LENGTH, coherence)
        errors = []
        for boost in (1.0, 2.0):
            weights = printed_mean_head(vectors, SPARSITY, coherence, boost)
            errors.append(head_error(weights, places, scalar=True))
        repaired = compile(And(places), LENGTH, basis=vectors)
        error = head_error(repaired.head, places, scalar=True)
        rows.append((coherence, *errors, error, allowed))
        derived.append(at_most(f"dual vector at Δ = {coherence}", error, allowed))
        measurements.append(at_most(f"printed head at Δ = {coherence}", errors[0], allowed))
    columns = ("Δ", "printed", "printed, R doubled", "dual vector", "allowed")
    return Evidence(
        tuple(measurements),
        derived=tuple(derived),
        note="A larger R makes it worse: the three scores are not equal, so the mixture is not "
        "uniform. S-lemma-B.2 is the repair.",
        tables=(Table(f"Largest head error, T = {LENGTH}, s = 3", columns, tuple(rows)),),
    )


CLAIM = Claim(
    id="S-erratum-3",
    title="printed: the key v_I = Σv_i for Δ < 1/s",
    statement="With the key Σ_Iv_i and R = log(8T/γ)/(1 − sΔ) the head of Lemma B.2 is within γ/4 "
    "of (1/s)Σ_Iχ_i whenever Δ < 1/s.",
    paper="S",
    label="Lemma B.2",
    run=run,
    expected=Verdict.FAILS,
    erratum="Scores on I differ by up to 2(s−1)Δ·R. The dual vector V_I(V_IᵀV_I)^{-1}1 makes them "
    "equal; its gap is at least (1−(2s−1)Δ)/(1−(s−1)Δ).",
)

"""Proposition 4.7 (B.1): Transformers represent sparse Boolean functions with small norms."""

from finetti.claims.claim import Claim, Context, Evidence, at_most, close
from finetti.claims.sparse_variables.boolean_cases import BASES, EMBEDDINGS, THREE

LENGTH = 10


def run(context: Context) -> Evidence:
    """All 256 functions of three bits, every embedding, both bases, on all inputs; then growth."""
    from finetti.boolean import And, TruthTable, compile
    from finetti.show.card import Table

    error, n_inputs, too_many = 0.0, 0, 0
    for number in range(256):
        rule = TruthTable(THREE, [(number >> place) & 1 for place in range(8)])
        for embedding in EMBEDDINGS:
            for basis in BASES:
                compiled = compile(rule, LENGTH, embedding, basis)
                error = max(error, compiled.check.error64)
                n_inputs += compiled.check.n_inputs
                too_many += compiled.head.n_heads > (1 if embedding == "bag" else len(THREE))
    rows, largest = [], 0.0
    lengths = context.pick(quick=(10**2, 10**3, 10**4, 10**5), paper=(10**2, 10**4, 10**6))
    for length in lengths:
        compiled = compile(And(THREE), length, basis="random")
        norms = {norm.name: norm for norm in compiled.certificate.norms}
        query = norms["‖W_Q‖_F"]
        largest = max(largest, *(norm.value / norm.bound for norm in norms.values()))
        rows.append((length, compiled.head.width, query.value, query.bound))
    return Evidence(
        (
            close(f"largest error on all {n_inputs} inputs", error, 1e-9),
            at_most("networks with more heads than the proposition says", too_many, 0),
            at_most("norm / bound at any T", largest, 1 + 1e-9),
        ),
        note="Width and ‖W_Q‖ of the 3-bit AND on a random basis grow like log T.",
        tables=(Table("AND of 3 bits", ("T", "width", "‖W_Q‖_F", "bound"), tuple(rows)),),
    )


CLAIM = Claim(
    id="S-prop-4.7",
    title="one layer computes every sparse Boolean function",
    statement="Every s-sparse Boolean function is computed exactly by one layer with norms of "
    "order log T: by one head if it is symmetric or the input a bag of vectors, else by s heads.",
    paper="S",
    label="Proposition 4.7 (B.1)",
    run=run,
)

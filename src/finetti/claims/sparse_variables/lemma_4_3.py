"""Lemma 4.3: a head moves no more than its scores and its values."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.perturbations import DRAWS, evidence, nearby, ratios
from finetti.claims.sparse_variables import draws
from finetti.claims.sparse_variables.instances import AXES, first_axis, two_tokens


def run(context: Context) -> Evidence:
    """Both sides on random heads, and on two tokens whose scores move apart."""
    from finetti.attention.networks.head import Head

    def lemma(q, k, v, c, q2, k2, v2, tokens, query):
        head, other = Head.transformer(q, k, v, c, "gelu"), Head.transformer(q2, k2, v2, c, "gelu")
        return lipschitz.head_perturbation(head, other, tokens, query)

    rng = context.generator(CLAIM.id)
    weights = draws.weights(rng, DRAWS)
    moved = nearby(rng, weights[:3])
    query = rng.normal(size=(DRAWS, draws.DIMENSION))
    found = ratios(lemma, *weights, *moved, draws.tokens(rng, DRAWS), query)
    still = Head.transformer(first_axis(0.0), AXES, AXES, AXES)
    scored = Head.transformer(first_axis(1e-3), AXES, AXES, AXES)
    valued = Head.transformer(first_axis(0.0), AXES, 1.1 * AXES, AXES)
    two = two_tokens(3.0)
    tight = {
        "two tokens, scores moved": lipschitz.head_perturbation(still, scored, two, two[0]),
        "one token, values moved": lipschitz.head_perturbation(still, valued, two[:1], two[0]),
    }
    return evidence(found, tight)


CLAIM = Claim(
    id="S-lemma-4.3",
    title="a head moves no more than its scores and values",
    statement="‖f − f̂‖ ≤ C_Norm L_out B_in B_X ‖Score − Score^‖_∞ + L_out ‖φ_in − φ̂_in‖_{2,∞}, "
    "with C_Norm = 1 for softmax.",
    paper="S",
    label="Lemma 4.3",
    run=run,
)

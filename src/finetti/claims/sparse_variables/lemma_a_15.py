"""Lemma A.15: how far a layer moves with its weights and its tokens."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.perturbations import DRAWS, evidence, nearby, ratios
from finetti.claims.sparse_variables import draws
from finetti.claims.sparse_variables.instances import AXES, balanced, layer


def run(context: Context) -> Evidence:
    """Both sides on random pairs of layers, and on the tight instance of Lemma A.14."""

    def lemma(tokens, other, *weights):
        layers = draws.build(*weights[:4]), draws.build(*weights[4:])
        return lipschitz.layer_perturbation(*layers, tokens, other)

    rng = context.generator(CLAIM.id)
    weights = draws.weights(rng, DRAWS)
    tokens = draws.tokens(rng, DRAWS)
    (other,) = nearby(rng, [tokens])
    found = ratios(lemma, tokens, other, *weights, *nearby(rng, weights))
    matrix, before, after = balanced(score_norm=50.0, step=1e-6)
    # Values a tenth as long: no row reaches the ball, so that the projections change nothing.
    same = layer(matrix, values=0.1 * AXES)
    return evidence(found, {"‖M‖ = 50": lipschitz.layer_perturbation(same, same, before, after)})


CLAIM = Claim(
    id="S-lemma-A.15",
    title="a layer moves no more than its weights and tokens",
    statement="A layer multiplies a deviation of its tokens by at most L_σB_CB_V(1 + 2B_QK r²), "
    "and adds its own: ‖ΔW_Cᵀσ(Πf)ᵀ‖ + L_σB_CB_V r²‖ΔMĝᵀ‖ + L_σB_C‖ΔW_Vᵀĝᵀ‖.",
    paper="S",
    label="Lemma A.15",
    run=run,
)

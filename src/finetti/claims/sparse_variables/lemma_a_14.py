"""Lemma A.14: how far attention moves with its tokens."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.perturbations import DRAWS, evidence, nearby, ratios
from finetti.claims.sparse_variables import draws
from finetti.claims.sparse_variables.instances import balanced, layer


def run(context: Context) -> Evidence:
    """Both sides on random layers, and on a query that reads 200 tokens e₁ and 200 tokens −e₁."""

    def lemma(tokens, other, *weights):
        return lipschitz.attention_token_perturbation(draws.build(*weights), tokens, other)

    rng = context.generator(CLAIM.id)
    tokens = draws.tokens(rng, DRAWS)
    (other,) = nearby(rng, [tokens])
    found = ratios(lemma, tokens, other, *draws.weights(rng, DRAWS))
    matrix, before, after = balanced(score_norm=50.0, step=1e-6)
    tight = lipschitz.attention_token_perturbation(layer(matrix), before, after)
    return evidence(
        found, {"‖M‖ = 50": tight}, "With C = 2, as printed, the instance would reach 0.5."
    )


CLAIM = Claim(
    id="S-lemma-A.14",
    title="attention moves no more than its tokens, times 1 + 2‖M‖",
    statement="‖f(Z;W) − f(Ẑ;W)‖_{2,∞} ≤ ‖W_V‖(1 + 2‖M‖r²)‖Z − Ẑ‖_{2,∞} for tokens of length at "
    "most r, M = W_QW_Kᵀ.",
    paper="S",
    label="Lemma A.14",
    run=run,
)

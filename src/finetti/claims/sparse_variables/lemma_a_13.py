"""Lemma A.13: how far attention moves with its weights."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.perturbations import DRAWS, evidence, nearby, ratios
from finetti.claims.sparse_variables import draws
from finetti.claims.sparse_variables.instances import first_axis, layer, two_tokens


def run(context: Context) -> Evidence:
    """Both sides on random layers, and on the two tokens ±e₁ while M leaves 0."""

    def lemma(tokens, *weights):
        layers = draws.build(*weights[:4]), draws.build(*weights[4:])
        return lipschitz.attention_weight_perturbation(*layers, tokens)

    rng = context.generator(CLAIM.id)
    weights = draws.weights(rng, DRAWS)
    moved = nearby(rng, weights)
    found = ratios(lemma, draws.tokens(rng, DRAWS), *weights, *moved)
    pair = layer(first_axis(0.0)), layer(first_axis(1e-3))
    tight = {
        f"tokens of length {size:g}": lipschitz.attention_weight_perturbation(
            *pair, two_tokens(size)
        )
        for size in (1.0, 2.0)
    }
    return evidence(found, tight, "With C = 2, as printed, both instances would reach 0.5.")


CLAIM = Claim(
    id="S-lemma-A.13",
    title="attention moves no more than its weights",
    statement="‖f(Z;W) − f(Z;Ŵ)‖_{2,∞} ≤ ‖W_V‖r²‖(M − M̂)Zᵀ‖_{2,∞} + ‖(W_V − Ŵ_V)ᵀZᵀ‖_{2,∞} for "
    "tokens of length at most r, M = W_QW_Kᵀ.",
    paper="S",
    label="Lemma A.13",
    run=run,
)

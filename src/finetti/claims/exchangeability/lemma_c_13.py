"""Lemma C.13: how far heads move with their tokens."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.exchangeability import instances
from finetti.claims.perturbations import DRAWS, evidence, nearby, ratios


def run(context: Context) -> Evidence:
    """Both sides on random heads, and on two tokens ±e₁ that move the same way."""

    def lemma(tokens, other, *weights):
        return lipschitz.heads_token_perturbation(instances.heads(*weights), tokens, other)

    rng = context.generator(CLAIM.id)
    tokens = instances.tokens(rng, DRAWS)
    (other,) = nearby(rng, [tokens])
    found = ratios(lemma, tokens, other, *instances.weights(rng, DRAWS))
    axes = instances.AXES
    before = axes[:1] * [[1.0], [-1.0]]
    sharp = instances.heads(0 * axes[None], 40 * axes[None], axes[None])
    tight = lipschitz.heads_token_perturbation(sharp, before, before + 1e-6 * axes[0])
    return evidence(found, {"ω_k = 40, ω_q = 0": tight})


CLAIM = Claim(
    id="E-lemma-C.13",
    title="heads move no more than their tokens, times ρ",
    statement="‖MHA(X;W) − MHA(X̂;W)‖_{2,∞} ≤ ρ‖X − X̂‖_{2,∞} with ρ = Σω_v + σ⁻²R²Σ(ω_q + ω_k)²ω_v.",
    paper="E",
    label="Lemma C.13",
    run=run,
)

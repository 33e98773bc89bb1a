"""Lemma C.13: how far heads move with their tokens."""

from functools import partial

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Control, Evidence
from finetti.claims.exchangeability import instances
from finetti.claims.perturbations import DRAWS, evidence, nearby, ratios
from finetti.core.forms import Form


def run(context: Context, form: Form = "derived") -> Evidence:
    """Both sides on random heads, and on two equal heads that read tokens ±3e₁ moving one way."""

    def lemma(tokens, other, *weights):
        return lipschitz.heads_token_perturbation(instances.heads(*weights), tokens, other, form)

    rng = context.generator(CLAIM.id)
    tokens = instances.tokens(rng, DRAWS)
    (other,) = nearby(rng, [tokens])
    found = ratios(lemma, tokens, other, *instances.weights(rng, DRAWS))
    axes = instances.AXES
    before = 3 * axes[:1] * [[1.0], [-1.0]]
    sharp = instances.twice(instances.heads(0 * axes[None], 40 * axes[None], 10 * axes[None]))
    pair = before, before + 1e-7 * axes[0]
    tight = lipschitz.heads_token_perturbation(sharp, *pair, form)
    # Without scores the heads take means, and a common change passes ω_v times.
    flat = instances.twice(instances.heads(0 * axes[None], 0 * axes[None], 10 * axes[None]))
    means = lipschitz.heads_token_perturbation(flat, *pair, form)
    return evidence(found, {"ω_k = 40, ω_q = 0, ω_v = 10, R = 3": tight, "ω_q = ω_k = 0": means})


CLAIM = Claim(
    id="E-lemma-C.13",
    title="heads move no more than their tokens, times ρ",
    statement="‖MHA(X;W) − MHA(X̂;W)‖_{2,∞} ≤ ρ‖X − X̂‖_{2,∞} with ρ = Σω_v + σ⁻²R²Σ(ω_q + ω_k)²ω_v.",
    paper="E",
    label="Lemma C.13",
    run=run,
    controls=(Control("1 for σ⁻², as printed", partial(run, form="printed")),),
)

"""Lemma C.13: how far heads move with their tokens."""

from typing import Any

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Control, Evidence
from finetti.claims.exchangeability import instances
from finetti.claims.perturbations import DRAWS, all_attained, evidence, nearby, ratios
from finetti.core.forms import Form


def tight(form: Form = "derived") -> dict[str, Any]:
    """Two equal heads that read tokens ±3e₁, which move the same way."""
    axes = instances.AXES
    before = 3 * axes[:1] * [[1.0], [-1.0]]

    def moved(key_norm: float) -> Any:
        one = instances.heads(0 * axes[None], key_norm * axes[None], 10 * axes[None])
        pair = before, before + 1e-7 * axes[0]
        return lipschitz.heads_token_perturbation(instances.twice(one), *pair, form)

    # Without scores the heads take means, and a common change passes ω_v times.
    return {f"ω_k = {norm:g}, ω_q = 0, ω_v = 10, R = 3": moved(norm) for norm in (40.0, 0.0)}


def run(context: Context) -> Evidence:
    """Both sides on random heads, and on two equal heads that read tokens ±3e₁ moving one way."""

    def lemma(tokens, other, *weights):
        return lipschitz.heads_token_perturbation(instances.heads(*weights), tokens, other)

    rng = context.generator(CLAIM.id)
    tokens = instances.tokens(rng, DRAWS)
    (other,) = nearby(rng, [tokens])
    found = ratios(lemma, tokens, other, *instances.weights(rng, DRAWS))
    return evidence(found, tight())


def _as_printed(context: Context) -> Evidence:
    return Evidence(all_attained(tight("printed")))


CLAIM = Claim(
    id="E-lemma-C.13",
    title="heads move no more than their tokens, times ρ",
    statement="‖MHA(X;W) − MHA(X̂;W)‖_{2,∞} ≤ ρ‖X − X̂‖_{2,∞} with ρ = Σω_v + σ⁻²R²Σ(ω_q + ω_k)²ω_v.",
    paper="E",
    label="Lemma C.13",
    run=run,
    controls=(Control("1 for σ⁻², as printed", _as_printed),),
)

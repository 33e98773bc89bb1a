"""Lemma C.11, corrected: how far heads move with their weights."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.exchangeability import instances
from finetti.claims.perturbations import DRAWS, evidence, nearby, ratios


def run(context: Context) -> Evidence:
    """Both sides on random pairs of heads, and on a query that reads opposite tokens evenly."""

    def lemma(tokens, *weights):
        pair = instances.heads(*weights[:3]), instances.heads(*weights[3:])
        return lipschitz.heads_weight_perturbation(*pair, tokens)

    rng = context.generator(CLAIM.id)
    weights = instances.weights(rng, DRAWS)
    found = ratios(lemma, instances.tokens(rng, DRAWS), *weights, *nearby(rng, weights))
    keys_moved = lipschitz.heads_weight_perturbation(*instances.even_reader(10.0, 1e-4, copies=200))
    axes = instances.AXES
    before, after = (
        instances.heads(0 * axes[None], 0 * axes[None], size * axes[None]) for size in (1.0, 1.2)
    )
    values_moved = lipschitz.heads_weight_perturbation(before, after, axes[:1])
    return evidence(found, {"keys moved, ω_v = 10": keys_moved, "values moved": values_moved})


CLAIM = Claim(
    id="E-lemma-C.11",
    title="heads move no more than their weights",
    statement="‖MHA(X;W) − MHA(X;Ŵ)‖_{2,∞} ≤ RΣε_v + σ⁻²R³Σω_v(ω_q + ω_k)(ε_q + ε_k): the lemma "
    "with the ω_v of its proof.",
    paper="E",
    label="Lemma C.11",
    run=run,
)

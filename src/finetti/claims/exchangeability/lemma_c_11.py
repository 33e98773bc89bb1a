"""Lemma C.11, corrected: how far heads move with their weights."""

from typing import Any

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Control, Evidence
from finetti.claims.exchangeability import instances
from finetti.claims.perturbations import DRAWS, all_attained, evidence, nearby, ratios
from finetti.core.forms import Form


def tight(form: Form = "derived") -> dict[str, Any]:
    """Queries that read opposite tokens evenly while keys or queries move, and values that move.

    Tokens have length 3 and there are two equal heads, so that powers of R and the sum over heads
    are seen.
    """
    found = {}
    for moved in ("keys", "queries"):
        one, other, tokens = instances.even_reader(10.0, 1e-5, copies=200, moved=moved)
        found[f"{moved} moved, ω_v = 10, R = 3"] = lipschitz.heads_weight_perturbation(
            instances.twice(one), instances.twice(other), 3 * tokens, form
        )
    axes = instances.AXES
    before, after = (
        instances.heads(0 * axes[None], 0 * axes[None], size * axes[None]) for size in (1.0, 1.2)
    )
    found["values moved"] = lipschitz.heads_weight_perturbation(before, after, 3 * axes[:1], form)
    return found


def run(context: Context) -> Evidence:
    """Both sides on random pairs of heads, and on a query that reads opposite tokens evenly."""

    def lemma(tokens, *weights):
        pair = instances.heads(*weights[:3]), instances.heads(*weights[3:])
        return lipschitz.heads_weight_perturbation(*pair, tokens)

    rng = context.generator(CLAIM.id)
    weights = instances.weights(rng, DRAWS)
    found = ratios(lemma, instances.tokens(rng, DRAWS), *weights, *nearby(rng, weights))
    return evidence(found, tight())


def _as_printed(context: Context) -> Evidence:
    return Evidence(all_attained(tight("printed")))


CLAIM = Claim(
    id="E-lemma-C.11",
    title="heads move no more than their weights",
    statement="‖MHA(X;W) − MHA(X;Ŵ)‖_{2,∞} ≤ RΣε_v + σ⁻²R³Σω_v(ω_q + ω_k)(ε_q + ε_k): the lemma "
    "with the ω_v of its proof.",
    paper="E",
    label="Lemma C.11",
    run=run,
    controls=(Control("without ω_v, as printed", _as_printed),),
)

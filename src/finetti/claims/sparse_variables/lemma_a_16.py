"""Lemma A.16: how far the scalar output moves."""

import numpy as np

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.perturbations import DRAWS, evidence, nearby, ratios
from finetti.claims.sparse_variables import draws


def run(context: Context) -> Evidence:
    """Both sides on random read-outs, and on a token that moves along w."""
    from finetti.attention.networks.self_attention import TokenReadout

    def lemma(weights, other_weights, tokens, other):
        readouts = TokenReadout(weights), TokenReadout(other_weights)
        return lipschitz.readout_perturbation(*readouts, tokens, other)

    rng = context.generator(CLAIM.id)
    weights = rng.normal(size=(2, DRAWS, draws.DIMENSION))
    tokens = draws.tokens(rng, DRAWS)
    (other,) = nearby(rng, [tokens])
    found = ratios(lemma, *weights, tokens, other)
    along = rng.normal(size=4)
    tight = lemma(along, along, np.zeros((2, 4)), np.stack([along, along]))
    return evidence(found, {"the token moves along w": tight})


CLAIM = Claim(
    id="S-lemma-A.16",
    title="the output moves no more than its token",
    statement="|wᵀg_[CLS] − ŵᵀĝ_[CLS]| ≤ ‖w‖‖g_[CLS] − ĝ_[CLS]‖ + |(w − ŵ)ᵀĝ_[CLS]|.",
    paper="S",
    label="Lemma A.16",
    run=run,
)

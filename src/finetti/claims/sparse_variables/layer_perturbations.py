"""Lemmas A.13–A.16: how far a layer moves with its weights and its tokens."""

from functools import partial

import numpy as np

from finetti import attention
from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Control, claim
from finetti.claims.evidence import Evidence
from finetti.claims.measures import Ratio
from finetti.claims.perturbations import DRAWS, evidence, nearby, ratios
from finetti.claims.sparse_variables import instances
from finetti.claims.sparse_variables.instances import AXES, balanced, first_axis, layer, two_tokens
from finetti.claims.wrong import looser


def _two_layers(tokens, *weights):
    return instances.relu_layer(*weights[:4]), instances.relu_layer(*weights[4:]), tokens


def _moved_layers(rng: np.random.Generator) -> tuple:
    weights = instances.layer_weights(rng, DRAWS)
    moved = nearby(rng, weights)
    return instances.layer_tokens(rng, DRAWS), *weights, *moved


def _leaving_zero(length: float) -> tuple:
    return layer(first_axis(0.0)), layer(first_axis(1e-3)), two_tokens(length)


S_LEMMA_A_13 = Claim(
    id="S-lemma-A.13",
    title="attention moves no more than its weights",
    statement="‖f(Z;W) − f(Z;Ŵ)‖_{2,∞} ≤ ‖W_V‖r²‖(M − M̂)Zᵀ‖_{2,∞} + ‖(W_V − Ŵ_V)ᵀZᵀ‖_{2,∞} for "
    "tokens of length at most r, M = W_QW_Kᵀ.",
    formula=r"‖f(Z;W) − f(Z;\hat{W})‖_{2,∞} ≤ ‖W_V‖ r^2 ‖(M − \hat{M}) Z^⊤‖_{2,∞} + ‖(W_V − "
    r"\hat{W}_V)^⊤ Z^⊤‖_{2,∞}",
    printed=r"‖f(Z;W) − f(Z;\hat{W})‖_{2,∞} ≤ 2 ‖W_V‖ ‖(M − \hat{M}) Z^⊤‖_{2,∞} + ‖(W_V − "
    r"\hat{W}_V)^⊤ Z^⊤‖_{2,∞}",
    measure=Ratio(
        "finetti.attention.lipschitz.attention_weight_perturbation",
        draw=_moved_layers,
        arguments=_two_layers,
        tight={f"tokens of length {r:g}": partial(_leaving_zero, r) for r in (1.0, 2.0)},
        note="With C = 2, as printed, both instances would reach 0.5.",
    ),
)


@claim(
    id="S-lemma-A.14",
    title="attention moves no more than its tokens, times 1 + 2‖M‖",
    statement="‖f(Z;W) − f(Ẑ;W)‖_{2,∞} ≤ ‖W_V‖(1 + 2‖M‖r²)‖Z − Ẑ‖_{2,∞} for tokens of length at "
    "most r, M = W_QW_Kᵀ.",
    formula=r"‖f(Z;W) − f(\hat{Z};W)‖_{2,∞} ≤ ‖W_V‖ (1 + 2 ‖M‖ r^2) ‖Z − \hat{Z}‖_{2,∞}",
    printed=r"‖f(Z;W) − f(\hat{Z};W)‖_{2,∞} ≤ ‖W_V‖ (1 + 4 ‖M‖) ‖Z − \hat{Z}‖_{2,∞}",
    controls=(
        Control(
            "C = 2, as printed",
            breaks={"finetti.attention.lipschitz.attention_token_perturbation": looser(2.0)},
        ),
    ),
)
def s_lemma_a_14(context: Context) -> Evidence:
    """Both sides on random layers, and on a query that reads 200 tokens e₁ and 200 tokens −e₁."""

    def lemma(tokens, other, *weights):
        same = instances.relu_layer(*weights)
        return lipschitz.attention_token_perturbation(same, tokens, other)

    rng = context.generator(s_lemma_a_14.id)
    tokens = instances.layer_tokens(rng, DRAWS)
    (other,) = nearby(rng, [tokens])
    found = ratios(lemma, tokens, other, *instances.layer_weights(rng, DRAWS))
    matrix, before, after = balanced(score_norm=50.0, step=1e-6)
    tight = lipschitz.attention_token_perturbation(layer(matrix), before, after)
    note = "With C = 2, as printed, the instance would reach 0.5."
    return evidence({"‖M‖ = 50": tight}, found, note)


@claim(
    id="S-lemma-A.15",
    title="a layer moves no more than its weights and tokens",
    statement="A layer multiplies a deviation of its tokens by at most L_σB_CB_V(1 + 2B_QK r²), "
    "and adds its own: ‖ΔW_Cᵀσ(Πf)ᵀ‖ + L_σB_CB_V r²‖ΔMĝᵀ‖ + L_σB_C‖ΔW_Vᵀĝᵀ‖.",
    formula="‖Δg^{(i+1)}‖ ≤ ‖ΔW_C^⊤ σ(Πf)^⊤‖ + L_σ B_C B_V (1 + 2 B_{QK} r^2) ‖Δg‖ + L_σ B_C B_V "
    r"r^2 ‖ΔM \hat{g}^⊤‖ + L_σ B_C ‖ΔW_V^⊤ \hat{g}^⊤‖",
    controls=(
        Control(
            "C = 2, as printed",
            breaks={"finetti.attention.lipschitz.layer_perturbation": looser(2.0)},
        ),
    ),
)
def s_lemma_a_15(context: Context) -> Evidence:
    """Both sides on random pairs of layers, and on the tight instance of Lemma A.14."""

    def lemma(tokens, other, *weights):
        layers = instances.relu_layer(*weights[:4]), instances.relu_layer(*weights[4:])
        return lipschitz.layer_perturbation(*layers, tokens, other)

    rng = context.generator(s_lemma_a_15.id)
    weights = instances.layer_weights(rng, DRAWS)
    tokens = instances.layer_tokens(rng, DRAWS)
    (other,) = nearby(rng, [tokens])
    found = ratios(lemma, tokens, other, *weights, *nearby(rng, weights))
    matrix, before, after = balanced(score_norm=50.0, step=1e-6)
    # Values a tenth as long: no row reaches the ball, so that the projections change nothing.
    same = layer(matrix, values=0.1 * AXES)
    return evidence({"‖M‖ = 50": lipschitz.layer_perturbation(same, same, before, after)}, found)


@claim(
    id="S-lemma-A.16",
    title="the output moves no more than its token",
    statement="|wᵀg_[CLS] − ŵᵀĝ_[CLS]| ≤ ‖w‖‖g_[CLS] − ĝ_[CLS]‖ + |(w − ŵ)ᵀĝ_[CLS]|.",
    formula=r"|w^⊤ g − \hat{w}^⊤ \hat{g}| ≤ ‖w‖ ‖g − \hat{g}‖ + |(w − \hat{w})^⊤ \hat{g}|",
    controls=(
        Control(
            "‖w‖ 25 % too large",
            breaks={"finetti.attention.lipschitz.readout_perturbation": looser(1.25)},
        ),
    ),
)
def s_lemma_a_16(context: Context) -> Evidence:
    """Both sides on random read-outs, and on a token that moves along w."""

    def lemma(weights, other_weights, tokens, other):
        readouts = attention.TokenReadout(weights), attention.TokenReadout(other_weights)
        return lipschitz.readout_perturbation(*readouts, tokens, other)

    rng = context.generator(s_lemma_a_16.id)
    weights = rng.normal(size=(2, DRAWS, instances.LAYER_DIMENSION))
    tokens = instances.layer_tokens(rng, DRAWS)
    (other,) = nearby(rng, [tokens])
    found = ratios(lemma, *weights, tokens, other)
    along = rng.normal(size=4)
    tight = lemma(along, along, np.zeros((2, 4)), np.stack([along, along]))
    return evidence({"the token moves along w": tight}, found)

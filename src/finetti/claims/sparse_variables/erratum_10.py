"""Erratum 10: the first layer of Theorem A.17 reads tokens that are not normalized."""

import math
from typing import Any

import numpy as np

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, within
from finetti.claims.perturbations import ROUNDING
from finetti.claims.sparse_variables.instances import AXES, first_axis, layer, two_tokens

STEP, LENGTH, STEEPNESS = 0.05, 2.0, 3.0


def network_change(first: Any, second: Any, tokens: np.ndarray) -> float:
    """How far two networks of one layer are apart, read along e₁, per unit of ``STEP``."""
    from finetti.attention.networks.projected_transformer import ProjectedTransformer
    from finetti.attention.networks.self_attention import TokenReadout

    readout = TokenReadout(AXES[0])
    outputs = [float(readout(ProjectedTransformer([each])(tokens))) for each in (first, second)]
    return abs(outputs[1] - outputs[0]) / STEP


def run(context: Context) -> Evidence:
    """One layer: tokens of length 2 while M leaves 0, and σ(x) = 3x while W_C does."""
    from finetti.attention.networks.activations import Activation
    from finetti.attention.networks.projected_transformer import ProjectedLayer
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import ProjectedLayerNorms, TransformerClass
    from finetti.core.forms import Form

    scored = layer(first_axis(0.0)), layer(first_axis(STEP))
    of_scores = network_change(*scored, two_tokens(LENGTH))
    lemma = lipschitz.attention_weight_perturbation(*scored, two_tokens(LENGTH), "printed")
    tripled = Activation("tripled", lambda x: STEEPNESS * x, STEEPNESS)
    flat, steep = (
        ProjectedLayer(first_axis(0.0), AXES, AXES, size * AXES, activation=tripled)
        for size in (0.0, STEP)
    )
    of_outputs = network_change(flat, steep, AXES[:1])

    def cost(matrix: int, form: Form, length: float, steepness: float) -> float:
        # W_C is the first matrix after w, W_QK the second; a cost is d times the multiplier.
        network = TransformerClass(
            layers=(ProjectedLayerNorms(),), width=3, activation_lipschitz=steepness
        )
        matrices = network.composition(Sample(1, 2, input_norm=length), form).matrices
        return math.exp(matrices[matrix].log_cost) / 3

    printed = cost(1, "printed", 1.0, STEEPNESS)
    uses = {
        "M": of_scores / cost(2, "derived", LENGTH, 1.0),
        "W_C": of_outputs / cost(1, "derived", 1.0, STEEPNESS),
    }
    return Evidence(
        (
            at_most("B_X = 2: change / ‖M − M̂‖", of_scores, float(lemma.bound) / STEP),
            at_most("L_σ = 3: change / ‖W_C − Ŵ_C‖", of_outputs, printed),
        ),
        derived=tuple(
            within(f"{name}: change / derived cost", used, 0.98, 1 + ROUNDING)
            for name, used in uses.items()
        ),
        note="Lemma A.13 itself is printed for tokens of length ≤ 1, and is true there.",
    )


CLAIM = Claim(
    id="S-erratum-10",
    title="printed: Lemma A.13 for the first layer, W_C without L_σ",
    statement="In Theorem A.17 Lemma A.13, ‖f(Z;W) − f(Z;Ŵ)‖ ≤ 2‖W_V‖‖(M − M̂)Zᵀ‖ + …, serves the "
    "first layer too, whose tokens have length B_X, and an error of W_C is multiplied by 1.",
    paper="S",
    label="Theorem A.17",
    run=run,
    expected=Verdict.FAILS,
    erratum="Lemma A.13 is for tokens of length ≤ 1; for length r its first term carries r², so "
    "that the QK term of the first layer needs B_X³. W_C reads σ(…), of length up to L_σ.",
)

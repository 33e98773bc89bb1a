"""The chain of Theorem A.17: how far a deep network moves with the weights of all its layers."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from finetti.attention.lipschitz.edelman_constants import (
    amplifications,
    layer_constant,
    layer_radii,
)
from finetti.attention.lipschitz.projected_layer import own_error
from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.networks.projected_transformer import ProjectedTransformer
from finetti.attention.networks.self_attention import TokenReadout
from finetti.attention.networks.weights import as_weights
from finetti.core.errors import bad_argument
from finetti.core.forms import Form, check_form
from finetti.core.norms import sequence_norm, spectral


def network_perturbation(
    network: ProjectedTransformer,
    other: ProjectedTransformer,
    readout: TokenReadout,
    other_readout: TokenReadout,
    tokens: ArrayLike,
    form: Form = "derived",
) -> Perturbation:
    """|out − ôut| ≤ ‖w‖ Σ_i A_i e_i + |(w − ŵ)ᵀĝ_[CLS]|, A_i = Π_{j>i} p_j

    e_i is layer i's own error (Lemma A.15) and p_j = L_σB_CB_V(1 + 2B_QK r_j²): the error of a
    layer is amplified by the layers AFTER it. Printed in Theorem A.17, edelman2022: the product
    over the layers before it, and no ‖w‖ (erratum 2); here with the same p_j and e_i, so that only
    the order differs.

    Args:
        network, other: two networks of equally many layers; norms are the larger of the two.
        readout, other_readout: w and ŵ, scalar.
        tokens: X, shape (T, d).
        form: "derived" or "printed".
    """
    owner = "network_perturbation"
    check_form(form, owner)
    tokens = as_weights(tokens, "tokens", owner, "(T, d)", (None, None))
    if len(other.layers) != len(network.layers):
        requirement = f"a network of {len(network.layers)} layers"
        raise bad_argument("other", owner, requirement, len(other.layers))
    pairs = list(zip(network.layers, other.layers, strict=True))
    outputs, values, scores = (
        [jnp.maximum(spectral(get(a)), spectral(get(b))) for a, b in pairs]
        for get in (
            lambda layer: layer.output_weights,
            lambda layer: layer.value_weights,
            lambda layer: layer.score_matrix,
        )
    )
    steepness = max(layer.activation.lipschitz for layer in network.layers)
    radii = layer_radii(sequence_norm(tokens), steepness, outputs, values)
    factors = [
        layer_constant(steepness, *norms)
        for norms in zip(outputs, values, scores, radii[:-1], strict=True)
    ]
    states = other.states(tokens)
    errors = [
        own_error(a, b, state, radius, "derived")
        for (a, b), state, radius in zip(pairs, states[:-1], radii[:-1], strict=True)
    ]
    carried = sum(
        amplification * error
        for amplification, error in zip(amplifications(factors, form), errors, strict=True)
    )
    weight = readout.lipschitz if form == "derived" else 1.0
    last = states[-1][readout.position]
    own = jnp.abs((readout.weights - other_readout.weights) @ last)
    moved = jnp.abs(readout(network(tokens)) - other_readout(states[-1]))
    return Perturbation(moved, weight * carried + own, "Theorem A.17, edelman2022", form)

"""Paper S's perturbation lemmas: how far softmax, heads, layers and deep networks move.

``form`` is "derived", or "printed" for what the paper has. Two things that are compared have equal
shapes; a sequence of tokens is one without batch axes.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.lipschitz import sparse_constants as constants
from finetti.attention.lipschitz.perturbation import Perturbation, as_tokens, layer_pairs
from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.projected_transformer import ProjectedLayer, ProjectedTransformer
from finetti.attention.networks.token_maps import TokenReadout
from finetti.attention.networks.weight_arrays import as_weights, promote
from finetti.core.arguments import Form, check_form
from finetti.core.errors import bad_argument
from finetti.core.linalg.norms import sequence_norm, spectral
from finetti.core.numerics.extremes import largest_of


def softmax_perturbation(
    scores: ArrayLike, other: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖softmax(θ) − softmax(θ')‖₁ ≤ C‖θ − θ'‖_∞, C = 1, printed 2     Corollary A.7, edelman2022

    Args:
        scores, other: θ and θ', shape (T,).

    >>> import jax.numpy as jnp
    >>> float(softmax_perturbation(jnp.zeros(2), jnp.array([0.01, -0.01])).ratio) > 0.999
    True
    """
    owner = "softmax_perturbation"
    scores = as_weights(scores, "scores", owner, "(T,)", (None,))
    other = as_weights(other, "other", owner, "(T,)", scores.shape)
    scores, other = promote(scores, other)
    moved = jnp.sum(jnp.abs(jax.nn.softmax(scores) - jax.nn.softmax(other)))
    bound = constants.softmax_constant(form) * jnp.max(jnp.abs(scores - other))
    return Perturbation(moved, bound, "Corollary A.7, edelman2022", form)


def head_perturbation(
    head: MultiHead, other: MultiHead, tokens: ArrayLike, query: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖f − f̂‖ ≤ C_Norm L_out B_in B_X ‖Score − Score^‖_∞ + L_out ‖φ_in − φ̂_in‖_{2,∞}

    Lemma 4.3, edelman2022, for the head σ(softmax(zᵀMXᵀ)XW_V)W_C: there Score(x, z) = zᵀMx and
    φ_in(x) = W_Vᵀx with B_in = ‖W_V‖, φ_out(x) = W_Cᵀσ(x) with L_out = L_σ‖W_C‖ is that of
    ``head`` for both, and C_Norm = 1 (printed 2).

    Args:
        head, other: two heads, `MultiHead.single`, with scores and values of their own.
        tokens: X, shape (T, d).
        query: z, shape (d_z,).
    """
    owner = "head_perturbation"
    tokens = as_tokens(tokens, "tokens", owner)
    query = as_weights(query, "query", owner, "(d_z,)", (None,))
    if head.n_heads != 1 or other.n_heads != 1:
        raise bad_argument("head", owner, "one head, like `other`", f"{head.n_heads} heads")
    outputs = head.output_weights
    if outputs is None:
        raise bad_argument("head", owner, "a head with output weights", "none")
    other = dataclasses.replace(other, output_weights=outputs, activation=head.activation)
    moved = jnp.linalg.norm(head(query[None], tokens) - other(query[None], tokens))
    scores = query @ (head.score_matrices - other.score_matrices)[0] @ tokens.T
    values = tokens @ (head.value_weights - other.value_weights)[0]
    bound = constants.head_bound(
        score_change=jnp.max(jnp.abs(scores)),
        value_change=sequence_norm(values),
        radius=sequence_norm(tokens),
        in_growth=spectral(head.value_weights[0]),
        out_lipschitz=head.activation.lipschitz * spectral(outputs[0]),
        norm_lipschitz=constants.softmax_constant(form),
    )
    return Perturbation(moved, bound, "Lemma 4.3, edelman2022", form)


def attention_weight_perturbation(
    layer: ProjectedLayer, other: ProjectedLayer, tokens: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖f(Z;W) − f(Z;Ŵ)‖ ≤ C‖W_V‖r²‖(M − M̂)Zᵀ‖ + ‖(W_V − Ŵ_V)ᵀZᵀ‖   Lemma A.13, edelman2022

    f is the attention of a layer before its projections, M = W_QW_Kᵀ, r the longest token, and
    sequences are measured by their longest row. Printed: C = 2 and r = 1 (erratum 10).

    Args:
        layer, other: W and Ŵ.
        tokens: Z, shape (T, d).
    """
    tokens = as_tokens(tokens, "tokens", "attention_weight_perturbation")
    moved = sequence_norm(layer.attend(tokens) - other.attend(tokens))
    bound = _attention_error(layer, other, tokens, sequence_norm(tokens), form)
    return Perturbation(moved, bound, "Lemma A.13, edelman2022", form)


def attention_token_perturbation(
    layer: ProjectedLayer, tokens: ArrayLike, other: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖f(Z;W) − f(Ẑ;W)‖ ≤ ‖W_V‖(1 + 2C‖M‖r²)‖Z − Ẑ‖                   Lemma A.14, edelman2022

    As in A.13, with r the longest token of both sequences. Printed: C = 2 and r = 1.

    Args:
        layer: W.
        tokens, other: Z and Ẑ, shape (T, d).
    """
    tokens = as_tokens(tokens, "tokens", "attention_token_perturbation")
    other = as_tokens(other, "other", "attention_token_perturbation", tokens.shape)
    radius = jnp.maximum(sequence_norm(tokens), sequence_norm(other))
    constant = constants.token_constant(
        spectral(layer.value_weights), spectral(layer.score_matrix), radius, form
    )
    moved = sequence_norm(layer.attend(tokens) - layer.attend(other))
    bound = constant * sequence_norm(tokens - other)
    return Perturbation(moved, bound, "Lemma A.14, edelman2022", form)


def layer_perturbation(
    layer: ProjectedLayer,
    other: ProjectedLayer,
    tokens: ArrayLike,
    other_tokens: ArrayLike,
    form: Form = "derived",
) -> Perturbation:
    """‖g' − ĝ'‖ ≤ p‖g − ĝ‖ + the layer's own error                     Lemma A.15, edelman2022

    with p = L_σB_CB_V(1 + 2C·B_QK r²) and the own error ‖(W_C − Ŵ_C)ᵀσ(Πf(ĝ;Ŵ))ᵀ‖ +
    C r² L_σB_CB_V‖(M − M̂)ĝᵀ‖ + L_σB_C‖(W_V − Ŵ_V)ᵀĝᵀ‖.

    Args:
        layer, other: W and Ŵ.
        tokens, other_tokens: g and ĝ, shape (T, d).
        form: "derived", or "printed" with C = 2 and r = 1.
    """
    tokens = as_tokens(tokens, "tokens", "layer_perturbation")
    other_tokens = as_tokens(other_tokens, "other_tokens", "layer_perturbation", tokens.shape)
    radius = jnp.maximum(sequence_norm(tokens), sequence_norm(other_tokens))
    matrices = layer.output_weights, layer.value_weights, layer.score_matrix
    outputs, values, scores = map(spectral, matrices)
    steepness = layer.activation.lipschitz
    factor = constants.layer_constant(steepness, outputs, values, scores, radius, form)
    own = _own_error(layer, other, other_tokens, radius, form)
    moved = sequence_norm(layer(tokens) - other(other_tokens))
    bound = factor * sequence_norm(tokens - other_tokens) + own
    return Perturbation(moved, bound, "Lemma A.15, edelman2022", form)


def readout_perturbation(
    readout: TokenReadout, other: TokenReadout, tokens: ArrayLike, other_tokens: ArrayLike
) -> Perturbation:
    """|wᵀg_[CLS] − ŵᵀĝ_[CLS]| ≤ ‖w‖‖g_[CLS] − ĝ_[CLS]‖ + |(w − ŵ)ᵀĝ_[CLS]|   A.16, edelman2022

    Args:
        readout, other: w and ŵ, scalar read-outs of the same position.
        tokens, other_tokens: g and ĝ, shape (T, d).
    """
    owner = "readout_perturbation"
    tokens = as_tokens(tokens, "tokens", owner)
    other_tokens = as_tokens(other_tokens, "other_tokens", owner, tokens.shape)
    for name, module in (("readout", readout), ("other", other)):
        if module.weights.ndim != 1 or module.position != readout.position:
            raise bad_argument(name, owner, "scalar, both of one position", module)
    read, other_read = tokens[readout.position], other_tokens[readout.position]
    moved = jnp.abs(readout(tokens) - other(other_tokens))
    own = jnp.abs((readout.weights - other.weights) @ other_read)
    bound = readout.lipschitz * jnp.linalg.norm(read - other_read) + own
    return Perturbation(moved, bound, "Lemma A.16, edelman2022", "derived")


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
    """
    owner = "network_perturbation"
    check_form(form, owner)
    tokens = as_tokens(tokens, "tokens", owner)
    pairs = layer_pairs(network.layers, other.layers, owner)
    for layer, twin in pairs:
        if layer.activation != twin.activation:
            requirement = f"a network with the same activations, here {layer.activation.name}"
            raise bad_argument("other", owner, requirement, twin.activation.name)
    outputs, values, scores = (
        [jnp.maximum(*(spectral(getattr(layer, name)) for layer in pair)) for pair in pairs]
        for name in ("output_weights", "value_weights", "score_matrix")
    )
    steepness = largest_of(layer.activation.lipschitz for layer in network.layers)
    radii = constants.layer_radii(sequence_norm(tokens), steepness, outputs, values)[:-1]
    factors = [
        constants.layer_constant(steepness, *norms)
        for norms in zip(outputs, values, scores, radii, strict=True)
    ]
    *states, last = other.states(tokens)
    errors = [
        _own_error(*pair, state, radius, "derived")
        for pair, state, radius in zip(pairs, states, radii, strict=True)
    ]
    amplified = zip(constants.amplifications(factors, form), errors, strict=True)
    carried = sum(amplification * error for amplification, error in amplified)
    weight = readout.lipschitz if form == "derived" else 1.0
    own = jnp.abs((readout.weights - other_readout.weights) @ last[readout.position])
    moved = jnp.abs(readout(network(tokens)) - other_readout(last))
    return Perturbation(moved, weight * carried + own, "Theorem A.17, edelman2022", form)


def _attention_error(
    layer: ProjectedLayer, other: ProjectedLayer, tokens: Array, radius: Array, form: Form
) -> Float[Array, ""]:
    """The right-hand side of Lemma A.13 for tokens of length at most ``radius``."""
    return constants.weight_bound(
        value_norm=spectral(layer.value_weights),
        score_matrix_change=sequence_norm(tokens @ (layer.score_matrix - other.score_matrix).T),
        value_change=sequence_norm(tokens @ (layer.value_weights - other.value_weights)),
        radius=radius,
        form=form,
    )


def _own_error(
    layer: ProjectedLayer, other: ProjectedLayer, tokens: Array, radius: Array, form: Form
) -> Float[Array, ""]:
    """What replacing W by Ŵ in one layer costs on the tokens ĝ, in Lemma A.15."""
    outside = other.inside(tokens) @ (layer.output_weights - other.output_weights)
    steepness = layer.activation.lipschitz * spectral(layer.output_weights)
    attention = _attention_error(layer, other, tokens, radius, form)
    return sequence_norm(outside) + steepness * attention

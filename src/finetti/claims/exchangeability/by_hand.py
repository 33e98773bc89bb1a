"""The formulas of Appendix C in plain numbers, layer by layer: a second route to the bounds."""

import math
from typing import TYPE_CHECKING

from finetti.core.numbers import largest_of

if TYPE_CHECKING:
    from finetti.bounds.exchangeability import FullHeadNorms, FullLayerNorms, FullTransformer


def head_norms(head: "FullHeadNorms") -> tuple[float, float, float, float]:
    """ω^v, ω^{qk}, R^v and R^{qk} of one head."""
    scores, sizes = head.query_norm + head.key_norm, head.query_mixed_norm + head.key_mixed_norm
    return head.value_norm, scores, head.value_mixed_norm, sizes


def summed_norms(layer: "FullLayerNorms") -> tuple[float, float, float, float]:
    """The same of all heads of a layer, (C.5)."""
    values, scores, value_sizes, score_sizes = zip(*map(head_norms, layer.heads), strict=True)
    return sum(values), largest_of(scores), sum(value_sizes), sum(score_sizes)


def feed_forward(layer: "FullLayerNorms") -> tuple[float, float]:
    """α̃ and α^xR^σ + α^σR^x."""
    outer = 1.0 if layer.outer_norm is None else layer.outer_norm
    sizes = layer.inner_norm * (layer.outer_mixed_norm or 0.0) + outer * layer.inner_mixed_norm
    return layer.inner_norm * outer + layer.feed_forward_skip, sizes


def moved(network: "FullTransformer", radius: float, *, sharp: bool) -> float:
    """How far the output moves when every matrix moves by its mixed norm (Lemma C.14).

    An error is followed as in the proof. The feed-forward part passes it on α̃ times and adds its
    own, at tokens of length R_t; then the heads pass it on ρ̃ times (Lemma C.13) and add theirs
    (Lemma C.11), at tokens of length α̃_tR_t. Sharp: head by head with c = σ⁻², at σ² = 2√d_p;
    otherwise with summed norms (C.5) and the paper's c = 1.
    """
    c, error = 1 / (2 * math.sqrt(network.head_dimension)) if sharp else 1.0, 0.0
    for layer in network.layers:
        growth, own = feed_forward(layer)
        error = growth * error + own * radius
        radius *= growth
        heads = [head_norms(head) for head in layer.heads] if sharp else [summed_norms(layer)]
        error *= layer.attention_skip + sum(v * (1 + c * (s * radius) ** 2) for v, s, _, _ in heads)
        error += sum(radius * dv + c * radius**3 * v * s * ds for v, s, dv, ds in heads)
        radius *= layer.attention_skip + summed_norms(layer)[0]
    return error


def count_parameters(network: "FullTransformer") -> int:
    """A^x and A^σ (one matrix d × d where there is no A^σ), and W_q, W_k, W_v of every head."""
    d, count = network.dimension, 0
    for layer in network.layers:
        count += d * d if layer.outer_norm is None else 2 * d * network.hidden_dimension
        count += len(layer.heads) * (2 * d * network.head_dimension + d * d)
    return count


def scales(network: "FullTransformer") -> tuple[float, float, float]:
    """γ, κ and ζ as the proof of Theorem C.4 needs them, with errata 5 and 8."""
    gamma = kappa = zeta = 0.0
    for layer in network.layers:
        growth, sizes = feed_forward(layer)
        values, scores, value_sizes, score_sizes = summed_norms(layer)
        heads = values + layer.attention_skip
        gamma = largest_of(gamma, growth - layer.feed_forward_skip, values)
        kappa = largest_of(kappa, sizes / growth, value_sizes / heads, score_sizes / scores)
        zeta = largest_of(zeta, scores**2 * values / heads)
    return gamma, kappa, zeta

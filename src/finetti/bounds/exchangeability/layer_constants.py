"""How far an error in each matrix moves the output of paper E's network, layer by layer."""

from collections.abc import Iterator
from dataclasses import dataclass

from finetti.attention.lipschitz.exchangeable_constants import (
    heads_token_constant,
    heads_weight_bound,
    residual_radii,
)
from finetti.bounds.exchangeability.residual_class import FullLayerNorms, FullTransformer
from finetti.bounds.value import Term, summed
from finetti.core.arguments import Form
from finetti.core.numerics.log_number import LogNumber, total


@dataclass(frozen=True)
class HeadConstants:
    """The constants of a layer's heads at tokens of a given length."""

    reach: LogNumber  # how long the tokens are
    value_norm: LogNumber  # ω^v, how much longer the heads make them
    constant: LogNumber  # ρ, the Lipschitz constant of the heads (Lemma C.13)
    values: LogNumber  # the sum over W_v in R^mha (Lemmas C.11, C.12)
    scores: LogNumber  # that over W_q with W_k
    skip: float  # 1 if the tokens are added to what the heads give, else 0

    @property
    def growth(self) -> LogNumber:
        """ω̃ = 1 + ω^v; without the 1 if there is no skip."""
        return self.value_norm + self.skip

    @property
    def token_constant(self) -> LogNumber:
        """ρ̃ = 1 + ρ; without the 1 if there is no skip."""
        return self.constant + self.skip


@dataclass(frozen=True)
class LayerConstants:
    """The quantities of one layer, (C.5)–(C.6) and (C.10)–(C.11), zhang2022."""

    radius: LogNumber  # R_t, how long tokens can be before the layer
    feed_forward: LogNumber  # α̃_t = 1 + α^xα^σ, without the 1 if there is no skip
    inner: LogNumber  # α^σR^x, the size of A^x
    outer: LogNumber  # α^xR^σ, that of A^σ
    heads: HeadConstants  # at tokens as long as α̃_tR_t; printed R_t (erratum 6)


def head_norms(layer: FullLayerNorms) -> tuple[list[LogNumber], ...]:
    """ω^v, ω^{qk} = ω^q + ω^k, R^v and R^{qk} = R^q + R^k of every head."""
    number = LogNumber.from_float
    return (
        [number(head.value_norm) for head in layer.heads],
        [number(head.query_norm) + head.key_norm for head in layer.heads],
        [number(head.value_mixed_norm) for head in layer.heads],
        [number(head.query_mixed_norm) + head.key_mixed_norm for head in layer.heads],
    )


def summed_norms(layer: FullLayerNorms) -> tuple[LogNumber, LogNumber, LogNumber, LogNumber]:
    """The same summed over the heads, but the largest ω^{qk}                    (C.5), zhang2022"""
    value_norms, score_norms, value_sizes, score_sizes = head_norms(layer)
    return total(value_norms), max(score_norms), total(value_sizes), total(score_sizes)


def head_constants(
    layer: FullLayerNorms, reach: LogNumber, bandwidth: float, form: Form = "derived"
) -> HeadConstants:
    """The constants of a layer's heads at tokens as long as ``reach``, σ² the ``bandwidth``.

    R^mha = ΣR^v + σ⁻²R²Σω^vω^{qk}R^{qk},   ρ = Σω^v + σ⁻²R²Σω^v(ω^{qk})²   C.11–C.13, zhang2022

    over the heads. Printed: R^mha without ω^v (erratum 5), both without σ⁻², and products of norms
    that were summed over the heads before, which is larger (C.10).
    """
    norms = [[each] for each in summed_norms(layer)] if form == "printed" else head_norms(layer)
    value_norms, score_norms, value_sizes, score_sizes = norms
    nothing = [LogNumber.from_float(0.0)] * len(value_norms)
    values, scores = (
        heads_weight_bound(sizes, score_norms, changes, value_norms, reach, bandwidth, form) / reach
        for sizes, changes in ((value_sizes, nothing), (nothing, score_sizes))
    )
    constant = heads_token_constant(value_norms, score_norms, reach, bandwidth, form)
    skip = float(layer.attention_skip)
    return HeadConstants(reach, total(value_norms), constant, values, scores, skip)


def layer_constants(
    network: FullTransformer, input_norm: float, form: Form = "derived"
) -> list[LayerConstants]:
    """Those of all layers, from the first; ``input_norm`` is R_0. Printed: with (C.10)."""
    radius, chain, printed = LogNumber.from_float(input_norm), [], form == "printed"
    for layer in network.layers:
        inner = LogNumber.from_float(layer.inner_norm)
        outer = LogNumber.from_float(1.0 if layer.outer_norm is None else layer.outer_norm)
        growth = inner * outer + float(layer.feed_forward_skip)
        reach = radius if printed else growth * radius
        heads = head_constants(layer, reach, network.score_bandwidth, form)
        sizes = outer * layer.inner_mixed_norm, inner * (layer.outer_mixed_norm or 0.0)
        chain.append(LayerConstants(radius, growth, *sizes, heads))
        radius = residual_radii(radius, [growth], [heads.growth])[-1]
    return chain


def log_deviation(
    network: FullTransformer, input_norm: float, form: Form = "derived"
) -> tuple[float, tuple[Term, ...]]:
    """log S: how far the output moves when every matrix moves by its mixed norm, matrix by matrix.

    S = R_T^trans R_T,
    R_T^trans = Σ_t (R_t^mha/ρ̃_t + (α^xR^σ + α^σR^x)/α̃_t) Π_{τ ≥ t} ρ̃_τ/ω̃_τ    (C.11), zhang2022

    which is Lemma C.14 with ε_{t,a} = (α^xR^σ + α^σR^x)R_t and ε_{t,w} = R_t^mha α̃_tR_t. Printed:
    the product starts at τ = t + 1, and tokens are as long as R_t (erratum 6).
    """
    return summed(_parts(layer_constants(network, input_norm, form), form == "printed"))


def _parts(chain: list[LayerConstants], printed: bool) -> Iterator[Term]:
    """One per layer and matrix, from the last layer; ``after`` is what follows a layer."""
    after = LogNumber.from_float(1.0)
    if printed:  # R_T, how long tokens can be after the last layer (G.6)
        last = chain[-1]
        after = residual_radii(last.radius, [last.feed_forward], [last.heads.growth])[-1]
    for number, layer in reversed(list(enumerate(chain, start=1))):
        heads, steep = layer.heads, layer.heads.token_constant
        if printed:
            of_feed_forward, of_heads = after / layer.feed_forward, after / steep
            after = after * steep / heads.growth
        else:
            of_feed_forward, of_heads = steep * layer.radius * after, heads.reach * after
            after = after * steep * layer.feed_forward
        for matrix, size, factor in (
            ("W_in", layer.inner, of_feed_forward),
            ("W_out", layer.outer, of_feed_forward),
            ("W_V", heads.values, of_heads),
            ("W_Q, W_K", heads.scores, of_heads),
        ):
            yield Term("deviation of the output", number, matrix, (size * factor).log)

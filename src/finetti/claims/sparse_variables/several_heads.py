"""A.5: heads that are added."""

import math
from typing import Any

import numpy as np

from finetti.claims.claim import Context, Control, Evidence, claim, close, within
from finetti.claims.perturbations import RATIO_RTOL, unit_vectors
from finetti.claims.sparse_variables.head_capacity import as_printed, covering_counted, random_norms
from finetti.claims.sparse_variables.head_split import (
    N_SEQUENCES,
    N_SPLIT_HEADS,
    SEQUENCE_LENGTH,
    random_heads,
)
from finetti.claims.sparse_variables.instances import score_change
from finetti.claims.sparse_variables.packing import covered, log_packing
from finetti.claims.sparse_variables.recomputed import composed, head_parts


@claim(
    id="S-app-A.5",
    title="multi-head attention is a sum of heads",
    statement="Σ_h σ(RowSoftmax(XW_Q^h(XW_K^h)ᵀ)XW_V^h)W_C^h is the concatenated layer "
    "σ([head_1 … head_H])W_C whose W_C stacks those of the heads.",
)
def s_app_a_5(context: Context) -> Evidence:
    """The sum of four heads σ(·)W_C against σ(concatenation) times the stacked W_C."""
    from finetti.attention.networks.head import Head
    from finetti.attention.networks.multihead import MultiHead

    wide = loop = 0.0
    for trial in range(context.pick(quick=3, paper=30)):
        rng = context.generator(s_app_a_5.id, trial)
        query, key, value = rng.normal(size=(3, 4, 6, 2))
        output = rng.normal(size=(4, 2, 6))
        tokens = rng.normal(size=(12, 6))
        heads = MultiHead(query, key, value, output, activation="relu")
        out = np.asarray(heads(tokens, tokens))
        wide = max(wide, np.abs(out - heads.concatenated()(tokens, tokens)).max())
        each = [Head.transformer(query[h], key[h], value[h], output[h], "relu") for h in range(4)]
        loop = max(loop, np.abs(out - sum(head(tokens, tokens) for head in each)).max())
    return Evidence(
        (
            close("sum of heads − concatenated layer", wide, 1e-10),
            close("sum of heads − one Transformer head at a time", loop, 1e-10),
        )
    )


_RESOLUTION, _LAYERS = 0.2, 50


def _measure(context: Context, make: Any) -> tuple[Any, ...]:
    """What a wrong cost of W_QK would change, for layers made by ``make``."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import MultiHeadCovering, SoftmaxHeadNorms

    rng, worst = context.generator(s_lemma_a_12.id, "layers"), 0.0
    for _ in range(_LAYERS):
        heads = tuple(SoftmaxHeadNorms(**random_norms(rng)) for _ in range(3))
        lengths = 10.0 ** rng.uniform(-1, 1, size=2)
        layer = make(heads=heads, width=6, head_dimension=3, query_norm=float(lengths[0]))
        sample = Sample(1000, 50, input_norm=float(lengths[1]))
        parts = [part for each in heads for part in head_parts(layer, each, sample)]
        found = MultiHeadCovering(layer, 0.1).evaluate(sample).value
        worst = max(worst, abs(found / composed(parts, 0.1) - 1))
    one = make(heads=(SoftmaxHeadNorms(),), width=3, query_norm=1.0)
    used = score_change(3.0) / covering_counted(one, one.heads[0], Sample(1, 2, input_norm=3.0))
    return (
        close(f"{_LAYERS} layers of three heads: relative error of log N_∞", worst, 1e-9),
        within("tokens of length 3: change / what W_QK costs", used, 0.98, 1 + RATIO_RTOL),
    )


def _without_lengths(context: Context) -> Evidence:
    from finetti.bounds.sparse_variables import MultiHeadClass

    return Evidence(_measure(context, as_printed(MultiHeadClass)))


@claim(
    id="S-lemma-A.12",
    title="the capacity of several heads",
    statement="A sum of heads has the terms of Corollary 4.4 of all of them; H equal heads cost H³ "
    "times as much as one.",
    controls=(Control("c_QK with 2 in the place of B_X B_τ, as printed", _without_lengths),),
)
def s_lemma_a_12(context: Context) -> Evidence:
    """The bound made again head by head, H equal heads against H³, and a packing of random heads.

    The first two are exact; the packing number, which is far below the bound, is only a floor.
    """
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import MultiHeadClass, MultiHeadCovering, SoftmaxHeadNorms

    def layer(count: int, norm: float) -> MultiHeadClass:
        return MultiHeadClass(heads=(SoftmaxHeadNorms(score_row_norm=norm),) * count, width=2)

    sample = Sample(N_SEQUENCES, SEQUENCE_LENGTH)
    counts = range(1, 17)
    gammas = [layer(count, 1.0).composition(sample, "derived").log_gamma for count in counts]
    cubes = max(
        abs(3 * (g - gammas[0]) - 3 * math.log(h)) for g, h in zip(gammas, counts, strict=True)
    )
    rng = context.generator(s_lemma_a_12.id)
    tokens = unit_vectors(rng, N_SEQUENCES, SEQUENCE_LENGTH, 2)
    total = np.sum([random_heads(rng, tokens, 4.0) for _ in range(3)], axis=0)
    bound = MultiHeadCovering(layer(3, 4.0), _RESOLUTION).evaluate(sample).value
    return Evidence(
        (
            *_measure(context, MultiHeadClass),
            close("γ³ of H ≤ 16 equal heads: log of its ratio to H³", cubes, 1e-12),
            covered(f"{N_SPLIT_HEADS} sums of heads", log_packing(total, 2 * _RESOLUTION), bound),
        )
    )

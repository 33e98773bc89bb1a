"""A.5: heads that are added."""

from typing import Any

import numpy as np

from finetti import attention
from finetti.bounds import Sample
from finetti.bounds import sparse_variables as bounds
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, close
from finetti.claims.sparse_variables import covers, head_split
from finetti.claims.sparse_variables.head_capacity import as_printed, random_norms, score_cost_used
from finetti.claims.wrong import times
from finetti.core.numbers import largest_of


@claim(
    id="S-app-A.5",
    title="multi-head attention is a sum of heads",
    statement="Σ_h σ(RowSoftmax(XW_Q^h(XW_K^h)ᵀ)XW_V^h)W_C^h is the concatenated layer "
    "σ([head_1 … head_H])W_C whose W_C stacks those of the heads.",
    formula="Σ_h σ(softmax(X W_Q^h (X W_K^h)^⊤) X W_V^h) W_C^h = σ([head_1 … head_H]) W_C",
    controls=(
        Control(
            "heads that are averaged", breaks={"finetti.attention.MultiHead.__call__": times(1 / 4)}
        ),
    ),
)
def s_app_a_5(context: Context) -> Evidence:
    """The sum of four heads σ(·)W_C against σ(concatenation) times the stacked W_C."""
    wide = loop = 0.0
    for trial in range(context.pick(quick=3, paper=30)):
        rng = context.generator(s_app_a_5.id, trial)
        query, key, value = rng.normal(size=(3, 4, 6, 2))
        output = rng.normal(size=(4, 2, 6))
        tokens = rng.normal(size=(12, 6))
        heads = attention.MultiHead(query, key, value, output, activation="relu")
        out = np.asarray(heads(tokens, tokens))
        size = np.abs(out).max()
        wide = largest_of(wide, np.abs(out - heads.concatenated()(tokens, tokens)).max() / size)
        each = [
            attention.Head.transformer(*weights, "relu")(tokens, tokens)
            for weights in zip(query, key, value, output, strict=True)
        ]
        loop = largest_of(loop, np.abs(out - sum(each)).max() / size)
    return Evidence(
        close("sum of heads − concatenated layer (relative)", wide, 1e-10),
        close("sum of heads − one Transformer head at a time (relative)", loop, 1e-10),
    )


@claim(
    id="S-lemma-A.12",
    title="the capacity of several heads",
    statement="A sum of heads has the terms of Corollary 4.4 of all of them; H equal heads cost H³ "
    "times as much as one.",
    formula=r"γ = Σ_h (c_V(h)^{2/3} + c_{QK}(h)^{2/3}),  H \text{equal heads}: γ^3 ∝ H^3",
    controls=(
        Control(
            "c_QK with 2 in the place of B_X B_τ, as printed",
            changes={"make": as_printed(bounds.MultiHeadClass)},
        ),
    ),
)
def s_lemma_a_12(context: Context, make: Any = bounds.MultiHeadClass) -> Evidence:
    """The bound made again head by head, what W_QK costs used up, and H equal heads against H³."""
    layers = 50
    rng, worst = context.generator(s_lemma_a_12.id, "layers"), 0.0
    for _ in range(layers):
        heads = tuple(bounds.SoftmaxHeadNorms(**random_norms(rng)) for _ in range(3))
        query, longest = (10.0 ** rng.uniform(-1, 1, size=2)).tolist()
        several = make(heads=heads, width=6, head_dimension=3, query_norm=query)
        sample = Sample(1000, 50, input_norm=longest)
        parts = [part for each in heads for part in covers.head_parts(several, each, sample)]
        found = bounds.MultiHeadCovering(several, 0.1).evaluate(sample).value
        worst = largest_of(worst, abs(found / covers.composed(parts, 0.1) - 1))
    one = make(heads=(bounds.SoftmaxHeadNorms(),), width=3, query_norm=1.0)

    def layer(count: int, norm: float) -> Any:
        heads = (bounds.SoftmaxHeadNorms(score_row_norm=norm),) * count
        return bounds.MultiHeadClass(heads=heads, width=2)

    counts = range(1, 17)
    gammas = [
        layer(count, 1.0).composition(head_split.SAMPLE, "derived").log_gamma for count in counts
    ]
    cubes = np.abs(3 * (np.array(gammas) - gammas[0]) - 3 * np.log(counts)).max()
    return Evidence(
        close(f"{layers} layers of three heads: relative error of log N_∞", worst, 1e-9),
        score_cost_used(one, one.heads[0]),
        close("γ³ of H ≤ 16 equal heads: log of its ratio to H³", cubes, 1e-12),
    )

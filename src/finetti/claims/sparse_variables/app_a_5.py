"""The sum of heads with activations is one wide layer."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, close


def run(context: Context) -> Evidence:
    """The sum of four heads σ(·)W_C against σ(concatenation) times the stacked W_C."""
    from finetti.attention.networks.head import Head
    from finetti.attention.networks.multihead import MultiHead

    wide = loop = 0.0
    for trial in range(context.pick(quick=3, paper=30)):
        rng = context.generator(CLAIM.id, trial)
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


CLAIM = Claim(
    id="S-app-A.5",
    title="multi-head attention is a sum of heads",
    statement="Σ_h σ(RowSoftmax(XW_Q^h(XW_K^h)ᵀ)XW_V^h)W_C^h is the concatenated layer "
    "σ([head_1 … head_H])W_C whose W_C stacks those of the heads.",
    paper="S",
    label="Appendix A.5",
    run=run,
)

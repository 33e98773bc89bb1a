"""Theorem 4.6: a deep Transformer by two norms."""

import math

from finetti.claims.claim import Claim, Context, Evidence, at_least, close

DRAWS = 200


def run(context: Context) -> Evidence:
    """The uniform bound over Theorem A.17 for random norms below it, and its powers."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import (
        LayerNorms,
        TransformerClass,
        TransformerCovering,
        UniformTransformer,
    )

    rng = context.generator(CLAIM.id)
    least = math.inf
    for _ in range(DRAWS):
        depth, (size, column, steep) = int(rng.integers(1, 6)), 10.0 ** rng.uniform(-1, 1, size=3)
        longest = float(max(column, size))
        layers = tuple(
            LayerNorms(
                output_norm=part[0],
                value_norm=part[1],
                score_norm=part[2],
                # A spectral norm is at most √d times the longest column.
                output_column_norm=longest,
                value_column_norm=longest,
                score_row_norm=longest,
            )
            for part in size * rng.uniform(size=(depth, 3))
        )
        network = TransformerClass(layers=layers, width=8, activation_lipschitz=steep)
        sample = Sample(1000, 50, input_norm=float(rng.uniform(0.01, 1)))
        uniform = UniformTransformer(
            n_layers=depth,
            width=8,
            spectral_norm=size,
            column_norm=longest,
            activation_lipschitz=steep,
        )
        deep = TransformerCovering(network).evaluate(sample).log_value
        least = min(least, uniform.evaluate(sample).log_value - deep)
    sample = Sample(1000, 50, input_norm=0.5)
    printed = UniformTransformer(n_layers=2, width=8, form="printed").sensitivity(sample)
    powers = max(
        abs(printed[name].exponent - 2)
        for name in ("column_norm", "readout_norm", "sample.input_norm")
    )
    return Evidence(
        (
            at_least(f"least log of uniform bound / Theorem A.17, {DRAWS} draws", least, 0.0),
            close("printed powers of B_X, B_w and C_∞, minus 2", powers, 1e-9),
        ),
        note="Derived with all constants: 3L + 1 costs B_XB_w d C_∞ P^L, P = L_σC₂²(1 + 2C₂).",
    )


CLAIM = Claim(
    id="S-thm-4.6",
    title="the capacity of a deep Transformer, by two norms",
    statement="For tokens of length B_X ≤ 1, log N_∞ ≤ (C₂L_σ)^{O(L)} B_X²B_w²d²C_∞²/ε² log(mT).",
    paper="S",
    label="Theorem 4.6",
    run=run,
)

"""Theorem 4.6: a deep Transformer by two norms."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from finetti.claims.claim import Claim, Context, Control, Evidence, Measurement, at_least, close
from finetti.claims.sparse_variables.recomputed import composed, network_parts

DRAWS, RESOLUTION = 200, 0.1


def uniform_value(sample: Any, **sizes: Any) -> float:
    """The bound as the package has it."""
    from finetti.bounds.sparse_variables import UniformTransformer

    return UniformTransformer(resolution=RESOLUTION, **sizes).evaluate(sample).value


def measure(context: Context, value: Callable[..., float]) -> tuple[Measurement, ...]:
    """``value`` against 3L + 1 equal costs written out, and against Theorem A.17 made again."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import ProjectedLayerNorms, TransformerClass

    rng, least, worst = context.generator(CLAIM.id), math.inf, 0.0
    for _ in range(DRAWS):
        depth, (size, column, steep) = int(rng.integers(1, 6)), 10.0 ** rng.uniform(-1, 1, size=3)
        longest = float(max(column, size))
        layers = tuple(
            ProjectedLayerNorms(
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
        readout, longest_token = float(rng.uniform(0.1, 3)), float(rng.uniform(0.01, 1))
        network = TransformerClass(
            layers=layers, width=8, activation_lipschitz=steep, readout_norm=readout
        )
        sample = Sample(1000, 50, input_norm=longest_token)
        found = value(
            sample,
            n_layers=depth,
            width=8,
            spectral_norm=size,
            column_norm=longest,
            activation_lipschitz=steep,
            readout_norm=readout,
        )
        least = min(least, found / composed(network_parts(network, sample), RESOLUTION))
        base, matrices = max(1.0, size), 3 * depth + 1
        grown = (max(1.0, steep) * base**2 * (1 + 2 * base)) ** depth
        cost = longest_token * readout * 8 * longest * grown
        inside = np.ceil(4 * matrices * cost / RESOLUTION * (1 - 1e-12) + 2)
        points = math.log(2 * inside * 1000 * 51 + 1)
        worst = max(worst, abs(found * RESOLUTION**2 / (36 * matrices**3 * cost**2 * points) - 1))
    # Norms 1, L = 1, d = 2, ε = 0.1, m = T + 1 = 2: four costs c = 2·3 and N = 4, so that
    # 36·4³·6²/ε² = 8 294 400 times log(2(4·4·6/ε + 2)·4 + 1) = log 7697.
    by_hand = value(Sample(2, 1), n_layers=1, width=2) / (8_294_400 * math.log(7697))
    return (
        close("norms 1, one layer: relative error to 8 294 400 log 7697", by_hand - 1, 1e-12),
        close(f"{DRAWS} classes: relative error to 36(3L+1)³c²/ε² log(…)", worst, 1e-9),
        at_least("least uniform bound / Theorem A.17", least, 1.0),
    )


def run(context: Context) -> Evidence:
    """The uniform bound written out, over Theorem A.17 for random norms below it, and its powers.

    Both are made again without the code of `bounds`: the first is exact, the second an inequality
    that is far from tight, since every matrix is charged for the whole depth.
    """
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import UniformTransformer

    sample = Sample(1000, 50, input_norm=0.5)
    printed = UniformTransformer(n_layers=2, width=8, form="printed").sensitivity(sample)
    powers = max(
        abs(printed[name].exponent - 2)
        for name in ("column_norm", "readout_norm", "sample.input_norm")
    )
    return Evidence(
        (
            *measure(context, uniform_value),
            close("printed powers of B_X, B_w and C_∞, minus 2", powers, 1e-9),
        ),
        note="Derived with all constants: 3L + 1 costs c = B_XB_w d C_∞ P^L, P = L_σC₂²(1 + 2C₂).",
    )


def _shallower(context: Context) -> Evidence:
    def value(sample: Any, spectral_norm: float = 1.0, **sizes: Any) -> float:
        # P^{2L} with P = L_σC₂² in the place of L_σC₂²(1 + 2C₂)
        lost = 2 * sizes["n_layers"] * math.log(1 + 2 * max(1.0, spectral_norm))
        return uniform_value(sample, spectral_norm=spectral_norm, **sizes) / math.exp(lost)

    return Evidence(measure(context, value))


CLAIM = Claim(
    id="S-thm-4.6",
    title="the capacity of a deep Transformer, by two norms",
    statement="For tokens of length B_X ≤ 1, log N_∞ ≤ (C₂L_σ)^{O(L)} B_X²B_w²d²C_∞²/ε² log(mT).",
    paper="S",
    label="Theorem 4.6",
    run=run,
    controls=(Control("layers without 1 + 2C₂, the amplification by scores", _shallower),),
)

"""Erratum 4: the limit of softmax attention is not one constant times E[V|K=q]."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, close
from finetti.claims.exchangeability.uniform_keys import DIMENSION, draw_unit, quadratic, read


def run(context: Context) -> Evidence:
    """The ratio of attention to E[V|K=q] for a linear and a quadratic part of E[V|K]."""
    from scipy.special import iv

    rng = context.generator(CLAIM.id)
    harmonic = np.linalg.qr(rng.normal(size=(DIMENSION, DIMENSION)))[0]
    query = draw_unit(rng, 200)
    truth = np.hstack([query @ harmonic.T, quadratic(query)])
    output = np.mean(
        [
            read(context.generator(CLAIM.id, trial), query, harmonic, 20_000)
            for trial in range(context.pick(quick=10, paper=100))
        ],
        axis=0,
    )
    parts = (slice(0, DIMENSION), slice(DIMENSION, None))
    linear, second = (
        float(np.sum(output[:, part] * truth[:, part]) / np.sum(truth[:, part] ** 2))
        for part in parts
    )
    # Funk–Hecke: degree k shrinks by I_{d/2−1+k}(1)/I_{d/2−1}(1).
    factors = [iv(DIMENSION / 2 - 1 + k, 1.0) / iv(DIMENSION / 2 - 1, 1.0) for k in (1, 2)]
    # Both measured spreads are at most 0.0004: five of them.
    return Evidence(
        (at_most("difference of the two ratios", abs(linear - second), 0.1),),
        (
            close("ratio of the linear part − I_{5/2}(1)/I_{3/2}(1)", linear - factors[0], 0.002),
            close(
                "ratio of the quadratic part − I_{7/2}(1)/I_{3/2}(1)", second - factors[1], 0.002
            ),
        ),
        note=f"Ratio {linear:.3f} for the linear part, {second:.3f} for the quadratic one.",
    )


CLAIM = Claim(
    id="E-erratum-4-limit",
    title="printed: softmax attention tends to C·E[V|K=q]",
    statement="As L grows, attn_SM(q, K, V) tends to C·E[V|K=q] with one absolute constant C.",
    paper="E",
    label="Proposition 4.2",
    run=run,
    expected=Verdict.FAILS,
    erratum="At a fixed bandwidth p̂ keeps its smoothing bias. The limit is Nadaraya–Watson, which "
    "shrinks each harmonic degree of E[V|K] by its own factor (Funk–Hecke).",
    false_alarm=1e-6,
)

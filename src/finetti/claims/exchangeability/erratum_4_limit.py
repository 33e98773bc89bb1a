"""Erratum 4: the limit of softmax attention is not one constant times E[V|K=q]."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.exchangeability.uniform_keys import DIMENSION, draw_unit, quadratic, read


def run(context: Context) -> Evidence:
    """The ratio of attention to E[V|K=q] for a linear and a quadratic part of E[V|K]."""
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
    return Evidence(
        (at_most("difference of the two ratios", abs(linear - second), 0.1),),
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

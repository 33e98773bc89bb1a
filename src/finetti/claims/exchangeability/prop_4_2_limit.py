"""Proposition 4.2, second part: where softmax attention goes as the context grows."""

import numpy as np

from finetti import attention, core, show
from finetti.claims.claim import Claim, Context, Evidence, within
from finetti.claims.exchangeability.uniform_keys import DIMENSION, draw_unit, read


def run(context: Context) -> Evidence:
    """Distance to the Nadaraya–Watson limit against L, and the shrinkage factor at L = 20 000."""
    rng = context.generator(CLAIM.id)
    harmonic = np.linalg.qr(rng.normal(size=(DIMENSION, DIMENSION)))[0]
    query = draw_unit(rng, 50)
    target = query @ harmonic.T
    shrinkage = attention.mean_resultant(DIMENSION)
    repeats = context.pick(quick=40, paper=200)
    lengths = [100, 400, 1600, 6400, 25600]
    means, errors, records = [], [], []
    for length in lengths:
        outputs = [
            read(context.generator(CLAIM.id, length, trial), query, harmonic, length)[:, :DIMENSION]
            for trial in range(repeats)
        ]
        sample = np.array(
            [np.linalg.norm(out - shrinkage * target, axis=1).mean() for out in outputs]
        )
        means.append(sample.mean())
        errors.append(sample.std(ddof=1) / np.sqrt(repeats))
        records.append({"length": length, "distance": float(sample.mean())})
    slope = core.power_law_slope(lengths, means, errors)
    ratios = []
    for trial in range(context.pick(quick=20, paper=100)):
        out = read(context.generator(CLAIM.id, "ratio", trial), query, harmonic, 20_000)
        ratios.append(float(np.sum(out[:, :DIMENSION] * target) / np.sum(target**2)))
    ratio, spread = np.mean(ratios), np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    chart = show.line_chart(
        records,
        x="length",
        y="distance",
        log_x=True,
        log_y=True,
        title="Softmax attention approaches the Nadaraya–Watson limit",
        x_title="context length L",
        y_title="mean distance over queries",
    )
    return Evidence(
        (
            within("slope in L of the distance to the limit", slope.value, -0.55, -0.45),
            within(
                "attention over E[V|K=q], linear E[V|K]",
                float(ratio),
                shrinkage - 0.002,
                shrinkage + 0.002,
            ),
        ),
        note=f"A₅(1) = {shrinkage:.5f}; the ratio's standard error is {spread:.5f}.",
        charts=(chart,),
    )


CLAIM = Claim(
    id="E-prop-4.2-limit",
    title="softmax attention tends to Nadaraya–Watson",
    statement="As L grows softmax attention tends to E[V·K(K,q)] / E[K(K,q)] at the rate L^(-1/2); "
    "with keys uniform on the sphere and E[V|K=k] = Mk that is A_d(1)·Mq.",
    paper="E",
    label="Proposition 4.2",
    run=run,
    false_alarm=5e-4,
)

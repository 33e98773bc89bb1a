"""Corollary 4.4: the capacity of a head is logarithmic in the context length."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, at_most, close
from finetti.show.charts import line_chart

LENGTHS = tuple(10**k for k in range(1, 9))


def run(context: Context) -> Evidence:
    """log N_∞ and the gap of one head at contexts of 10 to 10⁸ tokens."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import HeadClass, HeadCovering, HeadGap

    head = HeadClass(width=64, readout_norm=1.0)
    samples = [Sample(10**15, length) for length in LENGTHS]
    uneven = {}
    for form in ("printed", "derived"):
        bound = HeadCovering(head, form=form)
        steps = np.diff([bound.evaluate(sample).value for sample in samples])
        uneven[form] = float(np.ptp(steps) / steps.mean())
    complexity = [HeadGap(head).complexity(sample).log_value for sample in samples]
    # log T is k·log 10, so the root of it grows by √k from the first length to the k-th.
    roots = np.log(np.arange(1, len(LENGTHS) + 1)) / 2
    faster = float((np.array(complexity) - complexity[0] - roots).max())
    records = [
        {"T": length, "gap": HeadGap(head).evaluate(sample).value}
        for length, sample in zip(LENGTHS, samples, strict=True)
    ]
    chart = line_chart(
        records,
        x="T",
        y="gap",
        log_x=True,
        x_title="context length",
        y_title="bound on the generalization gap",
        title="One head of width 64, 10¹⁵ samples",
    )
    return Evidence(
        (
            close("printed: spread of the steps per decade of T", uneven["printed"], 1e-12),
            close("derived: spread of the steps per decade of T", uneven["derived"], 1e-6),
            at_most("complexity: log of its growth over that of √log T", faster, 0.0),
        ),
        charts=(chart,),
    )


CLAIM = Claim(
    id="S-cor-4.4",
    title="the capacity of a head is logarithmic in the context length",
    statement="log N_∞ of heads with bounded norms is affine in log T, so the generalization gap "
    "grows no faster than √log T.",
    paper="S",
    label="Corollary 4.4",
    run=run,
)

"""Proposition 4.1, second part: the ridge costs a bias of λ under the source condition."""

import numpy as np

from finetti import core, show
from finetti.claims.claim import Claim, Context, Evidence, at_most, within
from finetti.claims.exchangeability.support import draw_support


def run(context: Context) -> Evidence:
    """sup_q of the population bias on a world where E[V|K] = C_KK h, against λ‖h‖."""
    rng = context.generator(CLAIM.id)
    support = draw_support(rng)
    # h is a smooth function of the kernel's space; applying C_KK once more makes E[V|K].
    weights = rng.normal(size=len(support.mass)) * support.mass
    gram, across = support.gram, support.across
    source = gram @ weights  # h at the points
    norm = float(np.sqrt(weights @ source))
    means = gram @ (support.mass * source)
    truth = across.T @ (support.mass * source)
    ridges = np.geomspace(1e-3, 1e-5, 5)
    biases = np.array(
        [np.abs(support.regularized(support.mass, means, ridge) - truth).max() for ridge in ridges]
    )
    slope = core.power_law_slope(ridges, biases)
    chart = show.line_chart(
        [
            {"ridge": float(r), "bias": float(b), "bound": float(r * norm)}
            for r, b in zip(ridges, biases, strict=True)
        ],
        x="ridge",
        y="bias",
        reference="bound",
        log_x=True,
        log_y=True,
        title="The bias of the ridge, and its bound λ‖h‖",
        x_title="ridge per token λ",
        y_title="sup-bias over queries",
    )
    return Evidence(
        (
            at_most("largest bias / (λ‖h‖)", float(np.max(biases / (ridges * norm))), 1.0),
            within("slope of the bias in λ", slope.value, 0.97, 1.03),
        ),
        charts=(chart,),
    )


CLAIM = Claim(
    id="E-prop-4.1-bias",
    title="the ridge costs a bias of order λ",
    statement="If E[V|K=·] = C_KK h (the source condition), the λ-regularized population value is "
    "within λ‖h‖√K(q,q) of E[V|K=q].",
    paper="E",
    label="Proposition 4.1, (B.11)",
    run=run,
)

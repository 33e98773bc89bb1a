"""Proposition 4.1, second part: the ridge costs a bias of λ under the source condition."""

from collections.abc import Callable
from functools import partial

import numpy as np

from finetti import core, show
from finetti.claims.claim import Claim, Context, Control, Evidence, at_most, within
from finetti.claims.exchangeability.support import Support, draw_support


def bias_bound(ridge: float, source_norm: float) -> float:
    """λ‖h‖, as the package has it."""
    from finetti.bounds import Sample
    from finetti.bounds.exchangeability import RidgeBias

    return RidgeBias(ridge, source_norm).evaluate(Sample(1, 1)).value


def single_point(ridge: float, scale: float) -> float:
    """The bias where all keys are one point k and h = ``scale``·K(k, ·): E[V|K=k] is ‖h‖."""
    point = np.zeros((1, 2))
    support, truth = Support(point, np.ones(1), point), np.array([scale])
    return float(np.abs(support.regularized(support.mass, truth, ridge) - truth)[0])


def run(context: Context, bound: Callable[[float, float], float] = bias_bound) -> Evidence:
    """sup_q of the population bias on a world where E[V|K] = C_KK h, against λ‖h‖; a tight world.

    With all keys at one point the bias is λ‖h‖/(1 + λ).
    """
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
    limits = np.array([bound(float(ridge), norm) for ridge in ridges])
    chart = show.line_chart(
        [
            {"ridge": float(r), "bias": float(b), "bound": float(limit)}
            for r, b, limit in zip(ridges, biases, limits, strict=True)
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
            at_most("largest bias / (λ‖h‖)", float(np.max(biases / limits)), 1.0),
            within(
                "one key, λ = 0.001, ‖h‖ = 3",
                single_point(1e-3, 3.0) / bound(1e-3, 3.0),
                0.998,
                1.0,
            ),
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
    controls=(
        Control("λ without ‖h‖", partial(run, bound=lambda ridge, norm: ridge)),
        Control("2λ‖h‖", partial(run, bound=lambda ridge, norm: 2 * ridge * norm)),
    ),
)

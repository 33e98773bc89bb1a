"""Erratum 11: unit spectral norms do not spare a bound its factor exponential in the depth."""

import math

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.perturbations import ROUNDING
from finetti.claims.sparse_variables.instances import balanced, layer
from finetti.core.forms import Form

DEPTHS = tuple(range(1, 13))


def growth(form: Form) -> list[float]:
    """What Theorem A.17 multiplies the first layer's error by, at each depth, all norms 1."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import LayerNorms, TransformerClass, log_amplifications

    sample, logs = Sample(1, 1), []
    for depth in DEPTHS:
        network = TransformerClass(layers=(LayerNorms(),) * (depth + 1), width=3)
        factors = network.log_factors(sample, form)
        logs.append(log_amplifications(factors)[0])
    return [math.exp(each) for each in logs]


def run(context: Context) -> Evidence:
    """The factor of the first layer's error over the depth, and one real layer's amplification."""
    from finetti.show.charts import line_chart

    forms: tuple[Form, ...] = ("derived", "printed")
    curves = {form: growth(form) for form in forms}
    # Half of the way changes values, half scores: 1 + √2 for many copies.
    matrix, before, after = balanced(1.0, step=1e-6, common=0.5**0.5)
    moved = lipschitz.attention_token_perturbation(layer(matrix), before, after)
    step = float(moved.bound) / float(lipschitz.token_constant(1.0, 1.0))
    per_layer = {form: curve[-1] ** (1 / DEPTHS[-1]) for form, curve in curves.items()}
    chart = line_chart(
        [
            {"layers": depth, "factor": value, "constant": f"{form}: C = {1 + (form == 'printed')}"}
            for form, curve in curves.items()
            for depth, value in zip(DEPTHS, curve, strict=True)
        ],
        x="layers",
        y="factor",
        color="constant",
        log_y=True,
        x_title="layers after the first",
        y_title="what its error is multiplied by",
    )
    return Evidence(
        (
            at_most("factor per layer over 12 layers", per_layer["derived"], 1 + ROUNDING),
            at_most("the same with the printed C", per_layer["printed"], 1 + ROUNDING),
            at_most("amplification by one real layer", float(moved.measured) / step, 1 + ROUNDING),
        ),
        note="Lemma A.14's factor 1 + 2C‖M‖ is sharp for large ‖M‖ (S-lemma-A.14).",
        charts=(chart,),
    )


CLAIM = Claim(
    id="S-erratum-11",
    title="printed: unit spectral norms avoid the exponential",
    statement="If all spectral norms are at most 1, the bound of Theorem 4.6 has no factor "
    "exponential in the depth: a layer does not amplify a deviation of its tokens.",
    paper="S",
    label="Theorem 4.6",
    run=run,
    expected=Verdict.FAILS,
    erratum="With unit norms Lemma A.14 multiplies by 1 + 2C per layer: 3^L with the sharp C = 1, "
    "5^L as printed. One layer alone can reach 1 + √2.",
)

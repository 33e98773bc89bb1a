"""F-posthoc: what it costs to choose the class after training."""

import math

import numpy as np

from finetti.bounds import BoundSettings, Sample
from finetti.bounds.beyond import BlocksGap, Strata, strata
from finetti.bounds.covering.dudley import log_confidence
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close
from finetti.core.numbers import largest_of, smallest_of

_TERMS = 10**6
# Trained norms and, by hand, the j of the next 1.1^j: 1.1^7 = 1.95 < 2 ≤ 1.1^8 = 2.14, and so on.
_BY_HAND = {0.95: 0, 1.05: 1, 2.0: 8, 0.5: -7}


@claim(
    id="F-posthoc",
    title="radii that were chosen after training",
    statement="With radii B₀c^j and weights 1/(κ(|j| + 1)²), κ = π²/3 − 1, which add up to 1, a "
    "bound holds for all classes at once if log(3/δ) becomes log(3/δ) + Σ (2 log(|j| + 1) + log κ) "
    "over the radii of the class that holds the trained network.",
    formula=r"log\frac{3}{δ} + Σ_{radii} (2 log(|j|+1) + log κ),  κ = \frac{π^2}{3} − 1",
    label="after training",
    controls=(
        Control("κ = π²/6, the sum over j ≥ 0", changes={"kappa": math.pi**2 / 6}),
        Control("κ = π²/3, where j = 0 counts twice", changes={"kappa": math.pi**2 / 3}),
    ),
)
def f_posthoc(context: Context, kappa: float = strata.KAPPA) -> Evidence:
    """The weights added up, radii and the term by hand, and norms that are rounded up.

    Of the sum over all j the first 2·10⁶ + 1 are added, and the rest is at most 2/(n + 1).
    """
    ahead = math.fsum((1 / np.arange(2.0, _TERMS + 2) ** 2).tolist())
    partial = (1 + 2 * ahead) / kappa
    rest = 2 / (_TERMS + 1) / kappa
    grid = Strata()
    found = grid.round_norms({str(norm): norm for norm in _BY_HAND})
    wrong = sum(r.index != _BY_HAND[r.norm] for r in found.radii)
    term = 4 * math.log(kappa) + 2 * (math.log(1) + math.log(2) + math.log(9) + math.log(8))
    sure = math.exp(log_confidence(Sample(200, 1, delta=0.05), post_hoc=found.post_hoc))
    by_hand = 3 * math.sqrt((math.log(60) + term) / 400)
    norms = 10.0 ** context.generator(f_posthoc.id).uniform(-6, 6, size=2000)
    ratios = [grid.radius(norm).value / norm for norm in norms]
    settings = BoundSettings(width=4, norms={"value_norm": 1.3, "readout_norm": 0.7})
    gaps = {
        radii: BlocksGap(BlocksGap.from_settings(settings).functions, radii=radii)
        for radii in ("fixed", "stratified", "measured")
    }
    values = {radii: gap.evaluate(Sample(10**9, 1)).value for radii, gap in gaps.items()}
    scaling = gaps["measured"].kind == "scaling" and gaps["stratified"].kind == "upper_bound"
    return Evidence(
        at_most("sum of 2·10⁶ + 1 weights", partial, 1.0),
        at_least("the same and what all others are at most", partial + rest, 1.0),
        close(
            "weights that differ from 1/(κ(|j| + 1)²)", grid.weight(-3) - 1 / (16 * kappa), 1e-12
        ),
        close("four norms: radii that are not the next of the grid", wrong, 0.0),
        close("the same: the term, minus by hand", found.post_hoc - term, 1e-12),
        close("the same: the confidence at m = 200, minus by hand", sure - by_hand, 1e-12),
        at_least("2000 norms: least radius / norm", smallest_of(ratios), 1.0),
        at_most("2000 norms: largest radius / norm", largest_of(ratios), 1.1 * (1 + 1e-9)),
        at_least("a gap with the term / without", values["stratified"] / values["fixed"], 1.0),
        close("kinds: scaling without the term, upper bound with it", 0.0 if scaling else 1.0, 0.0),
    )

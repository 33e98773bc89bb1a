"""Erratum 17: Lemma A.9 is true, whatever its proof misprints."""

from collections.abc import Callable
from typing import Any

import numpy as np

from finetti.claims.claim import Claim, Context, Control, Evidence, at_least
from finetti.claims.perturbations import ROUNDING
from finetti.claims.sparse_variables.lemma_a_9 import pairs, sphere


def measure(context: Context, project: Callable[[Any], Any]) -> Evidence:
    """⟨Πa − Πb, a − b⟩ − ‖Πa − Πb‖² over ‖a − b‖², by the cases of the proof."""
    first, second = pairs(context, CLAIM.id)
    moved = np.asarray(project(first)) - np.asarray(project(second))
    apart = first - second
    spare = (moved * (apart - moved)).sum(axis=1) / (apart**2).sum(axis=1)
    outside = sum((np.linalg.norm(each, axis=1) > 1).astype(int) for each in (first, second))
    return Evidence(
        tuple(
            at_least(f"least spare, {name}", spare[outside == count].min(), -ROUNDING)
            for count, name in enumerate(("both inside", "one inside", "both outside"))
        ),
        note="With c = Πb in ⟨a − Πa, c − Πa⟩ ≤ 0, the angle at a nearest point of a convex set, "
        "and the same for b, the sum of both is this inequality; Cauchy–Schwarz gives the lemma.",
    )


def run(context: Context) -> Evidence:
    """The inequality of a proof without cases, in each of the cases of the printed one."""
    from finetti.attention.networks.projection import project_ball

    return measure(context, project_ball)


CLAIM = Claim(
    id="S-erratum-17",
    title="Lemma A.9 stands, its printed proof does not",
    statement="⟨Πa − Πb, a − b⟩ ≥ ‖Πa − Πb‖² for the projection Π onto the unit ball, which gives "
    "Lemma A.9.",
    paper="S",
    label="Lemma A.9, proof",
    run=run,
    erratum="The printed proof has misprints; the lemma is true.",
    controls=(Control("the sphere", lambda context: measure(context, sphere)),),
)

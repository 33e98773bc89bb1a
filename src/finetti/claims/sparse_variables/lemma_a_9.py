"""Lemma A.9: projecting tokens onto the unit ball moves no two of them apart."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, at_least, at_most
from finetti.claims.perturbations import DRAWS, ROUNDING, sizes


def stretched(context: Context, claim_id: str, sphere: bool) -> np.ndarray:
    """‖Πa − Πb‖ / ‖a − b‖ for random pairs, near and far, short and long."""
    rng = context.generator(claim_id)
    first = sizes(rng, -3, 3, DRAWS)[:, 0] * rng.normal(size=(DRAWS, 4))
    second = first + sizes(rng, -4, 2, DRAWS)[:, 0] * rng.normal(size=(DRAWS, 4))
    if sphere:
        images = [each / np.linalg.norm(each, axis=1)[:, None] for each in (first, second)]
    else:
        from finetti.attention.networks.projection import project_ball

        images = [np.asarray(project_ball(each)) for each in (first, second)]
    return np.linalg.norm(images[0] - images[1], axis=1) / np.linalg.norm(first - second, axis=1)


def run(context: Context) -> Evidence:
    """The largest and the smallest stretch of random pairs."""
    found = stretched(context, CLAIM.id, sphere=False)
    return Evidence(
        (
            at_most(f"largest stretch of {DRAWS} pairs", found.max(), 1 + ROUNDING),
            at_least("the same, so that 1 is sharp", found.max(), 1 - 1e-6),
        )
    )


CLAIM = Claim(
    id="S-lemma-A.9",
    title="projection onto the ball is a contraction",
    statement="‖Π(a) − Π(b)‖ ≤ ‖a − b‖ for the projection Π of tokens onto the unit ball.",
    paper="S",
    label="Lemma A.9",
    run=run,
)

"""Lemma A.9: projecting tokens onto the unit ball moves no two of them apart."""

from collections.abc import Callable
from typing import Any

import numpy as np

from finetti.claims.claim import Claim, Context, Control, Evidence, at_least, at_most
from finetti.claims.perturbations import DRAWS, ROUNDING, sizes


def pairs(context: Context, claim_id: str) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs of tokens, near and far, short and long."""
    rng = context.generator(claim_id)
    first = sizes(rng, -3, 3, DRAWS)[:, 0] * rng.normal(size=(DRAWS, 4))
    return first, first + sizes(rng, -4, 2, DRAWS)[:, 0] * rng.normal(size=(DRAWS, 4))


def stretched(first: np.ndarray, second: np.ndarray, project: Callable[[Any], Any]) -> np.ndarray:
    """‖Πa − Πb‖ / ‖a − b‖."""
    images = [np.asarray(project(each)) for each in (first, second)]
    return np.linalg.norm(images[0] - images[1], axis=1) / np.linalg.norm(first - second, axis=1)


def sphere(tokens: np.ndarray) -> np.ndarray:
    """Every token divided by its length."""
    return tokens / np.linalg.norm(tokens, axis=1)[:, None]


def measure(context: Context, project: Callable[[Any], Any]) -> Evidence:
    """The largest stretch of random pairs by ``project``."""
    largest = stretched(*pairs(context, CLAIM.id), project).max()
    return Evidence(
        (
            at_most(f"largest stretch of {DRAWS} pairs", largest, 1 + ROUNDING),
            at_least("the same, so that 1 is sharp", largest, 1 - 1e-6),
        )
    )


def run(context: Context) -> Evidence:
    """The largest stretch of random pairs."""
    from finetti.attention.networks.projection import project_ball

    return measure(context, project_ball)


CLAIM = Claim(
    id="S-lemma-A.9",
    title="projection onto the ball is a contraction",
    statement="‖Π(a) − Π(b)‖ ≤ ‖a − b‖ for the projection Π of tokens onto the unit ball.",
    paper="S",
    label="Lemma A.9",
    run=run,
    controls=(Control("the sphere", lambda context: measure(context, sphere)),),
)

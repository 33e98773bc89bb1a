"""Two small kinds, to try a study with and to copy from."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from pydantic import BaseModel, PositiveInt

from finetti.studies.trial_kinds import CohortKind
from finetti.studies.trials import Trial, TrialResult


def estimate_pi(seed: int, n_points: PositiveInt = 1000) -> dict[str, float]:
    """π from the share of random points of the square that fall into the circle."""
    points = np.random.default_rng(seed).uniform(size=(n_points, 2))
    value = 4.0 * float(np.mean(np.sum(points**2, axis=1) < 1.0))
    return {"pi": value, "error": abs(value - np.pi)}


class WalkParameters(BaseModel):
    """Steps of the walk, and the probability of a step upward."""

    n_steps: PositiveInt
    upward: float = 0.5


@final
class RandomWalk(CohortKind):
    """Where a random walk ends; walks of one length are computed together."""

    version = 1
    Parameters = WalkParameters

    def cohort_key(self, params: Mapping[str, Any]) -> Any:
        """Walks of one length have one shape, whatever their drift."""
        return params["n_steps"]

    def run_cohort(self, trials: Sequence[Trial]) -> list[TrialResult]:
        """Each walk draws from its own generator, so that its company does not matter."""
        draws = np.stack(
            [np.random.default_rng(t.seed).random(t.params["n_steps"]) for t in trials]
        )
        upward = np.array([t.params["upward"] for t in trials])
        walks = np.where(draws < upward[:, None], 1, -1).cumsum(axis=1)  # (trials, steps)
        return [
            TrialResult({"end": int(walk[-1]), "highest": int(walk.max())}, {"walk": walk[:20]})
            for walk in walks
        ]

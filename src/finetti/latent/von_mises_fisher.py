"""Unit vectors around a direction: the von Mises–Fisher law, for many directions at once."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.attention.sphere import mean_resultant, sphere_constants
from finetti.latent.base import Floats, as_answers, as_generator

UNIT_TOL = 1e-9  # what counts as a vector of length 1


@dataclass(frozen=True, eq=False)
class DirectionComponents:
    """p(v | direction) = exp(κ vᵀu) / C_0(κ) on S^{d−1}, for directions u (n, a, d).

    E[v] = A_d(κ) u with A_d = I_{d/2}/I_{d/2−1}, which `attention.mean_resultant` gives.

    >>> law = DirectionComponents(np.array([[[1.0, 0.0, 0.0]]]), concentration=10.0)
    >>> law.mean.round(3).tolist(), law.variance.round(3).tolist()  # 1/tanh(10) − 1/10
    ([[[0.9, 0.0, 0.0]]], [[[0.01, 0.09, 0.09]]])
    """

    directions: Floats
    concentration: float

    @property
    def resultant(self) -> float:
        """A_d(κ), the length of the mean."""
        return mean_resultant(self.directions.shape[-1], self.concentration)

    @property
    def mean(self) -> Floats:
        """A_d(κ) u."""
        return self.resultant * self.directions

    @property
    def variance(self) -> Floats:
        """Of every entry: A/κ + (1 − dA/κ − A²)u_i²."""
        d, length = self.directions.shape[-1], self.resultant
        across = length / self.concentration
        return across + (1 - d * across - length**2) * self.directions**2

    def log_prob(self, v: Any) -> Floats:
        """The log density of one vector per sequence under every component, (…, n, a)."""
        shape = len(self.directions), self.directions.shape[2]
        points = as_answers(v, shape, "v", "DirectionComponents.log_prob")
        cosines = np.einsum("nad,...nd->...na", self.directions, points)
        log_area = np.log(sphere_constants(self.directions.shape[-1], self.concentration).c0)
        is_unit = np.abs(np.linalg.norm(points, axis=-1) - 1) <= UNIT_TOL
        return np.where(is_unit[..., None], self.concentration * cosines - log_area, -np.inf)

    def sample(self, rng: Any, atoms: Any) -> Floats:
        """One vector for each entry of ``atoms`` (…, n), around the direction of that atom."""
        chosen = self.directions[np.arange(len(self.directions)), atoms]
        return draw_around(as_generator(rng, "DirectionComponents"), chosen, self.concentration)


def draw_around(rng: np.random.Generator, directions: Floats, concentration: float) -> Floats:
    """A von Mises–Fisher vector around each direction, along the last axis."""
    from scipy.stats import vonmises_fisher  # slow to import, and needed to draw only

    d = directions.shape[-1]
    pole = np.eye(d)[0]
    count = int(np.prod(directions.shape[:-1]))
    law: Any = vonmises_fisher  # whose stub asks for whole concentrations
    around = law(pole, concentration).rvs(max(count, 1), random_state=rng)
    around = np.reshape(around, (-1, d))[:count].reshape(directions.shape)
    # The reflection that takes the pole to the direction keeps the law around it.
    normal = pole - directions
    squared = (normal**2).sum(axis=-1, keepdims=True)
    along = (normal * around).sum(axis=-1, keepdims=True) / np.where(squared > 0, squared, 1.0)
    return around - 2 * along * normal

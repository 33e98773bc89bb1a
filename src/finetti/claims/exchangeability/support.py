"""A world of keys with finite support, where the population operators of Prop. 4.1 are exact."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Support:
    """Keys on finitely many points with probabilities; K is the RBF kernel, K ≤ 1."""

    points: np.ndarray  # (P, d_k)
    mass: np.ndarray  # (P,)
    queries: np.ndarray  # (Q, d_k): the points themselves and a grid around them

    @property
    def gram(self) -> np.ndarray:
        """K among the points."""
        return _rbf(self.points, self.points)

    @property
    def across(self) -> np.ndarray:
        """K from the points to the queries."""
        return _rbf(self.points, self.queries)

    def regularized(self, mass: np.ndarray, means: np.ndarray, ridge: float) -> np.ndarray:
        """C_VK(C_KK + λI)⁻¹k(q,·) at the queries: Σ_j masses, one mean value per point.

        With mass = counts / L it is attn_CME with the ridge Lλ on the L tokens themselves, because
        tokens with equal keys act through their number and their mean value only.
        """
        seen = mass > 0
        system = self.gram[np.ix_(seen, seen)] + np.diag(ridge / mass[seen])
        return self.across[seen].T @ np.linalg.solve(system, means[seen])

    def effective_dimension(self, ridge: float) -> float:
        """Γ(λ) = tr((C_KK + λI)⁻¹C_KK)."""
        root = np.sqrt(self.mass)
        spectrum = np.linalg.eigvalsh(root[:, None] * self.gram * root[None, :])
        spectrum = np.maximum(spectrum, 0.0)
        return float(np.sum(spectrum / (spectrum + ridge)))


def draw_support(rng: np.random.Generator, points: int = 40) -> Support:
    """Points in the plane with uneven masses."""
    locations = rng.uniform(-2, 2, size=(points, 2))
    mass = rng.dirichlet(np.full(points, 5.0))
    axis = np.linspace(-2.5, 2.5, 15)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return Support(locations, mass, np.vstack([locations, grid]))


def draw_context(
    rng: np.random.Generator, support: Support, means: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Counts and mean values of L tokens with V = ±1, E[V | K = point] = ``means``."""
    counts = rng.multinomial(length, support.mass)
    ups = rng.binomial(counts, (1 + means) / 2)
    return counts, np.where(counts > 0, 2 * ups / np.maximum(counts, 1) - 1, 0.0)


def _rbf(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.exp(-np.sum((x[:, None] - y[None]) ** 2, axis=-1) / 2)

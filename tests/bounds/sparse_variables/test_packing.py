"""A cover of radius ε has at least as many balls as a packing at 2ε has points."""

import math

import numpy as np
import pytest

from finetti.bounds import Sample
from finetti.bounds.sparse_variables import (
    HeadClass,
    HeadCovering,
    LinearMapCovering,
    RefinedMatrixCovering,
    VectorCovering,
)


def packing(outputs, separation):
    """How many of ``outputs`` (functions, points, k) are pairwise farther apart: greedily."""
    kept = []
    for each in outputs:
        far = (np.linalg.norm(each - other, axis=-1).max() > separation for other in kept)
        if all(far):
            kept.append(each)
    return len(kept)


def unit_grid(count):
    """Points of the unit disk."""
    axis = np.linspace(-1, 1, count)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    return points[np.linalg.norm(points, axis=1) <= 1]


POINTS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, -0.8]])


@pytest.mark.parametrize("resolution", [0.05, 0.2, 0.5])
def test_linear_functionals(resolution):
    outputs = (unit_grid(41) @ POINTS.T)[:, :, None]
    found = math.log(packing(outputs, 2 * resolution))
    bound = VectorCovering(1.0, resolution).evaluate(Sample(1, len(POINTS)))
    assert found <= bound.value
    assert found > 0


@pytest.mark.parametrize("resolution", [0.2, 0.5])
def test_linear_maps(resolution):
    columns = unit_grid(7)
    pairs = np.stack([np.stack([a, b], axis=1) for a in columns for b in columns])
    found = math.log(packing(POINTS @ pairs, 2 * resolution))
    sample = Sample(1, len(POINTS))
    assert found <= LinearMapCovering(1.0, resolution, outputs=2).evaluate(sample).value
    inside = pairs[np.linalg.norm(pairs, axis=1).sum(axis=1) <= 1]
    found = math.log(packing(POINTS @ inside, 2 * resolution))
    assert 0 <= found <= RefinedMatrixCovering(1.0, resolution, outputs=2).evaluate(sample).value


def test_heads():
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(2, 3, 2))
    tokens /= np.linalg.norm(tokens, axis=-1, keepdims=True)
    outputs = []
    for _ in range(400):
        values, scores = rng.normal(size=(2, 2, 2))
        values /= np.linalg.norm(values, 2)
        scores *= 4 / np.linalg.norm(scores, axis=1).max()
        weights = np.exp(tokens @ scores @ tokens.swapaxes(1, 2))
        weights /= weights.sum(axis=-1, keepdims=True)
        outputs.append((weights @ tokens @ values).reshape(-1, 2))
    head = HeadClass(width=2, score_row_norm=4.0)
    for resolution in (0.1, 0.3):
        found = packing(outputs, 2 * resolution)
        bound = HeadCovering(head, resolution).evaluate(Sample(2, 3))
        assert 0 < math.log(found) <= bound.value


@pytest.mark.parametrize("budget", [1, 2, 8, 64])
def test_budgets_of_the_refined_lemma_cover_every_matrix(budget):
    """Σ K_i ≤ n + d₂, no column longer than its radius, and the errors add up to at most ε²."""
    rng = np.random.default_rng(budget)
    for _ in range(500):
        matrix = rng.normal(size=(4, 5)) * rng.exponential(size=5)
        lengths = np.linalg.norm(matrix, axis=0)
        total = lengths.sum()
        budgets = np.floor(budget * lengths / total) + 1
        assert budgets.sum() <= budget + 5
        assert (lengths <= total * budgets / budget * (1 + 1e-12)).all()
        # 36 Σ (radius_i · B_X / resolution_i)² ≤ 36 (1 + d₂/n)² (B₁B_X/ε)²
        costs = (total * budgets / budget) ** 2 * (budget + 5) / budgets
        assert costs.sum() <= (1 + 5 / budget) ** 2 * total**2 * (1 + 1e-12)

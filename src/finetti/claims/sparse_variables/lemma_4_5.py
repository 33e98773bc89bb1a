"""Lemma 4.5: a cover of linear maps, by the largest or by the sum of their column norms."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, at_most
from finetti.claims.sparse_variables.packing import covered, disk, log_packing, unit_vectors

POINTS, MATRICES, COLUMNS = 5, 2000, 6


def budget_ratios(
    rng: np.random.Generator, budget: int, extra: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For random W: how full the budgets are, how long the columns, how large the cost, all ≤ 1.

    Columns get K_i = ⌊n‖v_i‖/B₁⌋ + ``extra`` units of B₁/n.
    """
    sizes = rng.exponential(size=(MATRICES, 1, COLUMNS)) ** 2
    matrices = rng.normal(size=(MATRICES, 4, COLUMNS)) * sizes
    lengths = np.linalg.norm(matrices, axis=1)
    total = lengths.sum(axis=1, keepdims=True)
    units = np.floor(budget * lengths / total) + extra
    filled = units.sum(axis=1) / (budget + extra * COLUMNS)
    with np.errstate(divide="ignore", invalid="ignore"):
        covered_part = np.where(units > 0, lengths * budget / (total * units), np.inf).max(axis=1)
    cost = (units / budget**2).sum(axis=1) * (budget + COLUMNS) / (1 + COLUMNS / budget) ** 2
    return filled, covered_part, cost


def run(context: Context) -> Evidence:
    """Both bounds against packings of maps of the plane, and the refined proof on random W."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import MatrixCovering, RefinedMatrixCovering

    rng = context.generator(CLAIM.id)
    points, columns = unit_vectors(rng, POINTS, 2), disk(9)
    first, second = np.broadcast_arrays(columns[:, None], columns[None, :])
    pairs = np.stack([first, second], axis=-1).reshape(-1, 2, 2)
    inside = pairs[np.linalg.norm(pairs, axis=1).sum(axis=1) <= 1]
    measurements, sample, resolution = [], Sample(1, POINTS), 0.25
    for name, kind, members in (
        ("columns of length ≤ 1", MatrixCovering, pairs),
        ("columns of lengths that add up to ≤ 1", RefinedMatrixCovering, inside),
    ):
        bound = kind(1.0, resolution, outputs=2).evaluate(sample).value
        measurements.append(covered(name, log_packing(points @ members, 2 * resolution), bound))
    for budget in (1, COLUMNS, 8 * COLUMNS):
        for what, found in zip(
            ("units used / (n + d₂)", "column / its radius", "cost / (1 + d₂/n)²"),
            budget_ratios(rng, budget, extra=1),
            strict=True,
        ):
            measurements.append(at_most(f"n = {budget}: {what}", found.max(), 1 + 1e-12))
    return Evidence(tuple(measurements))


CLAIM = Claim(
    id="S-lemma-4.5",
    title="linear maps: a cover by their column norms",
    statement="The maps x ↦ Wᵀx with d₂ columns of length ≤ B_∞ have log N_∞ ≤ 36(d₂B_∞B_X/ε)² "
    "log(2⌈4B_∞B_X√d₂/ε + 2⌉N + 1). If the lengths add up to B₁, the columns can share whole "
    "budgets K_i = ⌊n‖v_i‖/B₁⌋ + 1 for any n, and d₂² becomes (1 + d₂/n)².",
    paper="S",
    label="Lemma 4.5",
    run=run,
)

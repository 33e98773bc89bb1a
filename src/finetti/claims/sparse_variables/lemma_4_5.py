"""Lemma 4.5: a cover of linear maps, by the largest or by the sum of their column norms."""

import math
from itertools import product
from typing import Any

import numpy as np

from finetti.claims.claim import Claim, Context, Control, Evidence, at_most, close, within
from finetti.claims.sparse_variables.packing import covered, disk, log_packing, unit_vectors
from finetti.claims.sparse_variables.recomputed import Part, functional, matrix

POINTS, MATRICES, COLUMNS = 5, 2000, 6
NORM, LENGTH, RESOLUTION, SAMPLES = 0.7, 1.5, 0.1, 50_000


def random_columns(rng: np.random.Generator, columns: int = COLUMNS) -> np.ndarray:
    """The column lengths of random matrices, some much longer than others."""
    sizes = rng.exponential(size=(MATRICES, 1, columns)) ** 2
    return np.linalg.norm(rng.normal(size=(MATRICES, 4, columns)) * sizes, axis=1)


def budget_ratios(rng: np.random.Generator, budget: int) -> tuple[np.ndarray, ...]:
    """For random W: how full the budgets are, how long the columns, how large the cost, all ≤ 1.

    Columns get K_i = ⌊n‖v_i‖/B₁⌋ + 1 units of B₁/n.
    """
    lengths = random_columns(rng)
    total = lengths.sum(axis=1, keepdims=True)
    units = np.floor(budget * lengths / total) + 1
    filled = units.sum(axis=1) / (budget + COLUMNS)
    covered_part = (lengths * budget / (total * units)).max(axis=1)
    cost = (units / budget**2).sum(axis=1) * (budget + COLUMNS) / (1 + COLUMNS / budget) ** 2
    return filled, covered_part, cost


def enumerated(outputs: int, budget: int) -> float:
    """The refined cover, counted: all tuples k with Σ k_i ≤ n, and the dearest of them."""
    tuples = [k for k in product(range(budget + 1), repeat=outputs) if sum(k) <= budget]
    costs = [
        sum(
            functional(
                NORM * (each + 1) / budget,
                LENGTH,
                RESOLUTION * math.sqrt((each + 1) / (budget + outputs)),
                SAMPLES,
            )
            for each in k
        )
        for k in tuples
    ]
    return math.log(len(tuples)) + max(costs)


def matrix_value(outputs: int) -> float:
    """The bound as the package has it."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import LinearMapCovering

    sample = Sample(1000, 50, input_norm=LENGTH)
    return LinearMapCovering(NORM, RESOLUTION, outputs=outputs).evaluate(sample).value


def refined_value(outputs: int, budget: int) -> float:
    """The refined bound as the package has it."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import RefinedMatrixCovering

    sample = Sample(1000, 50, input_norm=LENGTH)
    bound = RefinedMatrixCovering(NORM, RESOLUTION, outputs=outputs, budget=budget)
    return bound.evaluate(sample).value


def measure(value: Any = matrix_value, refined: Any = refined_value) -> tuple[Any, ...]:
    """Both formulas against the proof's count of columns and of tuples."""
    part = {d: Part(1.0, d, NORM, LENGTH, SAMPLES) for d in (1, 2, 8, 64)}
    errors = [abs(value(d) / matrix(part[d], RESOLUTION) - 1) for d in part]
    # d₂B_∞B_X/ε = 8·0.7·1.5/0.1 = 84, and 4·0.7·1.5·√8/0.1 + 2 = 120.8 is rounded up.
    printed = value(8) / (36 * 84**2 * math.log(2 * 121 * 50_000 + 1)) - 1
    single = max(abs(enumerated(1, n) / refined(1, n) - 1) for n in (1, 2, 5, 9))
    several = max(enumerated(d, n) / refined(d, n) for d in (2, 3) for n in (1, 2, 4, 8))
    return (
        close("36·84² log(242·50 000 + 1), relative", printed, 1e-12),
        close("d₂ columns at ε/√d₂: relative error", max(errors), 1e-12),
        close("refined, one column: relative error to all tuples", single, 1e-12),
        within("refined, 2 and 3 columns: dearest tuple / bound", several, 0.98, 1 + 1e-12),
    )


def run(context: Context) -> Evidence:
    """Both formulas counted again column by column, the refined proof on random W, and packings.

    The counts are exact; the packings of maps of the plane, far below the bounds, are only a floor.
    """
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import LinearMapCovering, RefinedMatrixCovering

    rng = context.generator(CLAIM.id)
    points, columns = unit_vectors(rng, POINTS, 2), disk(9)
    first, second = np.broadcast_arrays(columns[:, None], columns[None, :])
    pairs = np.stack([first, second], axis=-1).reshape(-1, 2, 2)
    inside = pairs[np.linalg.norm(pairs, axis=1).sum(axis=1) <= 1]
    measurements, sample, resolution = [*measure()], Sample(1, POINTS), 0.25
    for name, kind, members in (
        ("columns of length ≤ 1", LinearMapCovering, pairs),
        ("columns of lengths that add up to ≤ 1", RefinedMatrixCovering, inside),
    ):
        bound = kind(1.0, resolution, outputs=2).evaluate(sample).value
        measurements.append(covered(name, log_packing(points @ members, 2 * resolution), bound))
    for budget in (1, COLUMNS, 8 * COLUMNS):
        for what, found in zip(
            ("units used / (n + d₂)", "column / its radius", "cost / (1 + d₂/n)²"),
            budget_ratios(rng, budget),
            strict=True,
        ):
            measurements.append(at_most(f"n = {budget}: {what}", found.max(), 1 + 1e-12))
    return Evidence(tuple(measurements))


def _fewer_columns(context: Context) -> Evidence:
    return Evidence(measure(value=lambda d: matrix_value(d) / d))


def _fewer_units(context: Context) -> Evidence:
    return Evidence(measure(refined=lambda d, n: refined_value(d, n) / (1 + d / n)))


CLAIM = Claim(
    id="S-lemma-4.5",
    title="linear maps: a cover by their column norms",
    statement="The maps x ↦ Wᵀx with d₂ columns of length ≤ B_∞ have log N_∞ ≤ 36(d₂B_∞B_X/ε)² "
    "log(2⌈4B_∞B_X√d₂/ε + 2⌉N + 1). If the lengths add up to B₁, the columns can share whole "
    "budgets K_i = ⌊n‖v_i‖/B₁⌋ + 1 for any n, and d₂² becomes (1 + d₂/n)².",
    paper="S",
    label="Lemma 4.5",
    run=run,
    controls=(
        Control("d₂ in the place of d₂²", _fewer_columns),
        Control("refined: 1 + d₂/n in the place of its square", _fewer_units),
    ),
)

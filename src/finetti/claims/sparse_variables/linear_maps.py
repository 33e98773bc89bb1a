"""Lemmas 4.5 and A.10: covers of linear functionals and linear maps."""

import math
from itertools import product

import numpy as np

from finetti.bounds import Sample
from finetti.bounds import sparse_variables as bounds
from finetti.bounds.covering.linear import log_log_refined_cover
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, Measurement, at_least, at_most, close, within
from finetti.claims.sparse_variables import covers
from finetti.core.numbers import largest_of


@claim(
    id="S-lemma-A.10",
    title="linear functionals: a cover that is logarithmic in the points",
    statement="The functionals x ↦ vᵀx with ‖v‖ ≤ B₁ have on N points of length B₂ a cover with "
    "log N_∞ ≤ 36(B₁B₂/ε)² log(2⌈4B₁B₂/ε + 2⌉N + 1).",
    formula=r"log N_∞ ≤ 36 \frac{B_1^2 B_2^2}{ε^2} log(2 ⌈\frac{4 B_1 B_2}{ε} + 2⌉ N + 1)",
    controls=(Control("18 in the place of 36", changes={"factor": 0.5}),),
)
def s_lemma_a_10(context: Context, factor: float = 1.0) -> Evidence:
    """The bound by hand, at random sizes and at one where every part of it is a whole number."""
    rng, errors = context.generator(s_lemma_a_10.id), []
    for _ in range(200):
        norm, length, resolution = (10.0 ** rng.uniform(-1, 1, size=3)).tolist()
        sample = Sample(int(rng.integers(1, 1000)), 50, input_norm=length)
        found = factor * bounds.VectorCovering(norm, resolution).evaluate(sample).value
        again = covers.functional(norm, length, resolution, 50 * sample.n_samples)
        errors.append(abs(found / again - 1))
    value = factor * bounds.VectorCovering(1.0, 0.1).evaluate(Sample(100, 100)).value
    exact = 3600 * np.log(2 * 42 * 1e4 + 1)
    return Evidence(
        close("36·100·log(84·10⁴ + 1), relative", value / exact - 1, 1e-12),
        close("200 classes by hand, relative", largest_of(errors), 1e-12),
        note="No class that can be packed comes near the bound: the 36 is Zhang's (2002), quoted.",
    )


_MATRICES, _COLUMNS = 2000, 6
_NORM, _LENGTH, _RESOLUTION, _SAMPLES = 0.7, 1.5, 0.1, 50_000


def _budget_ratios(rng: np.random.Generator, budget: int) -> tuple[np.ndarray, ...]:
    """For random W: how full the budgets are, how long the columns, how large the cost, all ≤ 1.

    Columns, some much longer than others, get K_i = ⌊n‖v_i‖/B₁⌋ + 1 units of B₁/n.
    """
    sizes = rng.exponential(size=(_MATRICES, 1, _COLUMNS)) ** 2
    lengths = np.linalg.norm(rng.normal(size=(_MATRICES, 4, _COLUMNS)) * sizes, axis=1)
    total = lengths.sum(axis=1, keepdims=True)
    units = np.floor(budget * lengths / total) + 1
    filled = units.sum(axis=1) / (budget + _COLUMNS)
    covered_part = (lengths * budget / (total * units)).max(axis=1)
    cost = (units / budget**2).sum(axis=1) * (budget + _COLUMNS) / (1 + _COLUMNS / budget) ** 2
    return filled, covered_part, cost


def _enumerated(outputs: int, budget: int) -> float:
    """The refined cover, counted: all tuples k with Σ k_i ≤ n, and the dearest of them."""
    tuples = [k for k in product(range(budget + 1), repeat=outputs) if sum(k) <= budget]
    whole = budget + outputs

    def column(units: int) -> float:
        resolution = _RESOLUTION * math.sqrt((units + 1) / whole)
        return covers.functional(_NORM * (units + 1) / budget, _LENGTH, resolution, _SAMPLES)

    costs = [sum(column(each) for each in k) for k in tuples]
    return math.log(len(tuples)) + largest_of(costs)


def _value(outputs: int) -> float:
    """The bound as the package has it."""
    bound = bounds.LinearMapCovering(_NORM, _RESOLUTION, outputs=outputs)
    return bound.evaluate(Sample(1000, 50, input_norm=_LENGTH)).value


def _refined(outputs: int, budget: int) -> float:
    """The refined bound as the package has it, for one number of units."""
    logs = math.log(_LENGTH), math.log(_RESOLUTION), math.log(_SAMPLES)
    return math.exp(log_log_refined_cover(math.log(_NORM), outputs, *logs, budget))


@claim(
    id="S-lemma-4.5",
    title="linear maps: a cover by their column norms",
    statement="The maps x ↦ Wᵀx with d₂ columns of length ≤ B_∞ have log N_∞ ≤ 36(d₂B_∞B_X/ε)² "
    "log(2⌈4B_∞B_X√d₂/ε + 2⌉N + 1). If the lengths add up to B₁, the columns can share whole "
    "budgets K_i = ⌊n‖v_i‖/B₁⌋ + 1 for any n, and d₂² becomes (1 + d₂/n)².",
    formula=r"log N_∞ ≤ 36 \frac{d_2^2 B_∞^2 B_X^2}{ε^2} log(2 ⌈\frac{4 B_∞ B_X \sqrt{d_2}}{ε} + "
    "2⌉ N + 1)",
    controls=(
        Control("d₂ in the place of d₂²", changes={"value": lambda d: _value(d) / d}),
        Control(
            "refined: 1 + d₂/n in the place of its square",
            changes={"refined": lambda d, n: _refined(d, n) / (1 + d / n)},
        ),
    ),
)
def s_lemma_4_5(context: Context, value: Formula = _value, refined: Formula = _refined) -> Evidence:
    """Both formulas counted again column by column, and the refined proof on random W."""
    rng = context.generator(s_lemma_4_5.id)
    part = {d: covers.Part(1.0, d, _NORM, _LENGTH, _SAMPLES) for d in (1, 2, 8, 64)}
    errors = [abs(value(d) / covers.matrix(part[d], _RESOLUTION) - 1) for d in part]
    # d₂B_∞B_X/ε = 8·0.7·1.5/0.1 = 84, and 4·0.7·1.5·√8/0.1 + 2 = 120.8 is rounded up.
    printed = value(8) / (36 * 84**2 * math.log(2 * 121 * 50_000 + 1)) - 1
    single = largest_of(abs(_enumerated(1, n) / refined(1, n) - 1) for n in (1, 2, 5, 9))
    several = largest_of(_enumerated(d, n) / refined(d, n) for d in (2, 3) for n in (1, 2, 4, 8))
    measurements = [
        close("36·84² log(242·50 000 + 1), relative", printed, 1e-12),
        close("d₂ columns at ε/√d₂: relative error", largest_of(errors), 1e-12),
        close("refined, one column: relative error to all tuples", single, 1e-12),
        within("refined, 2 and 3 columns: dearest tuple / bound", several, 0.98, 1 + 1e-12),
    ]
    names = "units used / (n + d₂)", "column / its radius", "cost / (1 + d₂/n)²"
    for budget in (1, _COLUMNS, 8 * _COLUMNS):
        for what, found in zip(names, _budget_ratios(rng, budget), strict=True):
            measurements.append(at_most(f"n = {budget}: {what}", found.max(), 1 + 1e-12))
    return Evidence(*measurements)


def _budgets(lengths: np.ndarray, bound: np.ndarray) -> tuple[Measurement, Measurement]:
    """Whether k_i = ⌊d₂‖v_i‖/B⌋ has Σ k_i ≤ d₂, and how far apart W and its cover are.

    Column i is covered at ε√((k_i + 1)/2d₂), so that all of them are √((d₂ + Σ k_i)/2d₂)·ε apart.
    """
    count, columns = lengths.shape
    total = np.floor(columns * lengths / bound[:, None]).sum(axis=1)
    return (
        at_least(f"part of {count} matrices in S", np.mean(total <= columns), 1.0),
        at_most("largest radius / ε", np.sqrt((columns + total) / (2 * columns)).max(), 1.0),
    )


@claim(
    id="S-erratum-8",
    title="printed: the columns share a budget by B_∞",
    statement="For every W with columns of length ≤ B_∞ the tuple k_i = ⌊d₂‖v_i‖/B_∞⌋ lies in "
    "S = {Σ k_i ≤ d₂}, so that columns covered at ε√((k_i + 1)/2d₂) are within ε together.",
    formula=r"k_i = ⌊\frac{d_2 ‖v_i‖}{B_1}⌋,  B_1 = Σ_i ‖v_i‖",
    printed=r"k_i = ⌊\frac{d_2 ‖v_i‖}{B_∞}⌋,  Σ_i k_i ≤ d_2",
    label="Lemma 4.5, proof",
    erratum="By B_∞ every long column takes nearly the whole budget. It must be shared by B₁, the "
    "sum of the lengths, which bounds ‖W‖_{2,1} and not ‖W‖_{2,∞}: S-lemma-4.5-refined.",
    controls=(Control("half of B₁", changes={"part": 0.5}),),
)
def s_erratum_8(context: Context, part: float = 1.0) -> Evidence:
    """Random W with 32 columns: whether its tuple is in S = {Σ k_i ≤ d₂}, and the cover's radius.

    The printed proof rounds by B_∞, the length of the longest column; derived: by their sum B₁.
    """
    rng = context.generator(s_erratum_8.id)
    lengths = np.linalg.norm(rng.normal(size=(_MATRICES, 16, 32)), axis=1)
    return Evidence(
        *_budgets(lengths, lengths.max(axis=1)),
        derived=_budgets(lengths, part * lengths.sum(axis=1)),
        note="S-lemma-4.5 has the proof with B₁ and n units for the columns in the place of d₂.",
    )

"""F-cover-count, F-cover-maurey, F-cover-schatten: covers of matrices in spectral norm."""

import math
from itertools import product
from typing import Any

import numpy as np

from finetti.bounds.ours import spectral_covers
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, Measurement, at_most, close, within
from finetti.claims.ours.matrix_rounding import round_to_atoms, round_to_rank, separated_members
from finetti.claims.perturbations import RATIO_RTOL
from finetti.core.numbers import largest_of, smallest_of

_LABEL = "covers without T"


def _spectral(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.norm(matrices, 2, axis=(-2, -1))


def _packed(members: np.ndarray, separation: float, log_cover: float) -> Measurement:
    """Two members more than x apart lie in two balls of radius x/2."""
    packing = math.log(len(separated_members(members, separation)))
    name = f"{len(members)} members: log packing number at x / log cover at x/2"
    return at_most(name, packing / log_cover, 1.0)


def _members(rng: np.random.Generator, count: int) -> np.ndarray:
    """Matrices of 2 × 2 with entries in [−1, 1]."""
    return rng.uniform(-1, 1, size=(count, 2, 2))


def _count(parameters: int, norm: float, resolution: float) -> float:
    """The cover as the package has it."""
    return float(spectral_covers.count_cover(parameters, math.log(norm), math.log(resolution)))


def _half_count(parameters: int, norm: float, resolution: float) -> float:
    return parameters * math.log1p(norm / resolution)


@claim(
    id="F-cover-count",
    title="a cover of matrices, by their parameters",
    statement="Matrices with ‖W‖ ≤ B have a cover of log N = D·log(1 + 2B/x) of their own in "
    "spectral norm; rows of a table and vectors, too, in their norms.",
    formula=r"log N ≤ D log(1 + \frac{2B}{x})",
    label=_LABEL,
    controls=(Control("B in the place of 2B", changes={"cover": _half_count}),),
)
def f_cover_count(context: Context, cover: Formula = _count) -> Evidence:
    """Numbers in an interval at just more than x, and random small matrices.

    The first is what the construction can need at most: a largest set of members that are more
    than x apart, which is a cover.
    """
    x = 0.01
    interval = np.arange(-1, 1, x * (1 + 1e-9)).reshape(-1, 1, 1)
    separated = len(separated_members(interval, x))
    rng, far, coarse = context.generator(f_cover_count.id), 0.0, 0.8
    draws = _members(rng, context.pick(quick=3000, paper=20_000))
    members = draws[_spectral(draws) <= 1]
    net = separated_members(members, coarse)
    for each in members[:500]:
        far = largest_of(far, float(_spectral(net - each).min()) / coarse)
    used = math.log(separated) / cover(1, 1.0, x)
    return Evidence(
        within("[−1, 1], x = 0.01: log of separated / log N", used, 0.98, 1 + RATIO_RTOL),
        at_most("2 × 2: largest distance to the cover / x", far, 1.0),
        at_most("2 × 2: log of its size / log N", math.log(len(net)) / cover(4, 1.0, coarse), 1.0),
        _packed(members[:1500], 0.8, cover(4, 1.0, 0.4)),
    )


def _atoms(entry_norm: float, resolution: float) -> float:
    return float(spectral_covers.maurey_atoms(math.log(entry_norm), math.log(resolution)))


def _half_atoms(entry_norm: float, resolution: float) -> float:
    return math.ceil(entry_norm**2 / resolution**2 / 2 * (1 - 1e-12))


def _maurey(parameters: int, entry_norm: float, resolution: float) -> float:
    return float(
        spectral_covers.maurey_cover(parameters, math.log(entry_norm), math.log(resolution))
    )


def _without_signs(parameters: int, entry_norm: float, resolution: float) -> float:
    atoms = int(_atoms(entry_norm, resolution))
    return math.log(math.comb(parameters + atoms, atoms))


@claim(
    id="F-cover-maurey",
    title="a cover of matrices, by the sum of their entries",
    statement="Matrices with Σ|w_ij| ≤ B₁ have a cover of log N = log C(2D + k, k), k = ⌈B₁²/x²⌉: "
    "averages of k atoms ±B₁e_ie_jᵀ or 0.",
    formula=r"log N ≤ log \binom{2D+k}{k},  k = ⌈\frac{B_1^2}{x^2}⌉",
    label=_LABEL,
    controls=(
        Control("half as many atoms", changes={"atoms": _half_atoms}),
        Control("atoms without signs", changes={"cover": _without_signs}),
    ),
)
def f_cover_maurey(context: Context, atoms: Formula = _atoms, cover: Formula = _maurey) -> Evidence:
    """All averages of four atoms, random matrices rounded to the cover, and averages at random.

    Averages of k atoms are the matrices of integers with Σ|w_ij| ≤ k, times B₁/k. That k atoms
    drawn in the proportions of W come within B₁/√k is seen by the mean square of their error, which
    for n equal entries is B₁²(1 − 1/n)/k; for k = 2 all pairs are enumerated.
    """
    rng, worst, largest = context.generator(f_cover_maurey.id), 0.0, 0.0
    for _ in range(context.pick(quick=300, paper=3000)):
        matrix = rng.normal(size=(4, 4)) * rng.exponential(size=(4, 4)) ** 2
        size = float(np.abs(matrix).sum())
        resolution = size / math.sqrt(rng.uniform(0.5, 40))
        near, _ = round_to_atoms(matrix, size, resolution)
        worst = largest_of(worst, float(np.linalg.norm(near - matrix)) / resolution)
        largest = largest_of(largest, float(np.abs(near).sum()) / size)
    n, x = 64, 1 / math.sqrt(2)
    reached = math.sqrt((1 - 1 / n) / atoms(1.0, x)) / x
    pairs = (np.eye(n)[:, None] + np.eye(n)) / 2 - 1 / n
    enumerated = float((pairs**2).sum(axis=-1).mean())
    draws = _members(rng, 3000)
    inside = draws[np.abs(draws).sum(axis=(1, 2)) <= 1]
    net = sum(sum(map(abs, sums)) <= 4 for sums in product(range(-4, 5), repeat=4))
    return Evidence(
        within(
            "2 × 2, k = 4: log of averages / log N", math.log(net) / cover(4, 2.0, 1.0), 0.9, 1.0
        ),
        at_most("random matrices: largest error / x", worst, 1 + RATIO_RTOL),
        at_most("random matrices: largest Σ|w_ij| / B₁", largest, 1 + RATIO_RTOL),
        within("64 equal entries, k random atoms: error / x", reached, 0.98, 1 + RATIO_RTOL),
        close("the same, all pairs: mean square minus (1 − 1/64)/2", enumerated - 63 / 128, 1e-12),
        _packed(inside, 0.5, cover(4, 1.0, 0.25)),
    )


def _rank(schatten_norm: float, resolution: float, power: float) -> float:
    logs = math.log(schatten_norm), math.log(resolution)
    return float(spectral_covers.schatten_rank(*logs, power))


def _short_rank(schatten_norm: float, resolution: float, power: float) -> float:
    return math.ceil((schatten_norm / resolution) ** power * (1 - 1e-12)) - 1


def _schatten(sides: Any, norm: float, schatten_norm: float, x: float, power: float) -> float:
    rows, columns = sides
    logs = math.log(norm), math.log(schatten_norm), math.log(x)
    return float(spectral_covers.schatten_cover(rows, columns, *logs, power))


def _coarse_factors(sides: Any, norm: float, schatten_norm: float, x: float, power: float) -> float:
    """4B/x in the place of 8B/x."""
    return _schatten(sides, norm / 2, schatten_norm, x, power)


@claim(
    id="F-cover-schatten",
    title="a cover of matrices, by their singular values",
    statement="Matrices with ‖W‖_{S_p} ≤ B_p and ‖W‖ ≤ B have a cover of log N = "
    "r(d₁ + d₂)·log(1 + 8B/x), r = ⌈(2B_p/x)^p⌉ − 1: products of two factors for the r largest "
    "singular values; p ∈ {2, 1, 1/2, 1/4}.",
    formula=r"log N ≤ r (d_1 + d_2) log(1 + \frac{8B}{x}),  r = ⌈(\frac{2B_p}{x})^p⌉ − 1",
    label=_LABEL,
    controls=(
        Control("B_p in the place of 2B_p", changes={"rank": _short_rank}),
        Control("4B in the place of 8B", changes={"cover": _coarse_factors}),
    ),
)
def f_cover_schatten(
    context: Context, rank: Formula = _rank, cover: Formula = _schatten
) -> Evidence:
    """Random matrices rounded to the cover, and both halves of x and the net of factors used up.

    Equal singular values leave x/2 when they are cut; factors that shrink by x/(4√B) take the rest.
    """
    rng, worst, largest, cut = context.generator(f_cover_schatten.id), 0.0, 0.0, []
    for trial in range(context.pick(quick=400, paper=4000)):
        power = spectral_covers.POWERS[trial % 4]
        matrix = rng.normal(size=(5, 6)) @ np.diag(10.0 ** -rng.uniform(0, 2, 6))
        values = np.linalg.svd(matrix, compute_uv=False)
        size, norm = float((values**power).sum() ** (1 / power)), float(values[0])
        x = norm * 10.0 ** rng.uniform(-1, 0.5)
        kept = int(smallest_of(rank(size, x, power), 5))
        near = round_to_rank(matrix, norm, kept, x)
        worst = largest_of(worst, float(_spectral(near - matrix)) / x)
        largest = largest_of(largest, float(_spectral(near)) / norm)
    for power in spectral_covers.POWERS:
        for x in (2.0, 1.999, 1.0):  # 16 singular values of 1 have B_p = 16^{1/p}
            lost = rank(16 ** (1 / power), x, power) < 16
            cut.append(lost / (x / 2))
    norm, x = 1.0, 0.1
    shrunk = math.sqrt(norm) - x / (4 * math.sqrt(norm))
    draws = _members(rng, 3000)
    inside = draws[np.linalg.svd(draws, compute_uv=False).sum(axis=1) <= 1]
    # Numbers of [−√B, √B] that are just more than x/(4√B) apart, for every entry of both factors.
    radius, step = math.sqrt(0.5), 0.05 / (4 * math.sqrt(0.5))
    separated = np.arange(-radius, radius, step * (1 + 1e-9)).size
    per_entry = cover((8, 8), 0.5, 0.15, 0.05, 1.0) / (rank(0.15, 0.05, 1.0) * 16)
    return Evidence(
        at_most("random matrices: largest error / x", worst, 1.0),
        at_most("random matrices: largest norm / B", largest, 1 + RATIO_RTOL),
        within(
            "16 equal singular values: what is cut / (x/2)", largest_of(cut), 0.98, 1 + RATIO_RTOL
        ),
        within("factors that shrink: error / (x/2)", (norm - shrunk**2) / (x / 2), 0.98, 1.0),
        within(
            "one entry of a factor: log of separated / its share of log N",
            math.log(separated) / per_entry,
            0.98,
            1 + RATIO_RTOL,
        ),
        _packed(inside, 0.6, cover((2, 2), 1.0, 1.0, 0.3, 1.0)),
    )

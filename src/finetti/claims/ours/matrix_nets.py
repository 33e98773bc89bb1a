"""F-cover-count, F-cover-maurey, F-cover-schatten: covers of matrices in spectral norm."""

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np

from finetti.bounds.ours import spectral_covers
from finetti.claims.claim import CheckMethod, Context, claim
from finetti.claims.evidence import Evidence, Measurement, at_most, close, within
from finetti.claims.measures import RATIO_RTOL
from finetti.core.numerics.extremes import largest_of, smallest_of

_LABEL = "covers without T"


def separated_members(members: Iterable[Any], resolution: float) -> np.ndarray:
    """Those of ``members`` that are more than x from all that were kept before: `count_cover`

    What is not kept is within x of something that is, so that they are a cover, inside.

    >>> members = np.linspace(-1, 1, 2001).reshape(-1, 1, 1)
    >>> len(separated_members(members, 0.0999))                           # of 1 + 2/x = 21.02
    21
    """
    kept: list[np.ndarray] = []
    for member in members:
        each = np.asarray(member, dtype=np.float64)
        if not kept or np.linalg.norm(np.stack(kept) - each, 2, axis=(1, 2)).min() > resolution:
            kept.append(each)
    return np.stack(kept)


def round_to_atoms(matrix: Any, entry_norm: float, resolution: float) -> tuple[np.ndarray, int]:
    """An average of k atoms ±B₁e_ie_jᵀ or 0 within x of ``matrix``, and k: `maurey_cover`

    Each atom is the one that brings k times the average nearest to k times the matrix: of all atoms
    in their proportions in W, the mean of ‖S − (j−1)W + a − W‖² is at most ‖S − (j−1)W‖² + B₁², so
    that the last is at most kB₁².

    >>> found, count = round_to_atoms([[0.5, -0.5], [0.25, 0.0]], 1.25, 0.7)
    >>> count, float(np.linalg.norm(found - np.array([[0.5, -0.5], [0.25, 0.0]]))) <= 0.7
    (4, True)
    """
    matrix = np.asarray(matrix)
    count = int(spectral_covers.maurey_atoms(np.log(entry_norm), np.log(resolution)))
    behind = np.zeros_like(matrix)  # what the atoms so far lack
    total = np.zeros_like(matrix)
    for _ in range(count):
        behind += matrix
        where = np.unravel_index(np.abs(behind).argmax(), matrix.shape)
        atom = np.sign(behind[where]) * entry_norm
        # ‖behind − a‖² is smaller with the atom than with 0 if 2|behind| > B₁ there.
        if 2 * abs(behind[where]) > entry_norm:
            behind[where] -= atom
            total[where] += atom
    return total / count, count


def round_to_rank(matrix: Any, norm: float, rank: int, resolution: float) -> np.ndarray:
    """The r largest singular values as a product of two factors of a grid: `rank_cover` at x/2

    Each factor is rounded by at most x/(4√B) and kept in the ball of radius √B, so that the product
    is within x/2 of the truncated matrix.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    roots = np.sqrt(values[:rank])
    step = resolution / (4 * np.sqrt(norm))
    factors = (left[:, :rank] * roots, right[:rank].T * roots)
    first, second = (_rounded(each, np.sqrt(norm), step) for each in factors)
    return first @ second.T


def _rounded(factor: np.ndarray, norm: float, distance: float) -> np.ndarray:
    """To a grid, half of ``distance`` at most, and back into the ball, the other half."""
    if factor.size == 0:
        return factor
    step = distance / np.sqrt(factor.size)
    left, values, right = np.linalg.svd(np.round(factor / step) * step, full_matrices=False)
    return (left * np.minimum(values, norm)) @ right


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


@claim(
    id="F-cover-count",
    title="a cover of matrices, by their parameters",
    statement="Matrices in a ball of the spectral norm have a cover of their own whose size is "
    "exponential in the number D of their parameters; rows of a table and vectors, too, in their "
    "norms.",
    formula=r"log N ≤ D log(1 + \frac{2B}{x}),  ‖W‖ ≤ B",
    label=_LABEL,
    check=CheckMethod.TIGHT,
    rejects="log N larger or smaller by a factor of 1.02",
)
def f_cover_count(context: Context) -> Evidence:
    """Numbers in an interval at just more than x, and random small matrices.

    The first is what the construction can need at most: a largest set of members that are more
    than x apart, which is a cover.
    """
    x, coarse = 0.01, 0.8
    interval = np.arange(-1, 1, x * (1 + 1e-9)).reshape(-1, 1, 1)
    separated = len(separated_members(interval, x))
    draws = _members(context.draws(), context.pick(quick=3000, paper=20_000))
    members = draws[_spectral(draws) <= 1]
    net = separated_members(members, coarse)
    far = largest_of(float(_spectral(net - each).min()) / coarse for each in members[:500])

    def cover(parameters: int, resolution: float) -> float:
        return float(spectral_covers.count_cover(parameters, 0.0, math.log(resolution)))

    used, size = math.log(separated) / cover(1, x), math.log(len(net)) / cover(4, coarse)
    return Evidence(
        within("[−1, 1], x = 0.01: log of separated / log N", used, 0.98, 1 + RATIO_RTOL),
        at_most("2 × 2: largest distance to the cover / x", far, 1.0),
        at_most("2 × 2: log of its size / log N", size, 1.0),
        _packed(members[:1500], 0.8, cover(4, 0.4)),
    )


@claim(
    id="F-cover-maurey",
    title="a cover of matrices, by the sum of their entries",
    statement="Matrices with a small sum of absolute entries are near averages of k atoms, each "
    "one signed entry or 0, and these averages are few.",
    formula=r"log N ≤ log \binom{2D+k}{k},  k = ⌈\frac{B_1^2}{x^2}⌉,  Σ|w_{ij}| ≤ B_1",
    label=_LABEL,
    check=CheckMethod.TIGHT,
    rejects="k larger or smaller by a factor of 1.05, log N larger by one of 1.04 or smaller by "
    "one of 1.08",
)
def f_cover_maurey(context: Context) -> Evidence:
    """All averages of four atoms, random matrices rounded to the cover, and averages at random.

    Averages of k atoms are the matrices of integers with Σ|w_ij| ≤ k, times B₁/k. That k atoms
    drawn in the proportions of W come within B₁/√k is seen by the mean square of their error, which
    for n equal entries is B₁²(1 − 1/n)/k; for k = 2 all pairs are enumerated.
    """
    rng, errors, sizes = context.draws(), [], []
    for _ in range(context.pick(quick=300, paper=3000)):
        matrix = rng.normal(size=(4, 4)) * rng.exponential(size=(4, 4)) ** 2
        size = float(np.abs(matrix).sum())
        resolution = size / math.sqrt(rng.uniform(0.5, 40))
        near, _ = round_to_atoms(matrix, size, resolution)
        errors.append(float(np.linalg.norm(near - matrix)) / resolution)
        sizes.append(float(np.abs(near).sum()) / size)
    n, x = 64, 1 / math.sqrt(2)
    reached = math.sqrt((1 - 1 / n) / float(spectral_covers.maurey_atoms(0.0, math.log(x)))) / x
    pairs = (np.eye(n)[:, None] + np.eye(n)) / 2 - 1 / n
    enumerated = float((pairs**2).sum(axis=-1).mean())
    draws = _members(rng, 3000)
    inside = draws[np.abs(draws).sum(axis=(1, 2)) <= 1]
    net = sum(sum(map(abs, sums)) <= 4 for sums in product(range(-4, 5), repeat=4))
    counted = math.log(net) / float(spectral_covers.maurey_cover(4, math.log(2.0), 0.0))
    return Evidence(
        within("2 × 2, k = 4: log of averages / log N", counted, 0.9, 1.0),
        at_most("random matrices: largest error / x", largest_of(errors), 1 + RATIO_RTOL),
        at_most("random matrices: largest Σ|w_ij| / B₁", largest_of(sizes), 1 + RATIO_RTOL),
        within("64 equal entries, k random atoms: error / x", reached, 0.98, 1 + RATIO_RTOL),
        close("the same, all pairs: mean square minus (1 − 1/64)/2", enumerated - 63 / 128, 1e-12),
        _packed(inside, 0.5, float(spectral_covers.maurey_cover(4, 0.0, math.log(0.25)))),
    )


def _rank(schatten_norm: float, resolution: float, power: float) -> float:
    return float(
        spectral_covers.schatten_rank(math.log(schatten_norm), math.log(resolution), power)
    )


def _cover(side: int, norm: float, schatten_norm: float, resolution: float) -> float:
    """log N of square matrices, by the sum of their singular values."""
    logs = math.log(norm), math.log(schatten_norm), math.log(resolution)
    return float(spectral_covers.schatten_cover(side, side, *logs, 1.0))


@claim(
    id="F-cover-schatten",
    title="a cover of matrices, by their singular values",
    statement="Matrices with a small Schatten norm for p = 2, 1, 1/2 or 1/4 are near products of "
    "two factors for their r largest singular values, and such products are few.",
    formula=r"log N ≤ r (d_1 + d_2) log(1 + \frac{8B}{x}),  r = ⌈(\frac{2B_p}{x})^p⌉ − 1,  "
    "‖W‖_{S_p} ≤ B_p,  ‖W‖ ≤ B",
    label=_LABEL,
    check=CheckMethod.TIGHT,
    rejects="2B_p in r larger or smaller by a factor of 1.001, log N for r by one of 1.02",
)
def f_cover_schatten(context: Context) -> Evidence:
    """Random matrices rounded to the cover, and both halves of x and the net of factors used up.

    Equal singular values leave x/2 when they are cut; factors that shrink by x/(4√B) take the rest.
    """
    rng, errors, norms = context.draws(), [], []
    for trial in range(context.pick(quick=400, paper=4000)):
        power = spectral_covers.POWERS[trial % 4]
        matrix = rng.normal(size=(5, 6)) @ np.diag(10.0 ** -rng.uniform(0, 2, 6))
        values = np.linalg.svd(matrix, compute_uv=False)
        size, norm = float((values**power).sum() ** (1 / power)), float(values[0])
        x = norm * 10.0 ** rng.uniform(-1, 0.5)
        near = round_to_rank(matrix, norm, int(smallest_of(_rank(size, x, power), 5)), x)
        errors.append(float(_spectral(near - matrix)) / x)
        norms.append(float(_spectral(near)) / norm)
    cut = largest_of(
        (_rank(16 ** (1 / power), x, power) < 16) / (x / 2)  # 16 singular values of 1
        for power in spectral_covers.POWERS
        for x in (2.0, 1.999, 1.0)
    )
    norm, x = 0.5, 0.05
    root, step = math.sqrt(norm), x / (4 * math.sqrt(norm))
    # Numbers of [−√B, √B] that are just more than x/(4√B) apart, for every entry of both factors.
    separated = np.arange(-root, root, step * (1 + 1e-9)).size
    per_entry = _cover(64, norm, 0.15, x) / (_rank(0.15, x, 1.0) * 128)
    draws = _members(rng, 3000)
    inside = draws[np.linalg.svd(draws, compute_uv=False).sum(axis=1) <= 1]
    shrunk, net = (norm - (root - step) ** 2) / (x / 2), math.log(separated) / per_entry
    return Evidence(
        at_most("random matrices: largest error / x", largest_of(errors), 1.0),
        at_most("random matrices: largest norm / B", largest_of(norms), 1 + RATIO_RTOL),
        within("16 equal singular values: what is cut / (x/2)", cut, 0.98, 1 + RATIO_RTOL),
        within("factors that shrink: error / (x/2)", shrunk, 0.98, 1.0),
        within("an entry of a factor: log of separated / log N", net, 0.98, 1 + RATIO_RTOL),
        _packed(inside, 0.6, _cover(2, 1.0, 1.0, 0.3)),
    )

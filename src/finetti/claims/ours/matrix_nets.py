"""F-cover-count, F-cover-maurey, F-cover-schatten: covers of matrices in spectral norm."""

import math
from itertools import product

import numpy as np

from finetti.bounds.ours import spectral_covers
from finetti.claims.claim import CheckMethod, Context, claim
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
    per_entry = _cover(8, norm, 0.15, x) / (_rank(0.15, x, 1.0) * 16)
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

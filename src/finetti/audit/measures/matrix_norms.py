"""The size of a matrix in every norm that a bound asks for, from its entries or thin factors."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.measures.certified_norm import certified_product, certified_spectral
from finetti.audit.measures.singular_values import singular_values
from finetti.core.arguments import check_finite
from finetti.core.errors import InputError, bad_argument
from finetti.core.numerics.extremes import largest_of
from finetti.core.plain_data import field_values

Matrix = NDArray[np.float64]
POWERS = {"frobenius": 2.0, "nuclear": 1.0, "half": 0.5, "quarter": 0.25}
TINY = 2.0**-1000  # far above the numbers that have fewer digits
SHOWN = 33  # singular values that are kept for a chart
BLOCK = 2**20  # entries of a product that exist at the same time


@dataclass(frozen=True)
class MatrixMeasures:
    """Norms of a matrix M that acts on tokens from the right, x ↦ xM.

    ``spectral`` lies between ``spectral_lower`` and ``spectral_upper`` for certain. ``nuclear``,
    ``half`` and ``quarter`` are (Σσ^p)^{1/p} for p = 1, 1/2, 1/4. ``norm_2_inf`` and ``norm_2_1``
    are the largest and the summed column norm, ``rows_2_inf`` and ``rows_2_1`` those of rows.
    Singular values below max(rows, columns)·2⁻⁵²·σ₁ count as zero. ``entropy`` is that of
    σ²/Σσ², in nats. ``spectrum`` has at most 33 of the singular values, evenly spaced from the
    largest to the smallest.
    """

    rows: int
    columns: int
    spectral: float
    spectral_lower: float
    spectral_upper: float
    frobenius: float
    nuclear: float
    half: float
    quarter: float
    norm_2_inf: float
    norm_2_1: float
    rows_2_inf: float
    rows_2_1: float
    entries: float
    rank: int
    stable_rank: float
    entropy: float
    spectrum: tuple[float, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the spectrum."""
        return field_values(self)


def measure_matrix(matrix: Any) -> MatrixMeasures:
    """Return all measures of a matrix (inputs, outputs).

    >>> found = measure_matrix([[3.0, 0.0], [0.0, 4.0]])
    >>> found.spectral, found.frobenius, found.nuclear, found.norm_2_1, found.rank
    (4.0, 5.0, 7.0, 7.0, 2)
    """
    return measure_spectrum(matrix)[0]


def measure_spectrum(matrix: Any) -> tuple[MatrixMeasures, Matrix]:
    """Return all measures of a matrix, and its singular values."""
    matrix, exponent = _scaled(matrix, "measure_matrix")
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    gram = tall.T @ tall
    values = singular_values(tall, gram)
    certified = certified_spectral(tall, gram, float(values[0])) if values[0] > 0 else (0.0, 0.0)
    columns = np.sqrt(np.einsum("ij,ij->j", matrix, matrix))
    rows = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
    entries = sum(float(np.abs(block).sum()) for block in _blocks(matrix))
    found = _measures(matrix.shape, values, certified, columns, rows, entries, exponent)
    return found, np.ldexp(values, exponent)


def measure_product(left: Any, right: Any) -> MatrixMeasures:
    """All measures of the product ``AᵀB`` of thin factors A and B (k, d), never formed whole.

    With Aᵀ = Q_A R_A and Bᵀ = Q_B R_B the singular values are those of the small R_A R_Bᵀ. Of a
    head, A and B are query and key (W_QW_Kᵀ), or value and output (W_VW_O).

    >>> found = measure_product([[1.0, 0.0, 0.0]], [[0.0, 3.0, 4.0]])
    >>> found.rows, found.columns, found.rank, round(found.spectral, 12), found.entries
    (3, 3, 1, 5.0, 7.0)
    """
    (left, first), (right, second) = (_scaled(each, "measure_product") for each in (left, right))
    if len(left) != len(right):
        raise bad_argument(
            "right", "measure_product", f"of {len(left)} rows, as left", f"shape {right.shape}"
        )
    r_left, r_right = (np.asarray(np.linalg.qr(each.T, mode="r")) for each in (left, right))
    core = r_left @ r_right.T
    values = np.linalg.svd(core, compute_uv=False)
    certified = (0.0, 0.0)
    if values[0] > 0:
        certified = certified_product(left, right, r_left, r_right, core, float(values[0]))
    columns = np.linalg.norm(r_left @ right, axis=0)
    rows = np.linalg.norm(r_right @ left, axis=0)
    step = max(1, BLOCK // right.shape[1])
    entries = 0.0
    for start in range(0, left.shape[1], step):
        entries += float(np.abs(left[:, start : start + step].T @ right).sum())
    shape = left.shape[1], right.shape[1]
    return _measures(shape, values, certified, columns, rows, entries, first + second)


def _scaled(matrix: Any, owner: str) -> tuple[Matrix, int]:
    """The matrix with entries of at most 1, and the power of two that was taken out of it."""
    matrix = np.asarray(matrix, np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise bad_argument("matrix", owner, "a matrix with entries", f"shape {matrix.shape}")
    check_finite(matrix, "matrix", owner)
    exponent = math.frexp(largest_of(float(matrix.max()), -float(matrix.min())))[1]
    return np.ldexp(matrix, -exponent), exponent


def _blocks(matrix: Matrix) -> Iterator[Matrix]:
    step = max(1, BLOCK // matrix.shape[1])
    return (matrix[start : start + step] for start in range(0, len(matrix), step))


def _measures(
    shape: tuple[int, ...],
    values,
    certified: tuple[float, float],
    columns: Matrix,
    rows: Matrix,
    entries: float,
    exponent: int,
) -> MatrixMeasures:
    top = float(values[0])
    chosen = np.linspace(0, len(values) - 1, min(len(values), SHOWN)).round().astype(int)
    kept = values[chosen]
    values = values[values > max(shape) * 2.0**-52 * top]
    relative = values / top if top > 0 else values
    squares = relative**2 / largest_of(float((relative**2).sum()), 1.0)
    norms = {
        name: top * float((relative**power).sum()) ** (1 / power) for name, power in POWERS.items()
    }
    sizes = {
        "spectral": top,
        "spectral_lower": certified[0],
        "spectral_upper": certified[1],
        **norms,
        "norm_2_inf": float(columns.max()),
        "norm_2_1": float(columns.sum()),
        "rows_2_inf": float(rows.max()),
        "rows_2_1": float(rows.sum()),
        "entries": entries,
    }
    try:
        sizes = {name: math.ldexp(value, exponent) for name, value in sizes.items()}
        if certified[1] > 0 and sizes["spectral_upper"] < TINY:  # rounded once more
            sizes["spectral_upper"] = math.nextafter(sizes["spectral_upper"], math.inf)
            sizes["spectral_lower"] = math.nextafter(sizes["spectral_lower"], -math.inf)
            sizes["spectral_lower"] = largest_of(0.0, sizes["spectral_lower"])
    except OverflowError as error:
        raise InputError(
            "A norm is too large for float64: entries beyond 1e150 cannot be measured."
        ) from error
    return MatrixMeasures(
        rows=shape[0],
        columns=shape[1],
        **sizes,
        rank=len(values),
        stable_rank=float((relative**2).sum()),
        entropy=float(-(squares * np.log(squares)).sum()) + 0.0,
        spectrum=tuple(np.ldexp(kept, exponent).tolist()),
    )

"""Norms of matrices and of token sequences, for NumPy and JAX arrays alike (edelman2022, 2).

``‖M‖_{p,q}``: p-norm of every COLUMN, then the q-norm of those. ``‖M‖_{r→s}``: operator norm.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.core.arrays import check_finite, check_rank, namespace
from finetti.core.errors import bad_argument
from finetti.core.numbers import largest_of, smallest_of

_MAX_SIGNS, _MAX_STEPS = 16, 200  # 2¹⁵ sign vectors: still a fraction of a second


def _real_array(array: Any, shape: str, argument: str, owner: str) -> Any:
    """``array`` with float32 or float64 entries, checked: two axes or more, not empty, finite."""
    xp = namespace(array)
    array = xp.asarray(array)
    check_rank(array, 2, shape, argument, owner)
    if array.size == 0:
        raise bad_argument(argument, owner, "an array with entries", f"shape {array.shape}")
    if array.dtype.kind == "c":
        raise bad_argument(argument, owner, "real", f"dtype {array.dtype}")
    if array.dtype.name not in ("float32", "float64"):
        # Half precision has too few digits for a sum of many powers, integers have none.
        array = array.astype(float)
    check_finite(array, argument, owner)
    return array


def _exponent(value: float, argument: str, owner: str) -> float:
    if not value >= 1:
        raise bad_argument(argument, owner, "an exponent in [1, ∞]", value)
    return float(value)


def _vector_norm(array: Any, p: float, axis: int) -> Any:
    """The p-norm along ``axis``: no overflow for large p, gradient 0 (a subgradient) at 0."""
    xp = namespace(array)
    size = xp.abs(array)
    if p == math.inf:
        return size.max(axis=axis)
    if p == 1:
        return size.sum(axis=axis)
    top = size.max(axis=axis, keepdims=True)
    scale = xp.where(top > 0, top, 1.0)
    size /= scale  # in place in NumPy, where these may be all weights of a network
    size **= p
    total = size.sum(axis=axis)
    zero = total == 0  # where the derivative of the root would be infinite
    root = xp.where(zero, 1.0, total) ** (1 / p)
    return xp.where(zero, 0.0, root * scale.squeeze(axis))


def column_norms(matrix: Any, p: float = 2) -> Any:
    """The p-norm of every column: (…, rows, columns) → (…, columns).

    >>> column_norms([[3.0, 0.0], [4.0, 1.0]])
    array([5., 1.])
    """
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "column_norms")
    return _vector_norm(matrix, _exponent(p, "p", "column_norms"), axis=-2)


def norm_pq(matrix: Any, p: float, q: float) -> Any:
    """The (p,q) norm ``‖M‖_{p,q} = (Σ_j ‖M_{:,j}‖_p^q)^{1/q}`` of (…, rows, columns).

    Leading axes are a batch. ``p`` and ``q`` are in [1, ∞], with ``math.inf`` for ∞.

    >>> float(norm_pq([[3.0, 0.0], [4.0, 1.0]], 2, 1))
    6.0
    """
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "norm_pq")
    p, q = _exponent(p, "p", "norm_pq"), _exponent(q, "q", "norm_pq")
    return _vector_norm(_vector_norm(matrix, p, axis=-2), q, axis=-1)


def sequence_norm(tokens: Any, r: float = 2) -> Any:
    """The largest token of a sequence: ``‖X‖_{r,∞} = max_ℓ ‖x_ℓ‖_r`` for tokens (…, L, d).

    Equal to ``norm_pq(X^⊤, r, ∞)``: tokens are rows here.

    >>> float(sequence_norm([[3.0, 4.0], [1.0, 1.0], [0.0, 2.0]]))
    5.0
    """
    tokens = _real_array(tokens, "(…, L, d)", "tokens", "sequence_norm")
    return _vector_norm(tokens, _exponent(r, "r", "sequence_norm"), axis=-1).max(axis=-1)


def frobenius(matrix: Any) -> Any:
    """The Frobenius norm ``(Σ_ij M_ij²)^{1/2}`` of (…, rows, columns)."""
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "frobenius")
    return _vector_norm(matrix.reshape(*matrix.shape[:-2], -1), 2, axis=-1)


def spectral(matrix: Any) -> Any:
    """The largest singular value of (…, rows, columns), ``‖M‖`` in the papers."""
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "spectral")
    if namespace(matrix) is np:
        return np.linalg.svd(matrix, compute_uv=False)[..., 0]
    from finetti.core.lapack import singular_values  # imports JAX

    return singular_values(matrix)[..., 0]


def max_column_norm(matrix: Any, p: float = 2) -> Any:
    """The largest column norm: B_V^∞ of W_V and B_C^∞ of W_C (edelman2022, erratum 9)."""
    return column_norms(matrix, p).max(axis=-1)


def max_row_norm(matrix: Any, p: float = 2) -> Any:
    """The largest row norm: B_QK^∞ of W_Q W_K^⊤ (edelman2022, erratum 9)."""
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "max_row_norm")
    return _vector_norm(matrix, _exponent(p, "p", "max_row_norm"), axis=-1).max(axis=-1)


@dataclass(frozen=True)
class OperatorNorm:
    """``lower ≤ ‖M‖_{r→s} ≤ upper`` up to rounding; ``method`` names what gave ``upper``."""

    lower: float
    upper: float
    exact: bool
    method: str

    @property
    def value(self) -> float:
        """The number to put into a bound: ``upper``."""
        return self.upper


def operator_norm(matrix: Any, r: float, s: float) -> OperatorNorm:
    """``‖M‖_{r→s} = max_x ‖Mx‖_s/‖x‖_r``: exact where tractable, else between two bounds.

    Exact for r=1, s=∞, r=s=2, a single row or column, r=∞ with at most 16 columns and s=1 with at
    most 16 rows. Elsewhere it is NP-hard in general; then ``upper`` is the least of several proven
    bounds, and ``lower`` what a power iteration reaches from several fixed starts. NumPy, float64.

    >>> operator_norm([[1.0, 2.0], [3.0, 4.0]], math.inf, 1)
    OperatorNorm(lower=10.0, upper=10.0, exact=True, method='sign vectors')

    Reference: D. W. Boyd, "The power method for l^p norms", Linear Algebra Appl. 9 (1974);
    N. J. Higham, "Estimating the matrix p-norm", Numer. Math. 62 (1992).
    """
    array = _real_array(np.asarray(matrix), "(rows, columns)", "matrix", "operator_norm")
    if array.ndim != 2:
        raise bad_argument("matrix", "operator_norm", "two-dimensional", f"shape {array.shape}")
    r, s = _exponent(r, "r", "operator_norm"), _exponent(s, "s", "operator_norm")
    # A power of two changes no digit, and the bounds below multiply norms without overflow.
    scale = math.ldexp(1.0, math.frexp(float(np.abs(array).max()))[1] - 1)
    array = array.astype(np.float64) / scale
    exact = _exact(array, r, s)
    if exact is not None:
        return OperatorNorm(exact[0] * scale, exact[0] * scale, True, exact[1])
    upper, method = min(_upper_bounds(array, r, s))
    lower = smallest_of(_power_iteration(array, r, s), upper)  # if equal, rounding may swap them
    return OperatorNorm(lower * scale, upper * scale, False, method)


def _dual(p: float) -> float:
    """p* with 1/p + 1/p* = 1."""
    return math.inf if p == 1 else 1.0 if p == math.inf else p / (p - 1)


def _exact(matrix: NDArray[np.float64], r: float, s: float) -> tuple[float, str] | None:
    rows, columns = matrix.shape
    if r == 1 or columns == 1:  # the unit ball of ℓ_1 is the hull of ±e_j
        return float(_vector_norm(matrix, s, axis=0).max()), "largest column"
    if s == math.inf or rows == 1:  # the dual statement
        return float(_vector_norm(matrix, _dual(r), axis=1).max()), "largest row"
    if r == s == 2:
        return float(np.linalg.svd(matrix, compute_uv=False)[0]), "singular value"
    if r == math.inf and columns <= _MAX_SIGNS:
        return _sign_enumeration(matrix, s), "sign vectors"
    if s == 1 and rows <= _MAX_SIGNS:  # ‖M‖_{r→1} = ‖M^⊤‖_{∞→r*}
        return _sign_enumeration(matrix.T, _dual(r)), "sign vectors"
    return None


def _sign_enumeration(matrix: NDArray[np.float64], s: float) -> float:
    """‖M‖_{∞→s}: a convex function is largest at a corner of the cube; x and −x count once."""
    rows, columns = matrix.shape
    best, chunk = 0.0, max(1, 2**20 // rows)
    for start in range(0, 2 ** (columns - 1), chunk):
        numbers = np.arange(start, min(start + chunk, 2 ** (columns - 1)))
        signs = 1.0 - 2.0 * ((numbers >> np.arange(columns)[:, None]) & 1)
        best = largest_of(best, float(_vector_norm(matrix @ signs, s, axis=0).max()))
    return best


def _upper_bounds(matrix: NDArray[np.float64], r: float, s: float) -> Iterator[tuple[float, str]]:
    rows, columns = matrix.shape
    yield float(norm_pq(matrix.T, _dual(r), s)), "row norms"  # Hölder in every row
    yield float(norm_pq(matrix, s, _dual(r))), "column norms"  # triangle over the columns
    # ‖M‖_{r→s} ≤ ‖I‖_{r→t} ‖M‖_{t→u} ‖I‖_{u→s}. With t=1 or u=∞ this is never below the two above.
    two = float(spectral(matrix))
    exponents = sorted({2.0, r, s} - {1.0, math.inf})
    for t, u in combinations_with_replacement(exponents, 2):
        around = columns ** max(0.0, 1 / t - 1 / r) * rows ** max(0.0, 1 / s - 1 / u)
        yield around * _interpolated(matrix, t, u, two), f"through {t:g}→{u:g}"


def _interpolated(matrix: NDArray[np.float64], t: float, u: float, two: float) -> float:
    """A bound on ‖M‖_{t→u}, t ≤ u, from ``two`` = ‖M‖_{2→2}, by M. Riesz's convexity theorem.

    log ‖M‖_{t→u} is convex in (1/t, 1/u) on the triangle t ≤ u, for real matrices with constant 1
    (Hardy, Littlewood, Pólya, Inequalities, theorem 295). The line from (½, ½) through the point
    ends on the edge t=1 or on the edge u=∞, where the norm is known too.
    """
    if 1 / t + 1 / u >= 1:
        weight, offset, edge_norm = 2 / t - 1, 1 / u - 0.5, max_column_norm  # u where t=1
    else:
        weight, offset, edge_norm = 1 - 2 / u, 0.5 - 1 / t, max_row_norm  # t* where u=∞
    inverse = min(0.5 + offset / weight, 1.0) if weight > 0 else 0.5
    edge = float(edge_norm(matrix, 1 / inverse if inverse > 0 else math.inf))
    return edge**weight * two ** (1 - weight)


def _dual_vectors(array: NDArray[np.float64], p: float) -> NDArray[np.float64]:
    """For every column y a vector of unit p*-norm whose product with y is ‖y‖_p (1 ≤ p < ∞)."""
    top = np.abs(array).max(axis=0)
    scaled = array / np.where(top > 0, top, 1.0)
    powers = np.sign(scaled) * np.abs(scaled) ** (p - 1)
    size = _vector_norm(powers, _dual(p), axis=0)
    return powers / np.where(size > 0, size, 1.0)


def _power_iteration(matrix: NDArray[np.float64], r: float, s: float) -> float:
    """The largest ‖Mx‖_s/‖x‖_r met; every step ascends, from columns, rows, random points."""
    columns = np.argsort(-_vector_norm(matrix, s, axis=0), kind="stable")[:8]
    rows = np.argsort(-_vector_norm(matrix, _dual(r), axis=1), kind="stable")[:8]
    units = np.zeros((matrix.shape[1], len(columns)))
    units[columns, np.arange(len(columns))] = 1.0
    random = np.random.default_rng(0).standard_normal((matrix.shape[1], 16))
    points = np.hstack([units, _dual_vectors(matrix[rows].T, _dual(r)), random])
    best = np.zeros(points.shape[1])
    for _ in range(_MAX_STEPS):
        images = matrix @ points
        size = _vector_norm(points, r, axis=0)
        values = _vector_norm(images, s, axis=0) / np.where(size > 0, size, 1.0)
        if (values <= best * (1 + 1e-13)).all():
            break
        best = np.maximum(best, values)
        points = _dual_vectors(matrix.T @ _dual_vectors(images, s), _dual(r))
    return float(best.max())

"""The first stage of two-stage regression: what instruments say about regressors, and how much."""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from sklearn.model_selection import KFold

from finetti.core.errors import InputError
from finetti.estimators.ridge_system import Floats, center_gram

# A regressor that instruments explain up to this share of its variance is one of them.
EXOGENOUS_RTOL = 1e-10
# Directions of φ(x) with less than this share of the largest variance say nothing about the risk.
FEATURE_RTOL = 1e-8
# Singular values of columns of length 1 that are rounding of 0.
RANK_TOL = 1e-8


class Strength(NamedTuple):
    """How strong instruments are.

    Args:
        f_statistic: the Cragg–Donald statistic of all endogenous regressors together; of a single
            one it is the F statistic of its first stage. ∞ if there is none.
        each: F of every regressor alone, shape (p,); ∞ for exogenous ones.
        is_exogenous: which regressors are combinations of instruments, shape (p,).
        n_excluded: how many instruments are left beside the exogenous regressors.
    """

    f_statistic: float
    each: Floats
    is_exogenous: np.ndarray
    n_excluded: int


def folds(n_rows: int, n_folds: int, random_state: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit and rows to predict, in random parts of equal size."""
    splitter = KFold(n_folds, shuffle=True, random_state=random_state)
    return list(splitter.split(np.zeros(n_rows)))


def out_of_fold(regressors: Floats, instruments: Floats, weights: Floats, parts: Any) -> Floats:
    """E[x | z] by least squares with an intercept, each row predicted by the others' folds."""
    design = np.column_stack([np.ones(len(instruments)), instruments])
    found = np.empty_like(regressors)
    for fitted, predicted in parts:
        roots = np.sqrt(weights[fitted])[:, None]
        coefficients = np.linalg.lstsq(roots * design[fitted], roots * regressors[fitted])[0]
        found[predicted] = design[predicted] @ coefficients
    return found


def centered_features(gram: Floats, weights: Floats) -> Floats:
    """φ(x_i) − φ̄ in coordinates, shape (n, r): their products are those of the centered Gram."""
    values, basis = scipy.linalg.eigh(center_gram(gram, weights / weights.sum()))
    kept = values > FEATURE_RTOL * values.max()
    return basis[:, kept] * np.sqrt(values[kept])


def strength(regressors: Floats, instruments: Floats, weights: Floats) -> Strength:
    """The Cragg–Donald statistic λ_min(S⁻¹ X̂ᵀX̂)/k and the F statistics of single first stages.

    With exogenous regressors (and the mean) taken out of everything, X̂ are the endogenous ones
    projected on the k instruments that are left, and S is the covariance of what remains.

    Reference: Cragg and Donald (1993); Staiger and Stock (1997) for the rule F > 10; Stock and Yogo
    (2005) for several regressors.
    """
    roots = np.sqrt(weights)[:, None]
    x, z = (_of_length_1(roots * standardized(part, weights)) for part in (regressors, instruments))
    basis = _basis(z)
    if instruments is not regressors:
        _refuse_saturated(*basis.shape)
    is_exogenous = np.sum((x - _projected(x, basis)) ** 2, axis=0) <= EXOGENOUS_RTOL
    known = _basis(x[:, is_exogenous])
    x, z = (part - _projected(part, known) for part in (x[:, ~is_exogenous], z))
    basis = _basis(z)
    n_excluded = basis.shape[1]
    freedom = len(x) - 1 - known.shape[1] - n_excluded
    each = np.full(len(is_exogenous), np.inf)
    if not x.size:
        return Strength(np.inf, each, is_exogenous, n_excluded)
    explained = _projected(x, basis)
    missed = x - explained
    if _basis(missed).shape[1] < x.shape[1]:
        raise InputError(
            f"The {x.shape[1]} endogenous columns of X are combinations of each other and of the "
            "instruments, so that their effects cannot be told apart. Leave some out."
        )
    if not n_excluded or freedom <= 0:
        each[~is_exogenous] = 0.0
        return Strength(0.0, each, is_exogenous, n_excluded)
    signal, noise = explained.T @ explained / n_excluded, missed.T @ missed / freedom
    each[~is_exogenous] = signal.diagonal() / noise.diagonal()
    weakest = float(scipy.linalg.eigh(signal, noise, eigvals_only=True)[0])
    return Strength(max(weakest, 0.0), each, is_exogenous, n_excluded)


def _refuse_saturated(n_rows: int, rank: int) -> None:
    """Columns that explain any x, noise as well, would make it one of the instruments."""
    if rank >= n_rows - 1:
        raise InputError(
            f"{n_rows} rows are too few: a first stage of {rank} independent columns and a mean "
            "explains any X there, noise as well, and no degrees of freedom are left to judge the "
            "instruments by. Give more rows, or fewer instruments (for a kernel: columns of X)."
        )


def standardized(columns: Floats, weights: Floats) -> Floats:
    """About the mean, in units of the standard deviation; 0 where there is none."""
    share = weights / weights.sum()
    centered = columns - share @ columns
    scale = np.sqrt(share @ centered**2)
    is_constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(columns).max(axis=0)
    return np.where(is_constant, 0.0, centered / np.where(is_constant, 1.0, scale))


def _of_length_1(columns: Floats) -> Floats:
    lengths = np.linalg.norm(columns, axis=0)
    return columns / np.where(lengths > 0, lengths, 1.0)


def _basis(columns: Floats) -> Floats:
    """Orthonormal columns of the same span, of columns no longer than 1."""
    if not columns.shape[1]:
        return columns
    left, values, _ = scipy.linalg.svd(columns, full_matrices=False)
    return left[:, values > RANK_TOL]


def _projected(columns: Floats, basis: Floats) -> Floats:
    return basis @ (basis.T @ columns)

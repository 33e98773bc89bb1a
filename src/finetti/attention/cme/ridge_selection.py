"""Choosing the ridge of CME attention from the contexts, and what a ridge leaves free."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from jax.typing import ArrayLike
from scipy.optimize import minimize_scalar

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.context_batch import arrange
from finetti.core.arguments import check_finite, check_positive
from finetti.core.errors import bad_argument
from finetti.core.linalg.norms import spectral_dimension
from finetti.core.numerics.float64 import float64
from finetti.display.card import Card
from finetti.display.displayable import Displayable
from finetti.kernels.kernel import Kernel, check_kernel
from finetti.kernels.rbf import RBF

Method = Literal["marginal_likelihood", "gcv"]
# The search: from the noise floor of float64 to a ridge that drowns every kernel value.
_LOWEST, _HIGHEST, _GRID = 1e-10, 1e4, 113


@dataclass(frozen=True)
class GramSpectrum:
    """Eigenvalues of one context's Gram matrix and the squared values in its eigenbasis."""

    eigenvalues: np.ndarray  # (L,)
    power: np.ndarray  # (L,): Σ_j (uᵢᵀv_j)²
    columns: int


@dataclass(frozen=True)
class RidgeChoice(Displayable):
    """The ridge that was chosen, and the criterion (smaller is better) over the search grid."""

    ridge: float
    per_token: bool
    method: str
    criterion: float
    grid: np.ndarray
    curve: np.ndarray
    at_edge: bool

    def module(self, kernel: Kernel) -> ConditionalMean:
        """CME attention with this ridge."""
        if self.per_token:
            return ConditionalMean(kernel, ridge_per_token=self.ridge)
        return ConditionalMean(kernel, ridge=self.ridge)

    def __card__(self) -> Card:
        name = "ridge per token" if self.per_token else "ridge"
        edge = (
            "The best ridge lies at the edge of the search: the values look noiseless, or the "
            "kernel does not fit them. Change the kernel's parameters first."
        )
        return Card(
            title="Ridge of CME attention",
            fields=((name, self.ridge), ("method", self.method), ("criterion", self.criterion)),
            notes=(edge,) if self.at_edge else (),
        )


def choose_ridge(
    keys: ArrayLike,
    values: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    method: Method = "marginal_likelihood",
    per_token: bool = False,
) -> RidgeChoice:
    """The ridge that explains the contexts best, one for all of them.

    With K = UΛUᵀ per context both criteria cost O(L) a ridge after one eigendecomposition:

    - "marginal_likelihood": −Σ_j log N(v_j; 0, K + λI), the Gaussian process of B.1;
    - "gcv": generalized cross-validation, (RSS/N) / (tr(I − H)/N)², H = K(K + λI)⁻¹. It assumes
      no noise model and does not care about the scale of the kernel.

    Args:
        keys, values, mask: contexts, as in `ConditionalMean` (a key mask, not one per query).
        kernel: K; by default RBF().
        method: the criterion.
        per_token: choose λ per unmasked key (A.3) instead of λ (4.5).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> keys = rng.normal(size=(200, 1))
    >>> values = np.sin(keys) + 0.3 * rng.normal(size=(200, 1))
    >>> 0.05 < choose_ridge(keys, values).ridge < 0.16  # the noise variance is 0.09
    True

    Reference: Golub, Heath and Wahba (1979) for gcv.
    """
    if method not in ("marginal_likelihood", "gcv"):
        raise bad_argument("method", "choose_ridge", "'marginal_likelihood' or 'gcv'", repr(method))
    spectra = _spectra("choose_ridge", keys, values, mask, RBF() if kernel is None else kernel)
    # A context without keys says nothing about the ridge.
    spectra = [spectrum for spectrum in spectra if len(spectrum.eigenvalues)]
    if not spectra:
        raise bad_argument("mask", "choose_ridge", "true somewhere", "a mask without any key")
    criterion = _negative_log_likelihood if method == "marginal_likelihood" else _gcv

    def objective(log_ridge: float) -> float:
        ridge = np.exp(log_ridge)
        return criterion(
            spectra, [ridge * (len(s.eigenvalues) if per_token else 1.0) for s in spectra]
        )

    scale = np.mean([s.eigenvalues.mean() for s in spectra])
    scale = scale if scale > 0 else 1.0
    if per_token:
        scale = scale / np.mean([len(s.eigenvalues) for s in spectra])
    grid = np.linspace(np.log(_LOWEST * scale), np.log(_HIGHEST * scale), _GRID)
    curve = np.array([objective(log_ridge) for log_ridge in grid])
    best = int(np.argmin(curve))
    at_edge = best in (0, _GRID - 1)
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    found: Any = minimize_scalar(
        objective, bounds=(low, high), method="bounded", options={"xatol": 1e-8}
    )
    if found.fun <= curve[best]:
        log_ridge, value = found.x, found.fun
    else:
        log_ridge, value = grid[best], curve[best]
    return RidgeChoice(
        float(np.exp(log_ridge)), per_token, method, float(value), np.exp(grid), curve, at_edge
    )


def effective_dimension(
    keys: ArrayLike,
    ridge_per_token: float,
    mask: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
) -> np.ndarray:
    """Γ̂(λ) = tr(G(G + LλI)⁻¹): the number of directions that the ridge leaves free, per context.

    Plug-in for Γ(λ) = tr((C_KK + λI)⁻¹C_KK) in the proof of Proposition 4.1 (B.4), zhang2022.

    >>> import numpy as np
    >>> from finetti.kernels import Linear
    >>> float(effective_dimension(np.eye(4), 1e-9, kernel=Linear()).round(6))
    4.0
    """
    check_positive(ridge_per_token, "ridge_per_token", "effective_dimension")
    keys = np.asarray(keys)
    kernel = RBF() if kernel is None else kernel
    spectra = _spectra("effective_dimension", keys, None, mask, kernel)
    eigenvalues = (spectrum.eigenvalues for spectrum in spectra)
    dimensions = [spectral_dimension(each, len(each) * ridge_per_token) for each in eigenvalues]
    return np.reshape(dimensions, keys.shape[:-2])


def _spectra(
    owner: str, keys: ArrayLike, values: ArrayLike | None, mask: ArrayLike | None, kernel: Kernel
) -> list[GramSpectrum]:
    """Without values, of the eigenvalues alone."""
    check_kernel(kernel, owner)
    with float64():
        contexts = arrange(owner, None, np.asarray(keys), values, mask).arrays
        spectra = []
        for index in range(len(contexts.keys)):
            kept = slice(None) if contexts.mask is None else np.asarray(contexts.mask[index])
            context_values = np.asarray(contexts.values[index])[kept]
            if len(context_values) == 0:
                spectra.append(GramSpectrum(np.zeros(0), np.zeros(0), context_values.shape[1]))
                continue
            # Of all keys, also masked ones, which are clean: contexts of one shape compile once.
            gram = np.asarray(_gram(kernel, contexts.keys[index]), dtype=np.float64)[kept][:, kept]
            check_finite(gram, "kernel", f"{owner} (its Gram matrix)")
            if values is None:
                eigenvalues, power = np.linalg.eigvalsh(gram), np.zeros(len(gram))
            else:
                eigenvalues, basis = np.linalg.eigh(gram)
                power = np.sum((basis.T @ context_values) ** 2, axis=1)
            spectrum = np.maximum(eigenvalues, 0.0), power, context_values.shape[1]
            spectra.append(GramSpectrum(*spectrum))
    return spectra


@jax.jit
def _gram(kernel: Kernel, keys: Any) -> Any:
    return kernel.gram(keys)


def _negative_log_likelihood(spectra: list[GramSpectrum], ridges: list[float]) -> float:
    total = 0.0
    for spectrum, ridge in zip(spectra, ridges, strict=True):
        variances = spectrum.eigenvalues + ridge
        total += 0.5 * np.sum(spectrum.power / variances)
        total += 0.5 * spectrum.columns * np.sum(np.log(2 * np.pi * variances))
    return float(total)


def _gcv(spectra: list[GramSpectrum], ridges: list[float]) -> float:
    residual = freedom = count = 0.0
    for spectrum, ridge in zip(spectra, ridges, strict=True):
        left = ridge / (spectrum.eigenvalues + ridge)
        residual += np.sum(left**2 * spectrum.power)
        freedom += spectrum.columns * np.sum(left)
        count += spectrum.columns * len(left)
    return float((residual / count) / (freedom / count) ** 2)

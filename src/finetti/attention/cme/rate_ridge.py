"""The ridge of CME attention from the rate of Proposition 4.1, without any values."""

from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.cme.ridge import key_spectra
from finetti.core.arrays import check_positive
from finetti.core.errors import InputError
from finetti.core.spectra import spectral_dimension
from finetti.display.card import Card
from finetti.display.displayable import Displayable
from finetti.kernels.kernel import Kernel
from finetti.kernels.rbf import RBF

GRID = 25  # ridges between L^(−1/2) and L^(−1/5) at which the growth of Γ̂ is looked at


@dataclass(frozen=True, eq=False)
class RateRidge(Displayable):
    """λ = c·L^{−1/(4 + b)}, where Γ̂(λ) grows like λ^{−b}.

    Args:
        ridge: λ per token, the ridge of (A.3).
        exponent: b, from 0 (finitely many directions) to 1.
        length: L, the unmasked keys of a context (their mean).
        grid: the ridges at which Γ̂ was computed.
        dimensions: Γ̂ there, the mean over contexts.
    """

    ridge: float
    exponent: float
    length: float
    grid: np.ndarray
    dimensions: np.ndarray

    @property
    def rate(self) -> float:
        """L^{−1/(4 + b)}: how the error of Proposition 4.1 falls with this ridge."""
        return self.length ** (-1 / (4 + self.exponent))

    def module(self, kernel: Kernel) -> ConditionalMean:
        """CME attention with this ridge."""
        return ConditionalMean(kernel, ridge_per_token=self.ridge)

    def __card__(self) -> Card:
        fields = (
            ("ridge per token", self.ridge),
            ("exponent b of Γ̂(λ) ~ λ^(−b)", self.exponent),
            ("tokens", self.length),
            ("error falls like", f"L^(−{1 / (4 + self.exponent):.3f})"),
        )
        return Card("Ridge from the rate of Proposition 4.1", fields)


def rate_ridge(
    keys: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    constant: float = 1.0,
) -> RateRidge:
    """The ridge that balances deviation and bias in Proposition 4.1, from the keys alone.

    λ^{−1}√(Γ(λ)/L) = λ with Γ(λ) ~ λ^{−b} gives λ ≍ L^{−1/(4 + b)}. b is the slope of log Γ̂
    against −log λ between L^{−1/2} and L^{−1/5}, where that λ lies. The proposition is about the
    worst case; what `choose_ridge` finds, looking at the values, is most often far smaller.

    Args:
        keys, mask: contexts, as in `ConditionalMean` (a key mask, not one per query).
        kernel: K; by default RBF().
        constant: c, which the rate leaves open.

    >>> from finetti.kernels import Linear
    >>> keys = np.random.default_rng(0).normal(size=(256, 2))
    >>> found = rate_ridge(keys, kernel=Linear())
    >>> found.exponent < 0.2, round(found.ridge, 2)      # two directions: near 256^(−1/4) = 0.25
    (True, 0.26)

    Reference: Proposition 4.1 and B.4, zhang2022.
    """
    check_positive(constant, "constant", "rate_ridge")
    kernel = RBF() if kernel is None else kernel
    spectra = key_spectra("rate_ridge", keys, mask, kernel)
    lengths = np.array([len(spectrum) for spectrum in spectra])
    if not lengths.size or lengths.min() < 2:
        raise InputError(
            "rate_ridge needs at least two unmasked keys in every context, to see how their "
            "effective dimension grows. Give longer contexts, or a ridge of your own."
        )
    length = float(lengths.mean())
    grid = np.geomspace(length**-0.5, length**-0.2, GRID)
    dimensions = np.array(
        [np.mean([spectral_dimension(s / len(s), ridge) for s in spectra]) for ridge in grid]
    )
    slope = np.polyfit(np.log(grid), np.log(np.maximum(dimensions, 1e-300)), 1)[0]
    exponent = float(np.clip(-slope, 0.0, 1.0))
    ridge = float(constant * length ** (-1 / (4 + exponent)))
    return RateRidge(ridge, exponent, length, grid, dimensions)

"""Walsh–Fourier analysis: how a function spreads over parities."""

from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import BooleanFunction, all_bits
from finetti.core.numerics.extremes import largest_of
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

MAX_SHOWN_COEFFICIENTS = 8
ZERO_RTOL = 1e-12  # relative to the largest value: below this a coefficient is rounding


@dataclass(frozen=True, eq=False)
class WalshSpectrum(Displayable):
    """f = Σ_S f̂(S)χ_S with χ_S(b) = Π_{i∈S}(−1)^{b_i}.

    ``coefficients[k]`` belongs to the set S of those indices whose bit in k is 1, the first index
    most significant; ``influences[j]`` is P[f(b) ≠ f(b with bit j flipped)].
    """

    indices: tuple[int, ...]
    coefficients: NDArray[np.float64]
    influences: NDArray[np.float64]

    @property
    def _sets(self) -> NDArray[np.uint8]:
        return all_bits(len(self.indices))

    @property
    def degree(self) -> int:
        """The size of the largest set with a coefficient."""
        scale = largest_of(1.0, float(np.abs(self.coefficients).sum()))
        present = np.abs(self.coefficients) > ZERO_RTOL * scale
        return int(self._sets[present].sum(axis=1).max(initial=0))

    @property
    def total_influence(self) -> float:
        """Σ_i Inf_i, the average number of bits that matter at a random input."""
        return float(self.influences.sum())

    def coefficient(self, *indices: int) -> float:
        """f̂(S) for the set S of ``indices``; 0 for a set with other indices in it."""
        if not set(indices) <= set(self.indices):
            return 0.0
        row = 0
        for each in self.indices:
            row = 2 * row + (each in indices)
        return float(self.coefficients[row])

    def __card__(self) -> Card:
        order = np.argsort(-np.abs(self.coefficients), kind="stable")[:MAX_SHOWN_COEFFICIENTS]
        rows = []
        for k in order:
            names = [f"x{i}" for i in compress(self.indices, self._sets[k])]
            rows.append((" ".join(names) or "1", float(self.coefficients[k])))
        flips = [(f"x{i}", float(v)) for i, v in zip(self.indices, self.influences, strict=True)]
        return Card(
            "Walsh–Fourier spectrum",
            (("degree", self.degree), ("total influence", self.total_influence)),
            (
                Table("largest coefficients", ("parity of", "coefficient"), tuple(rows)),
                Table("influences", ("bit", "probability that it matters"), tuple(flips)),
            ),
        )


def spectrum(function: BooleanFunction) -> WalshSpectrum:
    """The Walsh–Fourier spectrum, influences and degree of f.

    f̂(S) = 2^{-s} Σ_b f(b)χ_S(b), by the fast transform.

    >>> from finetti.boolean.language.families import And, Parity
    >>> spectrum(And((3, 7))).coefficients.tolist()
    [0.25, -0.25, -0.25, 0.25]
    >>> spectrum(Parity((1, 2, 3))).degree, spectrum(Parity((1, 2, 3))).influences.tolist()
    (3, [1.0, 1.0, 1.0])

    Reference: R. O'Donnell, "Analysis of Boolean Functions", 2014, chapters 1 and 2.
    """
    table = function.table()
    cube = table.reshape((2,) * function.sparsity)
    flips = [(cube != np.flip(cube, axis)).mean() for axis in range(function.sparsity)]
    for axis in range(function.sparsity):
        first, second = np.take(cube, 0, axis), np.take(cube, 1, axis)
        cube = np.stack([first + second, first - second], axis=axis) / 2
    return WalshSpectrum(function.indices, cube.reshape(-1), np.array(flips))

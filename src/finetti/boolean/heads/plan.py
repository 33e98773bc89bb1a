"""A head as its lemma builds it: the weights, what they compute, and how exactly."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.basis import Geometry
from finetti.boolean.functions.base import all_bits
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.positions import RESERVED, Positions

ZERO_BIT, ONE_BIT, CLS = range(RESERVED)  # the coordinates of e_0, e_1, v_[CLS]


@dataclass(frozen=True, eq=False)
class Relevant:
    """The relevant positions among all.

    Args:
        positions: all of them.
        geometry: how the relevant ones stand to the others.
        indices: I.
    """

    positions: Positions
    geometry: Geometry
    indices: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class HeadPlan:
    """A head for the bits b_I, and the promise that comes with it.

    Args:
        weights: the weights.
        indices: I.
        scalar: one feature that depends on the number of ones, or one per bit.
        separation: γ: features of different counts or settings are at least this far apart.
        score_scale: R, what the scores on I are multiplied by.
        gap: by how much the scores on I exceed all others, before R.
        geometry: of the position vectors.
        lemma: where the construction stands.
    """

    weights: HeadWeights
    indices: tuple[int, ...]
    scalar: bool
    separation: float
    score_scale: float
    gap: float
    geometry: Geometry
    lemma: str

    @property
    def tolerance(self) -> float:
        """δ = γ/4: the noise that the lookup must bear (erratum 6: print has γ/8)."""
        return self.separation / 4

    def points(self) -> NDArray[np.float64]:
        """Features without noise, one row per number of ones (scalar) or per setting of b_I."""
        bag = self.weights.embedding == "bag"
        sparsity = len(self.indices)
        if self.scalar:
            return scalar_points(sparsity, bag)[:, None]
        return vector_points(all_bits(sparsity), bag)


def scalar_points(sparsity: int, bag: bool) -> NDArray[np.float64]:
    """By r: (1/s)Σ_Iχ_i = 1 − 2r/s, decreasing in r (erratum 15); bag: (r − s)/(r + 1)."""
    counts = np.arange(sparsity + 1)
    if sparsity == 0:
        return np.zeros(1)
    return (counts - sparsity) / (counts + 1) if bag else 1 - 2 * counts / sparsity


def vector_points(settings: NDArray[np.uint8], bag: bool) -> NDArray[np.float64]:
    """By b_I: the vector of χ_i = 1 − 2b_i; bag: (b_i − 1)/(r + 1)."""
    bits = settings.astype(np.float64)
    return (bits - 1) / (bits.sum(axis=1, keepdims=True) + 1) if bag else 1 - 2 * bits


def score_scale(context_length: int, separation: float, values: float, gap: float) -> float:
    """R = log(8·T·B/γ)/gap, so that attention errs by at most γ/4 (Lemma B.7, edelman2022).

    B bounds the values that are read. Scores that are at least ``gap``·R above the others leave
    these an ℓ1 error of 2(T + 1 − s)/(s·e^{gap·R}).

    >>> round(score_scale(1000, 2.0, 1.0, 1.0), 4)
    8.294
    """
    return math.log(8 * context_length * values / separation) / gap


def attention_error(context_length: int, sparsity: int, advantage: float) -> float:
    """2(T − s)/(s·e^R): the ℓ1 error of softmax if s scores are R above T − s (Lemma B.7)."""
    return 2 * (context_length - sparsity) / (sparsity * math.exp(advantage))


def unit(width: int, coordinate: int) -> NDArray[np.float64]:
    """A unit vector."""
    out = np.zeros(width)
    out[coordinate] = 1.0
    return out


def bit_vectors(width: int) -> NDArray[np.float64]:
    """E_0 and E_1, shape (2, d)."""
    return np.stack([unit(width, ZERO_BIT), unit(width, ONE_BIT)])


def build_weights(
    embedding: str,
    positions: Positions,
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
    output: NDArray[np.float64],
    scale: float,
) -> HeadWeights:
    """W_Q = R v_[CLS]e_1ᵀ for every head, beside keys (H, d), values (H, d, v), output."""
    width = positions.width
    tokens = np.zeros((2, width)) if embedding == "bag" else bit_vectors(width)
    query = np.broadcast_to(scale * unit(width, CLS), keys.shape)[:, :, None].copy()
    return HeadWeights(
        embedding,  # pyright: ignore[reportArgumentType]
        positions,
        tokens,
        unit(width, CLS),
        query,
        keys[:, :, None],
        values,
        output,
    )

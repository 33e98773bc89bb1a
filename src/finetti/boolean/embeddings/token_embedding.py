"""What an embedding is: its tokens, the head that its lemma builds, γ, and the lemma's bounds."""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.position_geometry import MIN_EIGENVALUE, Geometry, measure_geometry
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions, Indices

ZERO_BIT, ONE_BIT, CLS = range(RESERVED)  # the coordinates of e_0, e_1, v_[CLS]


class Relevant(NamedTuple):
    """The relevant positions I among all."""

    positions: BitPositions  # all of them
    geometry: Geometry  # how the vectors of I stand to the others
    indices: Indices  # I
    scalar: bool  # whether one feature of the number of ones is enough, or one per bit is needed


class HeadMatrices(NamedTuple):
    """W_Q and W_K (H, d, 1), W_V (H, d, v) and W_C (H, v, features)."""

    query: NDArray[np.float64]
    key: NDArray[np.float64]
    value: NDArray[np.float64]
    output: NDArray[np.float64]


class HeadBounds(NamedTuple):
    """Bounds on the norms of W_Q, W_K, W_V, W_C; ``prior``: by the coherence, no gap measured."""

    query: float | NDArray[np.float64]  # one for all heads, or one each
    key: float | NDArray[np.float64]
    value: float
    output: float
    prior: bool


class Embedding(ABC):
    """How bits become tokens; a description without state, one object of each kind.

    Attributes:
        name: as users write it.
        lemma: where its head stands in edelman2022.
        token_norm: of the longest token.
        marks_relevant: whether positions are zero but on the relevant bits.
        single_head: whether one head reads every rule.
        no_gates: why gates cannot stand beside its bits, in half a sentence; empty if they can.
    """

    name: str
    lemma: str
    token_norm: float
    marks_relevant: bool = False
    single_head: bool = False
    no_gates: str = ""

    @abstractmethod
    def token_vectors(self, width: int) -> NDArray[np.float64]:
        """E_0 and E_1, shape (2, d)."""

    @abstractmethod
    def embed(self, bits: Any, tokens: Any, vectors: Any) -> Any:
        """X(b) for bits (…, T) and positions (…, T, d), of NumPy or JAX."""

    @abstractmethod
    def bit_values(
        self, places: NDArray[Any], tokens: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """P @ M and E @ M: what every position has if its bit is 0, and if it is 1."""

    @abstractmethod
    def separation(self, sparsity: int, scalar: bool) -> float:
        """γ: features of different numbers of ones or settings are at least this far apart."""

    def tolerance(self, sparsity: int, scalar: bool) -> float:
        """δ = γ/4: the noise that the lookup tolerates (erratum 6: print has γ/8)."""
        return self.separation(sparsity, scalar) / 4

    @abstractmethod
    def by_count(self, sparsity: int) -> NDArray[np.float64]:
        """The one feature without noise, by the number of ones."""

    @abstractmethod
    def by_setting(self, settings: NDArray[np.uint8]) -> NDArray[np.float64]:
        """The features without noise, one per bit, by the setting of b_I."""

    def points(self, settings: NDArray[np.uint8], scalar: bool) -> NDArray[np.float64]:
        """Features without noise at settings of b_I, shape (settings, features)."""
        if not scalar:
            return self.by_setting(settings)
        counts = settings.sum(axis=1, dtype=np.int64)
        return self.by_count(settings.shape[1])[counts, None]

    @abstractmethod
    def n_levels(self, sparsity: int) -> int:
        """How many values one of several features takes."""

    def own_keys(self, scalar: bool) -> bool:
        """Whether every head looks at one position."""
        return not (scalar or self.single_head)

    def joint_key(self, scalar: bool) -> bool:
        """Whether one key must have the same score on all of I, whose vectors differ."""
        return not (self.own_keys(scalar) or self.marks_relevant)

    def n_vectors(self, context_length: int, sparsity: int, scalar: bool) -> int:
        """How many vectors must be told apart."""
        return context_length

    def place(self, vectors: BitPositions, context_length: int, indices: Indices) -> BitPositions:
        """The positions of all bits, from the vectors that were chosen."""
        return vectors

    def geometry(self, positions: BitPositions, indices: Indices, scalar: bool) -> Geometry:
        """How the vectors of I stand to the others, as its lemma counts them."""
        return measure_geometry(positions, indices)

    @abstractmethod
    def head(self, relevant: Relevant, margin: float) -> HeadMatrices:
        """The head of its lemma; ``margin`` divides the error that attention may make."""

    @abstractmethod
    def bounds(self, relevant: Relevant, margin: float) -> HeadBounds:
        """The bounds of its lemma, derived form."""

    def position_bounds(
        self, positions: BitPositions, indices: Indices
    ) -> tuple[tuple[str, float, float], ...]:
        """Norms of the positions, if its lemma bounds them: name, value, bound."""
        return ()

    @abstractmethod
    def worst_attention(
        self, zero: NDArray[Any], one: NDArray[Any], beside: NDArray[Any], own: list[int]
    ) -> tuple[float, float, NDArray[np.float64]]:
        """What a head that should read the positions ``own`` reads at its worst, by its
        exponentials for bits 0 and 1, and for readers: those of what it is meant to read in all,
        the least of them, and those of everything else."""


def joint_span(geometry: Geometry, sparsity: int) -> tuple[float, float, bool]:
    """What stands for the least eigenvalue of the Gram matrix of V_I, the gap of the dual key, and
    whether both follow from the coherence Δ.

    With Δ < 1/(2s − 1) the dual vector obeys ‖u‖ ≤ √(s/(1 − (s−1)Δ)), and its gap is at least
    (1 − (2s−1)Δ)/(1 − (s−1)Δ); beyond that both are measured.
    """
    delta = geometry.coherence
    if delta < 1 / (2 * sparsity - 1):
        least = 1 - (sparsity - 1) * delta
        return least, (1 - (2 * sparsity - 1) * delta) / least, True
    # Dependent vectors, in a damaged file, have no dual ones: then no R is small enough.
    gap = geometry.joint_gap if geometry.independent else 0.0
    return max(geometry.smallest, MIN_EIGENVALUE), gap, False


def score_scale(context_length: int, separation: float, values: float, gap: float) -> float:
    """R = log(8·T·B/γ)/gap, so that attention errs by at most γ/4 (Lemma B.7, edelman2022).

    B bounds the values that are read. Scores that are at least ``gap``·R above the others leave
    these an ℓ1 error of 2(T + 1 − s)/(s·e^{gap·R}).

    >>> round(score_scale(1000, 2.0, 1.0, 1.0), 4)
    8.294
    """
    return math.log(8 * context_length * values / separation) / gap


def scale_bound(context_length: int, separation: float, values: float, gap: float) -> float:
    """R, which bounds ‖W_Q‖; 0 where no R would do."""
    return score_scale(context_length, separation, values, gap) if gap > 0 else 0.0


def attention_error(context_length: int, sparsity: int, advantage: float) -> float:
    """2(T − s)/(s·e^R): the ℓ1 error of softmax if s scores are R above T − s (Lemma B.7)."""
    return 2 * (context_length - sparsity) / (sparsity * math.exp(advantage))


def unit(width: int, coordinate: int) -> NDArray[np.float64]:
    """A unit vector."""
    return np.eye(1, width, coordinate)[0]


def make_heads(
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
    output: NDArray[np.float64],
    scale: float,
) -> HeadMatrices:
    """W_Q = R v_[CLS]e_1ᵀ for every head, beside keys (H, d), values (H, d, v), output."""
    query = np.tile(scale * unit(keys.shape[1], CLS), (len(keys), 1))
    return HeadMatrices(query[:, :, None], keys[:, :, None], values, output)

"""The heads and the bump as the paper prints them, to show where they fail (errata 3–5, 16)."""

import math

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.bag import EMBEDDING as BAG
from finetti.boolean.embeddings.deterministic import EMBEDDING as DETERMINISTIC
from finetti.boolean.embeddings.position_geometry import measure_geometry
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions, DensePositions
from finetti.boolean.embeddings.token_embedding import (
    CLS,
    ONE_BIT,
    ZERO_BIT,
    Embedding,
    HeadMatrices,
    Relevant,
    make_heads,
    unit,
)
from finetti.boolean.language.families import Symmetric
from finetti.boolean.network.cls_network import ClsNetwork
from finetti.boolean.network.lookup import make_lookup


def coherent_basis(
    context_length: int, coherence: float, signs: tuple[int, int, int] = (1, -1, -1)
) -> NDArray[np.float64]:
    """Unit vectors, orthonormal but for the first three: v_1·v_2, v_1·v_3, v_2·v_3 = ±Δ.

    >>> vectors = coherent_basis(5, 0.1)
    >>> (vectors @ vectors.T)[:3, :3].round(12).tolist()
    [[1.0, 0.1, -0.1], [0.1, 1.0, -0.1], [-0.1, -0.1, 1.0]]
    """
    gram = np.eye(3)
    for sign, (i, j) in zip(signs, ((0, 1), (0, 2), (1, 2)), strict=True):
        gram[i, j] = gram[j, i] = sign * coherence
    vectors = np.eye(context_length)
    vectors[:3, :3] = np.linalg.cholesky(gram)
    return vectors


def _embedded(vectors: NDArray[np.float64]) -> BitPositions:
    return DensePositions(np.concatenate([np.zeros((len(vectors), RESERVED)), vectors], axis=1))


def _network(embedding: Embedding, positions: BitPositions, heads: HeadMatrices) -> ClsNetwork:
    """Heads whose features nothing looks up."""
    nothing = make_lookup(np.zeros((1, heads.output.shape[2])), np.zeros(1), 1.0)
    relevant = Relevant(positions, measure_geometry(positions, ()), (), True)
    return ClsNetwork.build(embedding, Symmetric((), [0.0]), relevant, heads, nothing)


def printed_mean_head(
    vectors: NDArray[np.float64], sparsity: int, coherence: float, boost: float = 1.0
) -> ClsNetwork:
    """Lemma B.2 as printed: key v_I = Σ_Iv_i, R = log(8T/γ)/(1 − sΔ)   (erratum 3, edelman2022).

    The relevant positions are the first ``sparsity``; ``boost`` multiplies R.
    """
    positions, count = _embedded(vectors), len(vectors)
    scale = boost * math.log(8 * count * sparsity / 2) / (1 - sparsity * coherence)
    keys = positions.rows(list(range(sparsity))).sum(axis=0)[None]
    bits = unit(positions.width, ZERO_BIT) - unit(positions.width, ONE_BIT)
    heads = make_heads(keys, bits[None, :, None], np.ones((1, 1, 1)), scale)
    return _network(DETERMINISTIC, positions, heads)


def printed_sign_heads(context_length: int, indices: tuple[int, ...]) -> ClsNetwork:
    """Lemma B.2 with s heads as printed: W_V = (E_0 − E_1)e_2ᵀ and W_C^h = e_1e_hᵀ (erratum 4)."""
    positions = _embedded(np.eye(context_length))
    keys = positions.rows(list(indices))
    values = np.zeros((len(indices), positions.width, 2))
    values[:, ZERO_BIT, 1], values[:, ONE_BIT, 1] = 1.0, -1.0  # into e_2
    output = np.zeros((len(indices), 2, len(indices)))
    output[np.arange(len(indices)), 0, np.arange(len(indices))] = 1.0  # out of e_1
    heads = make_heads(keys, values, output, math.log(4 * context_length))
    return _network(DETERMINISTIC, positions, heads)


def printed_bag_head(vectors: NDArray[np.float64], sparsity: int, coherence: float) -> ClsNetwork:
    """Lemma B.4 as printed: v_i in the place of the dual vectors, and no more than γ > sΔ asked
    for (erratum 5, edelman2022). The relevant positions are the first ``sparsity``."""
    positions, count = _embedded(vectors), len(vectors)
    own, cls = positions.rows(list(range(sparsity))), unit(positions.width, CLS)
    scale = math.log(8 * count * sparsity**2) / (1 - sparsity * coherence)
    keys, values = (own.sum(axis=0) + cls)[None], (own - cls).T[None]
    heads = make_heads(keys, values, np.ones((1, sparsity, 1)), scale)
    return _network(BAG, positions, heads)


def printed_bump(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """ν(x) − ν(2δ − x) of Lemma B.8 as printed: r(z+2) − r(z+1) − r(2−z) + r(1−z)   (erratum 16).

    Both steps are 1 for |z| ≤ 1, where their difference should be.

    >>> printed_bump(np.array([-3.0, 0.0, 1.0, 3.0])).tolist()
    [-1.0, 0.0, 0.0, 1.0]
    """
    up, down = (np.maximum(each + 2, 0) - np.maximum(each + 1, 0) for each in (z, -z))
    return up - down

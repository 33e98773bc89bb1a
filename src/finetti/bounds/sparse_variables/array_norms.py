"""The norms of softmax heads from their arrays. Needs no JAX."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import bad_argument
from finetti.core.linalg.norms import max_column_norm, max_row_norm, spectral


def query_key(query: Any, key: Any) -> NDArray[np.float64]:
    """W_QW_Kᵀ of one head, multiplied in float64 whatever the weights are kept in."""
    queries, keys = _matrix(query, "query"), _matrix(key, "key")
    if queries.shape[1] != keys.shape[1]:
        wanted = f"a matrix with {queries.shape[1]} columns, as `query` has"
        raise bad_argument("key", "query_key", wanted, f"shape {keys.shape}")
    return queries @ keys.T


def head_norms(
    score: Any, value: Any, output: Any = None, activation_lipschitz: float = 1.0
) -> dict[str, float]:
    """The norms of a head by the names of `SoftmaxHeadNorms`.

    Args:
        score: W_QW_Kᵀ, or its largest row norm.
        value, output: W_V, and W_C if there is one.
        activation_lipschitz: L_σ.

    >>> head_norms(np.eye(2), [[3.0, 0.0], [4.0, 0.0]], 2 * np.eye(2))["out_lipschitz"]
    2.0
    """
    values = _matrix(value, "value")
    out = 1.0 if output is None else float(spectral(_matrix(output, "output")))
    row = float(max_row_norm(_matrix(score, "score"))) if np.ndim(score) else float(score)
    return {
        "value_norm": float(spectral(values)),
        "value_column_norm": float(max_column_norm(values)),
        "score_row_norm": row,
        "out_lipschitz": activation_lipschitz * out,
    }


def _matrix(weights: Any, name: str) -> NDArray[np.float64]:
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 2:
        raise bad_argument(name, "head_norms", "an array of 2 axes", f"shape {array.shape}")
    return array

"""Sets of tokens as people give them: arrays, lists of arrays, or rows of a table."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from finetti.core.arguments import as_whole
from finetti.core.errors import InputError, bad_argument
from finetti.core.numerics.float64 import float64

# Of scikit-learn's stubs, that know a dtype as text only.
FLOATS: Any = [np.float64, np.float32]
BOOLEAN: Any = bool


class TokenSets(NamedTuple):
    """n inputs of attention: a query each, and its keys.

    Args:
        query: (n, d).
        keys: (n, N, d).
        mask: which keys there are, (n, N); None for all.
    """

    query: NDArray[Any]
    keys: NDArray[Any]
    mask: NDArray[np.bool_] | None

    def take(self, rows: Any) -> "TokenSets":
        """Some of them."""
        mask = None if self.mask is None else self.mask[rows]
        return TokenSets(self.query[rows], self.keys[rows], mask)

    def astype(self, dtype: Any) -> "TokenSets":
        """The same tokens in this precision."""
        query, keys = (part.astype(dtype, copy=False) for part in (self.query, self.keys))
        return TokenSets(query, keys, self.mask)

    def scaled(self, factor: float) -> "TokenSets":
        """The tokens times ``factor``, in their precision."""
        if factor == 1:
            return self
        return TokenSets(self.query * factor, self.keys * factor, self.mask)

    def square_sums(self, weights: NDArray[Any] | None) -> NDArray[np.float64]:
        """Σ s‖x‖² over all tokens, queries included, and Σ s, with s the weights of their sets."""
        squares = np.einsum("nd,nd->n", self.query, self.query, dtype=np.float64)
        squares += np.einsum("nkd,nkd->n", self.keys, self.keys, dtype=np.float64)
        counts = np.full(len(squares), 1.0 + self.keys.shape[1])
        if self.mask is not None:
            counts = 1.0 + self.mask.sum(axis=1)
        weights = np.ones(len(squares)) if weights is None else weights
        return np.array([weights @ squares, weights @ counts])


def in_precision_of(sets: TokenSets) -> AbstractContextManager[Any]:
    """JAX in the precision of the tokens."""
    return in_precision(sets.keys.dtype)


def in_precision(dtype: Any) -> AbstractContextManager[Any]:
    """JAX in a precision."""
    return float64() if dtype == np.float64 else nullcontext()


def mean_weights(mean: Any, owner: str) -> Any:
    """W₀ as the attention room has it: None for "zero"."""
    if not isinstance(mean, str):
        return mean
    if mean not in ("zero", "identity"):
        raise bad_argument("mean", owner, '"zero", "identity" or a matrix', repr(mean))
    return None if mean == "zero" else mean


def read_sets(
    estimator: BaseEstimator,
    X: Any,
    query: Any = None,
    mask: Any = None,
    *,
    n_tokens: int = 1,
    reset: bool,
) -> TokenSets:
    """The sets in ``X``, checked; ``reset`` in `fit`, where their dimension becomes known.

    ``X`` is (n, N, d), or a list of n arrays (N_i, d) of any lengths, or a table (n, N·d) whose
    rows are ``n_tokens`` tokens one after the other. Token 0 is the query and the others are its
    keys (a token alone is both); with ``query`` (n, d) given apart, all tokens are keys. ``mask``
    (n, N) says which tokens there are; what stands in for the others does not count.
    """
    owner = type(estimator).__name__
    n_tokens = as_whole(n_tokens, "n_tokens", owner)
    ragged = _lengths(X)
    if ragged is not None:
        if mask is not None:
            raise bad_argument("mask", owner, "None for a list of sets, which says it itself", mask)
        X, mask = _padded(X, ragged, owner)
    _check_same_form(estimator, query is not None, _rank(X) != 3, reset)
    if _rank(X) == 3:
        tokens = _tokens(estimator, np.asarray(X), mask, reset)
    else:
        table: Any = validate_data(estimator, X, dtype=FLOATS, reset=reset)
        n_columns = table.shape[1]
        if n_columns % n_tokens:
            raise bad_argument(
                "n_tokens",
                owner,
                f"a divisor of the number of columns, {n_columns}",
                n_tokens,
            )
        tokens = table.reshape(len(table), n_tokens, n_columns // n_tokens)
    if mask is not None:
        mask = check_array(mask, dtype=BOOLEAN, ensure_2d=True)
        if mask.shape != tokens.shape[:2]:
            raise bad_argument("mask", owner, f"of shape {tokens.shape[:2]}", f"shape {mask.shape}")
        tokens = np.where(mask[..., None], tokens, 0.0).astype(tokens.dtype)
    if query is not None:
        dtype: Any = tokens.dtype
        query = check_array(query, dtype=dtype)
        check_consistent_length(query, tokens)
        if query.shape[1] != tokens.shape[2]:
            wanted = f"of the dimension of the tokens, {tokens.shape[2]}"
            raise bad_argument("query", owner, wanted, f"shape {query.shape}")
        return TokenSets(query, tokens, mask)
    if mask is not None and not mask[:, 0].all():
        raise bad_argument("mask", owner, "true at token 0, the query", "a set without it")
    if tokens.shape[1] == 1:
        return TokenSets(tokens[:, 0], tokens, None)
    return TokenSets(tokens[:, 0], tokens[:, 1:], None if mask is None else mask[:, 1:])


def _check_same_form(estimator: Any, has_query: bool, is_table: bool, reset: bool) -> None:
    """The sets of `predict` are given as those of `fit` were."""
    if reset:
        estimator._has_query, estimator._is_table = has_query, is_table
        return
    owner = type(estimator).__name__
    if has_query != estimator._has_query:
        fitted = "with `query` apart" if estimator._has_query else "without `query`"
        raise InputError(
            f"{owner} was fitted to sets {fitted}. Give them in the same form. (scikit-learn's "
            "cross-validation hands `query` on to `score` only after "
            "sklearn.set_config(enable_metadata_routing=True).)"
        )
    if is_table and not estimator._is_table:
        raise InputError(
            f"{owner} was fitted to sets (n, N, d) and got an array of two axes. One set alone is "
            "X[None]."
        )


def _rank(X: Any) -> int:
    return X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim


def _lengths(X: Any) -> list[int] | None:
    """The lengths of sets of different sizes; None for anything else."""
    if not isinstance(X, list | tuple) and getattr(X, "dtype", None) != np.dtype(object):
        return None
    if hasattr(X, "columns") or not all(_rank(each) == 2 for each in X):
        return None
    lengths = [len(each) for each in X]
    return lengths if len(set(lengths)) > 1 else None


def _padded(X: Any, lengths: list[int], owner: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    sets = [np.asarray(each) for each in X]
    if len({each.shape[1] for each in sets}) > 1 or not min(lengths):
        shapes = sorted({each.shape for each in sets})[:4]
        raise InputError(
            f"{owner} takes sets of at least one token, all of one dimension. Got the shapes "
            f"{', '.join(map(str, shapes))}."
        )
    dtype = np.result_type(*(each.dtype for each in sets))
    tokens = np.zeros((len(sets), max(lengths), sets[0].shape[1]), dtype)
    for place, each in zip(tokens, sets, strict=True):
        place[: len(each)] = each
    return tokens, np.arange(max(lengths)) < np.array(lengths)[:, None]


def _tokens(estimator: Any, X: NDArray[Any], mask: Any, reset: bool) -> NDArray[Any]:
    """An array (n, N, d), finite where it counts, of the dimension seen in `fit`."""
    if mask is not None and np.shape(mask) == X.shape[:2]:
        X = np.where(np.asarray(mask, bool)[..., None], X, 0)
    tokens = check_array(X, dtype=FLOATS, allow_nd=True, estimator=estimator, input_name="X")
    if 0 in tokens.shape:
        raise InputError(f"{type(estimator).__name__} needs tokens. Got X of shape {X.shape}.")
    if reset:
        estimator.n_features_in_ = tokens.shape[2]
    elif tokens.shape[2] != estimator.n_features_in_:
        raise InputError(
            f"X has tokens of {tokens.shape[2]} features, but {type(estimator).__name__} is "
            f"expecting {estimator.n_features_in_} features as input."
        )
    return tokens

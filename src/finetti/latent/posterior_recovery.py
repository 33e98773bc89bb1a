"""The latent posterior as a representation: what answers say of it, and what they leave open."""

from typing import Any

import numpy as np

from finetti.core.arguments import Floats
from finetti.core.errors import InputError, bad_argument
from finetti.core.numerics.extremes import largest_of
from finetti.latent.predictive_laws import Categorical, as_probabilities

RANK_TOL = 1e-10  # of the smallest singular value of T to the largest
RANGE_TOL = 1e-8  # how far a law may be from those that a posterior can give


def recover_posterior(answer_law: Any, p_y_given_z: Any) -> Categorical:
    """p(z | X) from p(y | X), where answers tell the values of the latent apart.

    p(y | X) = (T p(z | X))(y),  (Tf)(y) = Σ_z p(y | z) f(z)

    A left inverse of T will do: T must be injective, not invertible (erratum 11).

    Args:
        answer_law: p(y | X), (n, m), or a `Categorical`.
        p_y_given_z: p(y | z), (a, m), one row per value of z.

    >>> table = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]
    >>> recover_posterior([[0.31, 0.59, 0.1]], table).probabilities.round(6)
    array([[0.3, 0.7]])

    Reference: Lemma 3.2(b), zhang2022.
    """
    owner = "recover_posterior"
    table = _table(p_y_given_z, owner)
    law = answer_law.probabilities if isinstance(answer_law, Categorical) else answer_law
    law = np.atleast_2d(as_probabilities(law, "answer_law", owner))
    if law.shape[1] != table.shape[1]:
        wanted = f"over as many answers as p_y_given_z has columns, {table.shape[1]}"
        raise bad_argument("answer_law", owner, wanted, law.shape[1])
    twins = twin_posteriors(table)
    if twins is not None:
        first, second = (np.array2string(each.round(3)) for each in twins)
        raise InputError(
            "p(z | X) cannot be recovered from p(y | X): T is not injective, because some values "
            f"of z answer like a mixture of others. The posteriors {first} and {second} give the "
            "same answers. Ask for an answer that tells them apart, or merge these values of z."
        )
    found = np.linalg.lstsq(table.T, law.T, rcond=None)[0].T
    miss = largest_of(np.abs(found @ table - law).max(), -found.min())
    if miss > RANGE_TOL:
        got = f"a law off by {miss:.3g}"
        advice = "Is p_y_given_z that of the same world?"
        raise bad_argument("answer_law", owner, "Σ_z p(y | z) p(z) of some p(z)", got, advice)
    found = np.maximum(found, 0.0)
    return Categorical(found / found.sum(axis=1, keepdims=True))


def twin_posteriors(p_y_given_z: Any) -> Floats | None:
    """Two posteriors (2, a) with the same answers, as far apart as the null space of T lets them.

    None if T is injective, for then there are none.

    >>> twin_posteriors([[0.5, 0.5], [0.2, 0.8], [0.2, 0.8]]).round(3)
    array([[0.333, 0.667, 0.   ],
           [0.333, 0.   , 0.667]])
    """
    table = _table(p_y_given_z, "twin_posteriors")
    left, values, _ = np.linalg.svd(table)
    if len(values) == len(table) and values[-1] > RANK_TOL * values[0]:
        return None
    # A null vector sums to 0, because every column of T sums to 1.
    null = left[:, -1] / np.abs(left[:, -1]).max()
    null = null * np.sign(null[np.abs(null) > RANK_TOL][0])
    return np.maximum(1 + np.stack([null, -null]), 0.0) / len(table)


def _table(p_y_given_z: Any, owner: str) -> Floats:
    table = as_probabilities(p_y_given_z, "p_y_given_z", owner)
    if table.ndim != 2:
        raise bad_argument("p_y_given_z", owner, "of shape (a, m)", f"shape {table.shape}")
    return table

"""All contexts of a small world: a latent with finitely many values makes every mean a sum."""

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from scipy.special import gammaln

from finetti.core.arguments import as_whole, check_finite
from finetti.core.errors import bad_argument
from finetti.latent import FiniteAtoms, LatentModel, LetterEmission

MAX_CONTEXTS = 100_000
_SUM_TOL = 1e-9


@dataclass(frozen=True, eq=False)
class ContextTable:
    """Posteriors p(z | X), one row per context, and how likely each context is.

    A function of X that is a posterior mean E[g(z) | X] is given by a table of g, one row per atom.

    Args:
        posteriors: p(z | X), (contexts, atoms).
        mass: p(X), (contexts,).
        tokens: the contexts themselves, (contexts, L), where they are known.

    >>> table = ContextTable(posteriors=np.eye(2), mass=[0.5, 0.5])
    >>> table.mean([[1.0], [3.0]]).tolist(), table.squared(np.array([[1.0], [3.0]]))
    ([[1.0], [3.0]], 5.0)
    """

    posteriors: Any
    mass: Any
    tokens: Any = None

    def __post_init__(self) -> None:
        owner = "ContextTable"
        posteriors, mass = (np.asarray(x, np.float64) for x in (self.posteriors, self.mass))
        if posteriors.ndim != 2 or mass.shape != posteriors.shape[:1]:
            shapes = f"shapes {posteriors.shape} and {mass.shape}"
            raise bad_argument("mass", owner, "one number per row of posteriors", shapes)
        for name, array in (("posteriors", posteriors), ("mass", mass)):
            check_finite(array, name, owner)
            if np.any(array < 0) or np.any(np.abs(array.sum(axis=-1) - 1) > _SUM_TOL):
                raise bad_argument(name, owner, "nonnegative and of sum 1", f"{array.sum(axis=-1)}")
            object.__setattr__(self, name, array)

    def mean(self, table: Any) -> np.ndarray:
        """E[g(z) | X] of a function with one row per atom, (contexts, d)."""
        return self.posteriors @ np.asarray(table, np.float64)

    def squared(self, error: np.ndarray) -> float:
        """E‖error(X)‖² of an error with one row per context."""
        return float(self.mass @ np.sum(error**2, axis=1))


def enumerate_contexts(world: LatentModel, context_length: int) -> ContextTable:
    """Every context of ``context_length`` letters that the world can draw, up to their order.

    Tokens are exchangeable and attention does not see their order, so that one sequence stands for
    all with the same counts: C(L + c − 1, c − 1) of them instead of c^L.

    >>> world = FiniteAtoms(prior=[0.5, 0.5], emission=[[0.9, 0.1], [0.5, 0.5]])
    >>> table = enumerate_contexts(world, 2)
    >>> table.tokens.tolist(), table.mass.round(2).tolist()
    ([[1, 1], [0, 1], [0, 0]], [0.13, 0.34, 0.53])
    """
    owner = "enumerate_contexts"
    if not isinstance(world, FiniteAtoms) or not isinstance(world.emission, LetterEmission):
        got = type(world).__name__
        advice = "Only finitely many atoms and letters have finitely many contexts."
        raise bad_argument("world", owner, "FiniteAtoms with letters as tokens", got, advice)
    length = as_whole(context_length, "context_length", owner)
    letters = world.emission.table.shape[1]
    if comb(length + letters - 1, letters - 1) > MAX_CONTEXTS:
        limit = f"such that {letters} letters have at most {MAX_CONTEXTS} contexts"
        raise bad_argument("context_length", owner, limit, length, "Shorten the contexts.")
    counts = _counts(letters, length)
    tokens = np.stack([np.repeat(np.arange(letters), row) for row in counts])
    log_orders = gammaln(length + 1) - gammaln(counts + 1).sum(axis=1)
    mass = np.exp(log_orders + world.log_prob(tokens))
    tokens, mass = tokens[mass > 0], mass[mass > 0]
    return ContextTable(world.posterior(tokens).probabilities, mass / mass.sum(), tokens)


def _counts(letters: int, length: int) -> np.ndarray:
    """All ways to share ``length`` tokens among the letters, (contexts, letters).

    >>> _counts(2, 3).tolist()
    [[0, 3], [1, 2], [2, 1], [3, 0]]
    """
    places = length + letters - 1  # stars, and bars between them
    bars = [(-1, *chosen, places) for chosen in combinations(range(places), letters - 1)]
    return np.diff(np.array(bars), axis=1) - 1


def largest_squares(residual: np.ndarray) -> float:
    """Σ_i ‖g_i‖²_∞ over the columns i: ε² of Assumptions 5.4 and 6.1, zhang2022."""
    return float(np.sum(np.max(np.abs(residual), axis=0) ** 2))


def uniform_error(error: np.ndarray) -> float:
    """sup_X ‖error(X)‖, of an error with one row per context."""
    return float(np.linalg.norm(error, axis=1).max())

"""Inputs on the unit sphere, and what each random head contributes to a kernel."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.claims.claim import Context
from finetti.claims.evidence import Measurement, at_most
from finetti.claims.perturbations import unit_vectors

DIMENSION, LENGTH = 4, 5


@dataclass(frozen=True)
class Inputs:
    """Pairs (x, x') of inputs: queries (P, d) and keys (P, N, d) on either side, of one norm."""

    query: np.ndarray
    keys: np.ndarray
    other_query: np.ndarray
    other_keys: np.ndarray

    def exact(self, kernel: Any) -> np.ndarray:
        """K(x, x') of each pair."""
        gram = kernel.gram(self.query, self.keys, self.other_query, self.other_keys)
        return np.diagonal(np.asarray(gram))

    def contributions(self, module: Any, draws: int) -> np.ndarray:
        """⟨φ_m(x), φ_m(x')⟩ of each draw and pair, whose mean over the draws is Φ(x)·Φ(x')."""
        shape = (len(self.query), draws, -1)
        left = np.asarray(module.features(self.query, self.keys)).reshape(shape)
        right = np.asarray(module.features(self.other_query, self.other_keys)).reshape(shape)
        return draws * np.einsum("pmj,pmj->mp", left, right)


def draw_inputs(rng: np.random.Generator, pairs: int, norm: float = 1.0) -> Inputs:
    """Independent uniform directions, d = 4 and N = 5, all tokens of one norm."""
    shapes = ((pairs,), (pairs, LENGTH)) * 2
    return Inputs(*(norm * unit_vectors(rng, *shape, DIMENSION) for shape in shapes))


@dataclass(frozen=True)
class KernelEstimate:
    """The mean over many draws, pair by pair, with its standard error."""

    mean: np.ndarray
    standard_error: np.ndarray
    draws: int

    def distance(self, exact: np.ndarray) -> np.ndarray:
        """|mean − exact| in standard errors."""
        return np.abs(self.mean - exact) / self.standard_error

    def against(self, exact: np.ndarray, name: str = "") -> tuple[Measurement, ...]:
        """One measurement for each pair: at most 4 standard errors."""
        return tuple(
            at_most(f"{name}pair {pair}: |estimate − kernel| in standard errors", distance, 4.0)
            for pair, distance in enumerate(self.distance(exact), start=1)
        )

    def note(self, exact: np.ndarray, draws: str) -> str:
        """The first pair, in words."""
        return (
            f"{self.draws} {draws}; first pair: {self.mean[0]:.5f} ± "
            f"{self.standard_error[0]:.5f} against {exact[0]:.5f}."
        )


def estimate_kernel(
    context: Context, claim_id: str, inputs: Inputs, make: Any, *sizes: int, **options: Any
) -> KernelEstimate:
    """Φ(x)·Φ(x') with 4·10⁵ draws (4·10⁶ at paper scale), in portions that fit in memory.

    ``make(key, draws, DIMENSION, *sizes, **options)`` is a module with that many draws.
    """
    portion, parts = 50_000, []
    for part in range(context.pick(quick=8, paper=80)):
        key = context.random_key(claim_id, part)
        module = make(key, portion, DIMENSION, *sizes, **options)
        parts.append(inputs.contributions(module, portion))
    samples = np.concatenate(parts)
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return KernelEstimate(samples.mean(axis=0), error, len(samples))

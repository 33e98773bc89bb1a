"""Tokens r = f(c) + noise with f a Gaussian process: the rigorous form of the latent function."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from finetti.core.arguments import Floats, as_positive, as_vectors, as_whole
from finetti.core.checked_fields import Checked, checked
from finetti.core.errors import InputError
from finetti.display.card import Card
from finetti.latent.predictive_laws import LOG_TWO_PI, Gaussian, MatrixPosterior
from finetti.latent.world import (
    LatentModel,
    Pairs,
    WorldDraw,
    as_pairs,
    as_query,
    as_sampling,
)

FEW, MANY = 1 << 10, 1 << 16  # pairs of tokens per compiled call


@cache
def _compiled() -> Any:
    import jax  # on use: a world without kernels needs none of it

    return jax.jit(jax.vmap(lambda kernel, x, y: kernel(x, y), in_axes=(None, 0, 0)))


def _kernel_matrix(kernel: Any, xs: Floats, ys: Floats) -> Floats:
    """K(x_i, y_j) of every sequence, (n, L, M), of xs (n, L, d) and ys (n, M, d)."""
    from finetti.core.numerics.float64 import float64

    shape = len(xs), xs.shape[1], ys.shape[1]
    _refuse_beyond_memory(shape, 2 * xs.shape[2] + 1)
    left = np.broadcast_to(xs[:, :, None], (*shape, xs.shape[2])).reshape(-1, xs.shape[2])
    right = np.broadcast_to(ys[:, None], (*shape, ys.shape[2])).reshape(-1, ys.shape[2])
    values = np.empty(len(left))
    size = FEW if len(left) <= FEW else MANY  # two shapes only, so that little is compiled
    with float64():
        for start in range(0, len(left), size):
            chunk = slice(start, min(start + size, len(left)))
            rest = ((0, size - (chunk.stop - start)), (0, 0))
            parts = (np.pad(side[chunk], rest) for side in (left, right))
            values[chunk] = np.asarray(_compiled()(kernel, *parts))[: chunk.stop - start]
    return values.reshape(shape)


def _refuse_beyond_memory(shape: tuple[int, int, int], numbers: int) -> None:
    """Some systems kill a process that asks for too much, and so it is not tried."""
    from finetti.studies.executors.resource_limits import GIGABYTE, usable_memory

    needed, there = 8.0 * numbers * math.prod(shape), usable_memory()
    if needed > there:
        n, *lengths = shape
        raise InputError(
            f"GaussianProcessWorld needs {needed / GIGABYTE:.3g} GB for kernels between "
            f"{lengths[0]} and {lengths[1]} keys of {n} sequences, and there are "
            f"{there / GIGABYTE:.3g} GB of memory. Take shorter contexts, or fewer, or another "
            "world."
        )


@dataclass(frozen=True, eq=False)
class ProcessPosterior:
    """f given the tokens of n sequences: `at` any places; by itself, at the keys.

    μ(x) = K(x, C)(K(C, C) + λI)⁻¹R,  K_p(x, x') = K(x, x') − K(x, C)(K(C, C) + λI)⁻¹K(C, x')
    """

    kernel: Any
    keys: Floats  # (n, L, d_c)
    factor: Floats  # (n, L, L), Cholesky of K(C, C) + λI
    white: Floats  # (n, L, d_r), the factor's inverse times R

    def at(self, places: Any) -> MatrixPosterior:
        """f at ``places`` (n, m, d_c): rows are the d_r functions, columns the places."""
        n, _, d_c = self.keys.shape
        points = as_vectors(places, (n, "m", d_c), "places", "ProcessPosterior.at")
        gain = np.linalg.solve(self.factor, _kernel_matrix(self.kernel, self.keys, points))
        across = np.swapaxes(gain, 1, 2)
        covariance = _kernel_matrix(self.kernel, points, points) - across @ gain
        # Rounding may take a variance below 0 where the values are all but known.
        every = np.arange(points.shape[1])
        covariance[:, every, every] = np.maximum(covariance[:, every, every], 0.0)
        return MatrixPosterior(np.swapaxes(across @ self.white, 1, 2), covariance)

    @property
    def mean(self) -> Floats:
        """E[f | X] at the keys, (n, d_r, L)."""
        return self.at(self.keys).mean

    @property
    def variance(self) -> Floats:
        """Of f at the keys, (n, d_r, L)."""
        return self.at(self.keys).variance

    def log_prob(self, z: Any) -> Floats:
        """The log density of the values of f at the keys, (n, d_r, L)."""
        return self.at(self.keys).log_prob(z)

    def sample(self, rng: Any, n_samples: int | None = None) -> Floats:
        """Values of f at the keys, (n, d_r, L); or (n_samples, n, d_r, L)."""
        return self.at(self.keys).sample(rng, n_samples)


class GaussianProcessWorld(Checked, LatentModel, eq=False):
    """r_ℓ = f(c_ℓ) + ε_ℓ with independent f_1, …, f_{d_r} ∼ GP(0, K) and ε ∼ N(0, λI).

    E[r at c | X] = K(c, C)(K(C, C) + λI)⁻¹R, which is attn_CME with the ridge λ.

    The latent of a draw is what was used of f: its values at the keys, (n, d_r, L).

    Args:
        kernel: K, any kernel of `finetti.kernels`; RBF() by default.
        key_dimension: d_c.
        value_dimension: d_r.
        noise_variance: λ.

    >>> from finetti.kernels import Linear
    >>> world = GaussianProcessWorld(Linear(), key_dimension=1, noise_variance=1.0)
    >>> tokens = Pairs(np.array([[[1.0], [1.0]]]), np.array([[[3.0], [0.0]]]))
    >>> world.predict(tokens, np.array([[2.0]])).mean.round(6).tolist()  # as in LinearGaussian
    [[2.0]]

    Reference: Appendix B.1, zhang2022.
    """

    kernel: Any = None
    key_dimension: int = checked(as_whole, 3)
    value_dimension: int = checked(as_whole, 1)
    noise_variance: float = checked(as_positive, 0.1)
    name: ClassVar[str] = "gaussian-process"

    def __post_init__(self) -> None:
        from finetti.kernels.kernel import check_kernel, in_float64
        from finetti.kernels.rbf import RBF

        super().__post_init__()
        kernel = RBF() if self.kernel is None else self.kernel
        check_kernel(kernel, "GaussianProcessWorld")
        object.__setattr__(self, "kernel", in_float64(kernel))

    def sample(self, rng: Any, n_sequences: int, context_length: int) -> WorldDraw:
        """Keys, f at the keys and at one place more, and noise; the answer is there."""
        rng, n, length = as_sampling(rng, n_sequences, context_length, self)
        keys = rng.normal(size=(n, length + 1, self.key_dimension))
        zeros = np.zeros((n, self.value_dimension, length + 1))
        prior = MatrixPosterior(zeros, _kernel_matrix(self.kernel, keys, keys))
        functions = prior.sample(rng)
        values = np.swapaxes(functions, 1, 2)
        values = values + np.sqrt(self.noise_variance) * rng.normal(size=values.shape)
        tokens = Pairs(keys[:, :-1], values[:, :-1])
        return WorldDraw(tokens, keys[:, -1], values[:, -1], functions[:, :, :-1])

    def log_prob(self, tokens: Any) -> Floats:
        """log p(R | C): the columns of R are independent N(0, K(C, C) + λI)."""
        after = self.posterior(tokens)
        diagonal = np.diagonal(after.factor, axis1=1, axis2=2)
        log_det = 2 * np.log(diagonal).sum(axis=1) + diagonal.shape[1] * LOG_TWO_PI
        return -0.5 * ((after.white**2).sum(axis=(1, 2)) + self.value_dimension * log_det)

    def posterior(self, tokens: Any) -> ProcessPosterior:
        """The Gaussian process given the tokens."""
        owner = "GaussianProcessWorld"
        keys, values = as_pairs(tokens, self.key_dimension, self.value_dimension, owner)
        gram = _kernel_matrix(self.kernel, keys, keys)
        try:
            factor = np.linalg.cholesky(gram + self.noise_variance * np.eye(keys.shape[1]))
        except np.linalg.LinAlgError as error:
            raise InputError(
                f"K(C, C) + {self.noise_variance:g} I is singular in float64, because keys are too "
                "near to each other. Give the world more noise, or keys that are further apart."
            ) from error
        return ProcessPosterior(self.kernel, keys, factor, np.linalg.solve(factor, values))

    def integrate(self, posterior: ProcessPosterior, query: Any = None) -> Gaussian:
        """N(μ(c), (K_p(c, c) + λ)I)."""
        n = len(posterior.keys)
        place = as_query(query, n, self.key_dimension, "GaussianProcessWorld")
        there = posterior.at(place[:, None])
        variance = there.row_covariance[:, 0] + self.noise_variance
        return Gaussian(there.mean[:, :, 0], variance=variance)

    def __card__(self) -> Card:
        fields = (
            (
                "latent",
                f"{self.value_dimension} function(s) f ∼ GP(0, {type(self.kernel).__name__})",
            ),
            (
                "tokens",
                f"(c, r) with r = f(c) + N(0, {self.noise_variance:g}), keys N(0, I)",
            ),
            ("answer", "r at the query"),
            ("posterior", "Gaussian process; its mean is CME attention with the ridge λ"),
        )
        return Card("World: Gaussian process", fields)

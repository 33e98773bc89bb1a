"""Random feature maps: a frozen draw whose inner products estimate a kernel without bias."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.core import lapack
from finetti.core.errors import bad_argument
from finetti.kernels.geometry import as_tokens, positive

# How many features one frequency gives.
FEATURES_PER_DRAW = {"fourier": 2, "positive": 1}


class Draw(NamedTuple):
    """What is to be drawn: m frequencies for tokens of dimension d."""

    key: PRNGKeyArray
    n_draws: int
    dimension: int
    method: str
    orthogonal: bool


class RandomFeatures(eqx.Module):
    """A frozen draw of φ: (L, d) → (L, D) with E[φ(x)·φ(y)] = K(x, y) over the draws.

    The draws carry no gradient; the parameters of the kernel do.
    """

    def __call__(self, xs: Float[Array, "L d"]) -> Float[Array, "L D"]:
        """φ(x_i), in the dtype of the tokens."""
        (tokens,) = as_tokens(type(self).__name__, 2, xs=xs)
        if tokens.shape[1] != self.dimension:
            requirement = f"of the token dimension of the draw, {self.dimension}"
            raise bad_argument("xs", type(self).__name__, requirement, tokens.shape[1])
        draws = self.per_draw(tokens)  # (L, m, b)
        return draws.reshape(len(tokens), -1) * self.n_draws**-0.5

    @property
    @abc.abstractmethod
    def n_draws(self) -> int:
        """m: the estimate is a mean over this many draws."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """d of the tokens."""

    @abc.abstractmethod
    def per_draw(self, xs: Float[Array, "L d"]) -> Float[Array, "L m b"]:
        """The b features of each draw i, with E[Σ_b φ_ib(x) φ_ib(y)] = K(x, y) for every i."""


class SpectralFeatures(RandomFeatures):
    """Abstract: one frequency w per draw, tokens z in units of the kernel, a factor exp(c‖z‖²)."""

    frequencies: Float[Array, "m d"]
    log_token_scale: Array
    exponent: float = eqx.field(static=True)

    @property
    def n_draws(self) -> int:
        """m."""
        return self.frequencies.shape[0]

    @property
    def dimension(self) -> int:
        """d of the tokens."""
        return self.frequencies.shape[1]

    def _projections(self, xs: Array) -> tuple[Array, Array]:
        """z·w and c‖z‖², both (L, m) by broadcasting."""
        tokens = xs * jnp.broadcast_to(positive(self.log_token_scale, xs.dtype), xs.shape)
        frequencies = jax.lax.stop_gradient(self.frequencies).astype(xs.dtype)
        norms = jnp.sum(tokens * tokens, axis=1, keepdims=True)
        return tokens @ frequencies.T, self.exponent * norms


class FourierFeatures(SpectralFeatures):
    """exp(c‖z‖²)·(cos w·z, sin w·z): the kernel exp(c‖z‖² + c‖z'‖²)·E cos w·(z − z').

    Reference: Rahimi and Recht (2007), Random features for large-scale kernel machines.
    """

    def per_draw(self, xs: Float[Array, "L d"]) -> Float[Array, "L m 2"]:
        """The cosine and the sine of each frequency."""
        angles, factor = self._projections(xs)
        pairs = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)
        # Without a factor the features stay bounded: nothing to multiply by.
        return pairs * jnp.exp(factor)[:, :, None] if self.exponent else pairs


class PositiveFeatures(SpectralFeatures):
    """exp(w·z + c‖z‖²) with w normal: the kernel exp(‖z + z'‖²/2 + c‖z‖² + c‖z'‖²).

    Reference: Choromanski et al. (2021), Rethinking attention with Performers, Lemma 1.
    """

    def per_draw(self, xs: Float[Array, "L d"]) -> Float[Array, "L m 1"]:
        """One positive number for each frequency."""
        projections, factor = self._projections(xs)
        return jnp.exp(projections + factor)[:, :, None]


def gaussian_features(draw: Draw, log_token_scale: Array, exponent: float) -> RandomFeatures:
    """Features of normal frequencies by the method asked for, with the factor exp(c‖z‖²)."""
    features = FourierFeatures if draw.method == "fourier" else PositiveFeatures
    return features(normal_frequencies(draw), log_token_scale, exponent=exponent)


def normal_frequencies(draw: Draw) -> Float[Array, "m d"]:
    """Rows w ~ N(0, I); orthogonal within blocks of d rows if asked, each row still N(0, I).

    Reference: Yu et al. (2016), Orthogonal random features.
    """
    shape = draw.n_draws, draw.dimension
    if not draw.orthogonal:
        return jax.random.normal(draw.key, shape)
    key_direction, key_length = jax.random.split(draw.key)
    n_blocks = -(-draw.n_draws // draw.dimension)
    gaussian = jax.random.normal(key_direction, (n_blocks, draw.dimension, draw.dimension))
    basis, triangle = lapack.qr(gaussian)
    # QR fixes signs by convention; these signs make the basis uniform over all rotations.
    signs = jnp.sign(jnp.diagonal(triangle, axis1=1, axis2=2))
    directions = (basis * signs[:, None, :]).reshape(-1, draw.dimension)[: draw.n_draws]
    return directions * jnp.linalg.norm(jax.random.normal(key_length, shape), axis=1, keepdims=True)

"""Random feature maps: a frozen draw whose inner products estimate a kernel without bias."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.core.errors import bad_argument
from finetti.core.linalg import lapack
from finetti.kernels.token_geometry import as_tokens, positive

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

    With m frequencies w, tokens z in units of the kernel and a constant c the features are, times
    m^(−1/2), for the method

    - "fourier": exp(c‖z‖²)·(cos w·z, sin w·z), of exp(c‖z‖² + c‖z'‖²)·E cos w·(z − z')
    - "positive": exp(w·z + c‖z‖²), for normal w that of exp(‖z + z'‖²/2 + c‖z‖² + c‖z'‖²).

    The draws carry no gradient; the parameters of the kernel do.

    Reference: Rahimi and Recht (2007), Random features for large-scale kernel machines;
    Choromanski et al. (2021), Rethinking attention with Performers, Lemma 1.
    """

    frequencies: Float[Array, "m d"]
    log_token_scale: Array
    exponent: float = eqx.field(static=True)
    method: str = eqx.field(static=True)

    def __call__(self, xs: Float[Array, "L d"]) -> Float[Array, "L D"]:
        """φ(x_i), in the dtype of the tokens."""
        (tokens,) = as_tokens("RandomFeatures", 2, xs=xs)
        n_draws, dimension = self.frequencies.shape
        if tokens.shape[1] != dimension:
            requirement = f"of the token dimension of the draw, {dimension}"
            raise bad_argument("xs", "RandomFeatures", requirement, tokens.shape[1])
        scale = positive(self.log_token_scale, tokens.dtype)
        tokens = tokens * jnp.broadcast_to(scale, tokens.shape)
        frequencies = jax.lax.stop_gradient(self.frequencies).astype(tokens.dtype)
        projections = tokens @ frequencies.T
        factor = self.exponent * jnp.sum(tokens * tokens, axis=1, keepdims=True)
        if self.method == "positive":
            features = jnp.exp(projections + factor)
        else:
            features = jnp.stack([jnp.cos(projections), jnp.sin(projections)], axis=-1)
            features = features.reshape(len(tokens), -1)
            # Without a factor the features stay bounded: nothing to multiply by.
            features = features * jnp.exp(factor) if self.exponent else features
        return features * n_draws**-0.5


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

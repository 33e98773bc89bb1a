"""Random features of sums, products and multiples of kernels."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.kernels.geometry import positive
from finetti.kernels.random_features import RandomFeatures


class PairedFeatures(RandomFeatures):
    """Abstract: two independent maps with the same number of draws."""

    left: RandomFeatures
    right: RandomFeatures

    @property
    def n_draws(self) -> int:
        """m."""
        return self.left.n_draws

    @property
    def dimension(self) -> int:
        """d of the tokens."""
        return self.left.dimension


class SumFeatures(PairedFeatures):
    """The features of both, side by side: the estimates add up."""

    def per_draw(self, xs: Float[Array, "L d"]) -> Float[Array, "L m b"]:
        """b = b_left + b_right."""
        return jnp.concatenate([self.left.per_draw(xs), self.right.per_draw(xs)], axis=-1)


class ProductFeatures(PairedFeatures):
    """Draw i of one times draw i of the other: E[k_i k'_i] = K K', as the two are independent."""

    def per_draw(self, xs: Float[Array, "L d"]) -> Float[Array, "L m b"]:
        """b = b_left · b_right: the tensor product within a draw only, not across draws."""
        left, right = self.left.per_draw(xs), self.right.per_draw(xs)
        products = left[:, :, :, None] * right[:, :, None, :]
        return products.reshape(*left.shape[:2], -1)


class ScaledFeatures(RandomFeatures):
    """√c times the features of the part."""

    part: RandomFeatures
    log_constant: Float[Array, ""]

    @property
    def n_draws(self) -> int:
        """m."""
        return self.part.n_draws

    @property
    def dimension(self) -> int:
        """d of the tokens."""
        return self.part.dimension

    def per_draw(self, xs: Float[Array, "L d"]) -> Float[Array, "L m b"]:
        """√c φ."""
        return positive(self.log_constant, xs.dtype, power=0.5) * self.part.per_draw(xs)

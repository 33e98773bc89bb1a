"""What the kernels of a finite feature space share, and those of an infinite one."""

from jaxtyping import Array

from finetti.core.errors import UnsupportedError
from finetti.kernels.base import Kernel
from finetti.kernels.random_features import FEATURES_PER_DRAW, Draw, RandomFeatures


class FiniteKernel(Kernel):
    """Abstract: a kernel of polynomial growth, whose exact features make random ones pointless."""

    def _growth(self, xs: Array, ys: Array | None) -> None:
        return None

    def _remainder(self, xs: Array, ys: Array | None) -> Array:
        return self._gram(xs, ys)

    @property
    def _methods(self) -> tuple[str, ...]:
        return ()

    def _features_per_draw(self, method: str) -> int:
        raise self._no_draws

    def _draw(self, draw: Draw) -> RandomFeatures:
        raise self._no_draws

    @property
    def _no_draws(self) -> UnsupportedError:
        return UnsupportedError(f"{self._name} has no random features. Use `features` instead.")


class InfiniteKernel(Kernel):
    """Abstract: a positive kernel with random features only."""

    @property
    def is_positive(self) -> bool:
        """True."""
        return True

    def feature_dimension(self, d: int) -> None:
        """None: the feature space has infinite dimension."""
        return

    def _features(self, xs: Array) -> Array:
        raise UnsupportedError(
            f"{self._name} has no finite feature map. "
            "Use `random_features` for an unbiased one, or `gram` for the exact kernel."
        )

    def _features_per_draw(self, method: str) -> int:
        return FEATURES_PER_DRAW[method]

"""What the kernels with a finite feature map share."""

from jaxtyping import Array, PRNGKeyArray

from finetti.core.errors import UnsupportedError
from finetti.kernels.base import Kernel
from finetti.kernels.random_features import RandomFeatures


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

    def _draw(
        self, key: PRNGKeyArray, n_draws: int, dimension: int, method: str, orthogonal: bool
    ) -> RandomFeatures:
        raise self._no_draws

    @property
    def _no_draws(self) -> UnsupportedError:
        return UnsupportedError(f"{self._name} has no random features. Use `features` instead.")

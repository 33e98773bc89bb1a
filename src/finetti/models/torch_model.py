"""PyTorch modules (extra ``torch``): called with a batch.

PyTorch is imported only where it is needed: who has no module of it need not have it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from finetti.models.answers import named_errors
from finetti.models.factory import Factory
from finetti.models.model import Model


def recognize(factory: Factory, built: Any) -> Model | None:
    """A module of PyTorch."""
    import torch  # pyright: ignore[reportMissingImports]

    if not isinstance(built, torch.nn.Module):
        return None
    return TorchModel(factory, module=None if factory.is_factory else built)


@final
@dataclass(frozen=True, eq=False)
class TorchModel(Model):
    """A module that is called with a batch.

    Args:
        module: an instance that comes with its weights; None where they are drawn.
    """

    form = "a PyTorch module"
    module: Any = None

    def answer(self, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
        """What the instance answers to a batch, in the precision of its weights.

        In evaluation mode and without gradients; a mean, or a mean and a variance.
        """
        import torch  # pyright: ignore[reportMissingImports]

        weights = next(iter(self.module.parameters()), None)
        dtype = torch.float64 if weights is None else weights.dtype
        # Copies, since a tensor cannot be read-only.
        given = [torch.tensor(np.ascontiguousarray(each), dtype=dtype) for each in inputs]
        with evaluation_mode(self.module), named_errors(self.label):
            found = self.module(*given)
        parts: Sequence[Any] = found if isinstance(found, tuple) else (found,)
        return [each.numpy() for each in parts]


@contextmanager
def evaluation_mode(module: Any) -> Iterator[None]:
    """Without dropout and gradients for a while; then in the mode that it was in."""
    import torch  # pyright: ignore[reportMissingImports]

    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train(training)

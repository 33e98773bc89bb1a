"""PyTorch modules (extra ``torch``): called with a batch.

PyTorch is imported only where it is needed: who has no module of it need not have it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from finetti.core.arrays import as_array, is_concrete
from finetti.core.errors import InputError
from finetti.models.answers import named_errors
from finetti.models.factory import Factory
from finetti.models.model import JaxNetwork, Model, refuse_state


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
        """Return the answers of the instance to a batch, in the precision of its weights.

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

    def in_jax(self) -> "TorchNetwork":
        """The same as a network that JAX differentiates."""
        weights = None if self.module is None else jax.tree.map(as_array, _weights(self.module))
        return TorchNetwork(self.factory, self.fingerprint, weights=weights)


@final
@dataclass(frozen=True, eq=False)
class TorchNetwork(JaxNetwork):
    """A module whose answers, and their gradients in its weights, JAX asks PyTorch for.

    The weights are JAX's, by their names in the module; PyTorch computes in its own precision.
    """

    form = "a PyTorch module"

    def init(self, key: Any, *example: Any) -> Any:
        """The parameters of a new module, drawn by PyTorch's own generator."""
        # Under a trace, which asks for shapes only, there is no number to start from.
        seed = int(jax.random.bits(key)) if is_concrete(key) else 0
        return jax.tree.map(as_array, _weights(self._build(seed, example)))

    def apply(self, params: Any, *inputs: Any, key: Any = None) -> Any:
        """The module on the batch; with a key in training mode, its randomness from the key."""
        module = self._build(0, inputs).train(key is not None)
        run = partial(_run, module, tuple(params))
        with named_errors(self.label):
            arrays = [np.zeros(each.shape, np.float32) for each in inputs]
            start = _weights(module)
            found = run([start[name] for name in params], 0, arrays)
        answer = jax.ShapeDtypeStruct(found.shape, jnp.float32)

        @jax.custom_vjp
        def call(params: Any, seed: Any, inputs: Any) -> Any:
            return jax.pure_callback(run, answer, params, seed, inputs, vmap_method="sequential")

        def forward(params: Any, seed: Any, inputs: Any) -> Any:
            return call(params, seed, inputs), (params, seed, inputs)

        def backward(kept: Any, slope: Any) -> Any:
            shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in kept[0]]
            slopes = jax.pure_callback(run, shapes, *kept, slope, vmap_method="sequential")
            return slopes, None, None

        call.defvjp(forward, backward)
        # What is called has x64 off, whoever calls: single precision goes there and comes back.
        seed = jnp.zeros((), jnp.uint32) if key is None else jax.random.bits(key)
        weights, given = (
            [jnp.asarray(each).astype(jnp.float32) for each in arrays]
            for arrays in (params.values(), inputs)
        )
        return call(weights, seed, given).astype(jax.tree.leaves(params)[0].dtype)

    def _build(self, seed: int, inputs: Any) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.factory.build(*inputs)
        norms = torch.nn.modules.batchnorm._NormBase
        found = {type(each).__name__ for each in module.modules() if isinstance(each, norms)}
        refuse_state(sorted(found), self.label)
        if not _weights(module):
            raise InputError(f"{self.label} has no parameter that can be trained.")
        return module


def _weights(module: Any) -> dict[str, Any]:
    """The parameters that are trained, by their names."""
    named = (each for each in module.named_parameters() if each[1].requires_grad)
    return {name: each.detach().numpy().copy() for name, each in named}


def _run(
    module: Any, names: Sequence[str], params: Any, seed: Any, inputs: Any, slope: Any = None
) -> Any:
    """The answers to a batch, or the products of their derivatives with ``slope``; float32."""
    import torch  # pyright: ignore[reportMissingImports]

    own = next(module.parameters()).dtype
    weights, given = (
        [torch.tensor(np.asarray(each)).to(own) for each in arrays] for arrays in (params, inputs)
    )
    state = {
        name: each.requires_grad_(slope is not None)
        for name, each in zip(names, weights, strict=True)
    }
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(int(seed))
        found = torch.func.functional_call(module, state, tuple(given))
    if slope is None:
        return found.detach().numpy().astype(np.float32)
    slope = torch.tensor(np.asarray(slope)).to(own)
    slopes = torch.autograd.grad(found, weights, slope, allow_unused=True, materialize_grads=True)
    return [each.numpy().astype(np.float32) for each in slopes]


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

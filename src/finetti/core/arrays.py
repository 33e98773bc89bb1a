"""Arrays of NumPy and JAX, and of what users give instead."""

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from finetti.core.errors import UnsupportedError

if TYPE_CHECKING:
    from jax.typing import ArrayLike
    from jaxtyping import Array


def namespace(*arrays: Any) -> Any:
    """``jax.numpy`` if any argument is a JAX array, else ``numpy``; never imports JAX."""
    jax = sys.modules.get("jax")
    if jax is not None and any(isinstance(array, jax.Array) for array in arrays):
        return jax.numpy
    return np


def is_concrete(array: Any) -> bool:
    """Whether the values can be looked at now: not inside ``jit``, ``vmap``, ``grad``."""
    jax = sys.modules.get("jax")
    return jax is None or not isinstance(array, jax.core.Tracer)


def evaluate_now() -> Any:
    """Inside ``jit`` JAX would trace even an operation on a constant; look at it all the same."""
    return sys.modules["jax"].ensure_compile_time_eval()


def _device(array: Any) -> str:
    return next(iter(array.devices())).platform


def host_view(array: Any) -> tuple[Any, Any]:
    """The array and who looks at it: on a CPU NumPy, which sees the same memory.

    JAX would compile two programs for every new shape.
    """
    xp = namespace(array)
    if xp is not np and array.is_fully_addressable and _device(array) == "cpu":
        return np.asarray(array), np
    return array, xp


def has_nan(array: Any) -> bool:
    """Whether an entry is NaN. Values inside a JAX transformation cannot be seen, and are not."""
    return _has(array, "isnan")


def has_infinity(array: Any) -> bool:
    """Whether an entry is infinite, where that can be seen as in `has_nan`."""
    return _has(array, "isinf")


def _has(array: Any, kind: str) -> bool:
    if not is_concrete(array):
        return False
    array, xp = host_view(array)
    with nullcontext() if xp is np else evaluate_now():
        return bool(getattr(xp, kind)(array).any())


def as_array(array: "ArrayLike") -> "Array":
    """A JAX array; also of a pandas column or table, which JAX itself does not read.

    ``jnp.asarray`` (JAX 0.10.2) compiles a program for every new shape of a NumPy array;
    ``device_put`` does not, but may share memory with what it is given, which may be changed later.
    """
    import jax  # not above: NumPy's arrays are checked without it

    if isinstance(array, jax.Array):
        return array
    _refuse_torch(array)
    return jax.device_put(np.array(array))


def _refuse_torch(array: Any) -> None:
    """Refuse PyTorch's tensors, alone or in a list: as arrays they have left autograd."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    parts = array if isinstance(array, (list, tuple)) else (array,)
    tensor = next((part for part in parts if isinstance(part, torch.Tensor)), None)
    if tensor is not None:
        raise UnsupportedError(
            "Finetti's functions compute with JAX and take no PyTorch tensors. Got one of shape "
            f"{tuple(tensor.shape)}: as an array it would leave autograd, and what comes before it "
            "would train without the gradient of this call. For training, put the call into a "
            "torch.autograd.Function around jax.vjp, as docs/attention.md shows under PyTorch; "
            "where no gradient is needed, pass jnp.asarray(tensor.detach().cpu().numpy())."
        )

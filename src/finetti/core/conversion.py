"""What users give as arrays: JAX's own, NumPy's, pandas', lists."""

import sys
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from finetti.core.errors import UnsupportedError


def as_array(array: ArrayLike) -> Array:
    """A JAX array; also of a pandas column or table, which JAX itself does not read.

    ``jnp.asarray`` (JAX 0.10.2) compiles a program for every new shape of a NumPy array;
    ``device_put`` does not, but may share memory with what it is given, which may be changed later.
    """
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

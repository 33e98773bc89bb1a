"""What users give as arrays: JAX's own, NumPy's, pandas', lists."""

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array


def as_array(array: ArrayLike) -> Array:
    """A JAX array; also of a pandas column or table, which JAX itself does not read.

    ``jnp.asarray`` (JAX 0.10.2) compiles a program for every new shape of a NumPy array;
    ``device_put`` does not, but may share memory with what it is given, which may be changed later.
    """
    return array if isinstance(array, jax.Array) else jax.device_put(np.array(array))

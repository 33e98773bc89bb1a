"""Networks in memory: PyTorch modules and state dicts, Equinox modules, any nesting of arrays."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.readers.number_formats import kind_of
from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError


def read_tree(tree: Any) -> dict[str, StoredTensor]:
    """Return the arrays of a mapping, a sequence or a module (a dataclass), by the path to them.

    >>> list(read_tree({"layers": [{"weight": np.eye(2)}], "bias": np.zeros(2)}))
    ['layers.0.weight', 'bias']
    """
    found: dict[str, StoredTensor] = {}
    for name, array in _leaves(tree, ""):
        if name in found:
            raise InputError(f"The tree has two arrays of the name {name!r}.")
        kind = kind_of(str(array.dtype).removeprefix("torch."))
        found[name] = StoredTensor(name, kind, tuple(array.shape), partial(_as_numpy, array))
    return found


def module_config(module: Any) -> dict[str, Any]:
    """Return what a PyTorch module says of itself as config.json would: its ``config``, as modules
    of Hugging Face have it, else the ``num_heads`` of its layers where all have the same."""
    told = getattr(module, "config", None)
    if told is not None and hasattr(told, "to_dict"):
        return dict(told.to_dict())
    counts = {getattr(part, "num_heads", None) for part in module.modules()} - {None}
    return {"num_attention_heads": counts.pop()} if len(counts) == 1 else {}


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if hasattr(node, "shape") and hasattr(node, "dtype"):
        yield path, node
        return
    if isinstance(node, Mapping):
        children = list(node.items())
    elif isinstance(node, list | tuple):
        children = list(enumerate(node))
    elif is_dataclass(node) and not isinstance(node, type):
        children = [(each.name, getattr(node, each.name, None)) for each in fields(node)]
    else:
        return
    for name, child in children:
        yield from _leaves(child, f"{path}.{name}" if path else str(name))


def _as_numpy(array: Any) -> NDArray[Any]:
    if hasattr(array, "detach"):  # PyTorch, whichever its device
        array = array.detach().cpu()
        # NumPy has no types for these of PyTorch; float64 holds them exactly.
        narrow = array.is_floating_point() and array.element_size() < 4
        return (array.double() if narrow else array).numpy()
    return np.asarray(array)

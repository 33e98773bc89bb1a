"""Networks in memory: PyTorch modules and state dicts, Equinox modules, any nesting of arrays."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError

KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
KINDS |= {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "bool": "BOOL"}
KINDS |= {f"{u}int{bits}": f"{(u or 'i').upper()}{bits}" for u in ("", "u") for bits in (8, 16, 32)}
KINDS |= {"int64": "I64", "uint64": "U64"}


def read_tree(tree: Any) -> dict[str, StoredTensor]:
    """The arrays of a mapping, a sequence or a module (a dataclass), by the path to them.

    >>> list(read_tree({"layers": [{"weight": np.eye(2)}], "bias": np.zeros(2)}))
    ['layers.0.weight', 'bias']
    """
    found: dict[str, StoredTensor] = {}
    for name, array in _leaves(tree, ""):
        if name in found:
            raise InputError(f"The tree has two arrays of the name {name!r}.")
        found[name] = _tensor(name, array)
    return found


def module_config(module: Any) -> dict[str, Any]:
    """What a PyTorch module says of itself as config.json would: its ``config``, as modules of
    Hugging Face have it, else the ``num_heads`` of its layers where all have the same."""
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


def _tensor(name: str, array: Any) -> StoredTensor:
    kind = str(array.dtype).removeprefix("torch.")
    return StoredTensor(name, KINDS.get(kind, kind), tuple(array.shape), lambda: _raw(array))


def _raw(array: Any) -> Any:
    """The numbers as files store them; what NumPy has no type for comes by way of float32."""
    kind = str(array.dtype).removeprefix("torch.")
    if hasattr(array, "detach"):  # PyTorch, whichever its device
        array = array.detach().cpu()
        if kind in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            import torch  # pyright: ignore[reportMissingImports]  # it is there: this is one

            return array.contiguous().view(torch.uint8).numpy().view(_width(kind))
        return array.numpy()
    array = np.asarray(array)
    return array.view(_width(kind)) if kind in ("bfloat16", *_BYTES) else array


_BYTES = ("float8_e4m3fn", "float8_e5m2")


def _width(kind: str) -> Any:
    return np.uint8 if kind in _BYTES else np.uint16

"""From a path, a model's name or an object in memory to named tensors; refusals by name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from finetti.audit.readers.array_tree import module_config, read_tree
from finetti.audit.readers.hub_cache import find_snapshot
from finetti.audit.readers.npz_file import read_npz
from finetti.audit.readers.safetensors_file import read_safetensors, read_shards
from finetti.audit.readers.stored_tensor import StoredCheckpoint, StoredTensor
from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, read_json

MAX_CONFIG = 4 * MEGABYTE
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
ELSEWHERE = {".gguf": "GGUF", ".onnx": "ONNX"}


def config_beside(file: Path) -> dict[str, Any]:
    """Return what ``config.json`` in the same folder says; empty if there is none."""
    beside = file.parent / "config.json"
    return read_json(beside, MAX_CONFIG) if os.path.lexists(beside) else {}


class Container(NamedTuple):
    """A kind of file: what reads its tensors, and what says how the network is put together."""

    read: Callable[[Path], dict[str, StoredTensor]]
    config: Callable[[Path], dict[str, Any]] = config_beside


# How files end, those that a folder is searched for first before the others.
CONTAINERS = {
    ".safetensors.index.json": Container(read_shards),
    ".safetensors": Container(read_safetensors),
    ".npz": Container(read_npz),
}


def read_checkpoint(source: Any) -> StoredCheckpoint:
    """Return the tensors at a path, under a hub name in the local cache, or in memory.

    A path is a ``.safetensors`` or ``.npz`` file, an index of shards, or a folder of a hub
    snapshot. Everything else is a tree of arrays: a state dict, an Equinox module, a mapping; or a
    PyTorch module, of which the state dict is read and what it says of its heads.

    >>> import numpy as np
    >>> read_checkpoint({"weight": np.eye(2)}).tensors["weight"].shape
    (2, 2)
    """
    if isinstance(source, str | Path):
        file = _find_file(source)
        container = next(each for end, each in CONTAINERS.items() if file.name.endswith(end))
        found = StoredCheckpoint(str(source), container.read(file), container.config(file))
    elif isinstance(source, type) or not hasattr(source, "state_dict"):
        found = StoredCheckpoint("network in memory", read_tree(source), {})
    else:
        name = f"{type(source).__name__} in memory"
        found = StoredCheckpoint(name, read_tree(source.state_dict()), module_config(source))
    if not found.tensors:
        raise InputError(f"{found.name} holds no tensors: nothing to audit.")
    return found


def _find_file(source: str | Path) -> Path:
    """Return the file at a path, in a folder, or under a name in the hub cache."""
    path = Path(source)
    try:
        there, folder = path.exists(), path.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{str(source)[:200]!r} cannot be opened: {error}.") from error
    if not there and not path.is_symlink():
        _refuse_kind(path)
        path, folder = find_snapshot(str(source)), True
    file = _choose_file(path) if folder else path
    _refuse_kind(file)
    if not file.name.endswith(tuple(CONTAINERS)):
        first, *more = CONTAINERS
        raise InputError(
            f"The file {file.name!r} has an unsupported format. Give {', '.join((*more, first))}, "
            "or a folder with one of these."
        )
    return file


def _refuse_kind(file: Path) -> None:
    suffix = file.suffix.lower()
    if suffix in PICKLED:
        new = file.with_suffix(".safetensors").name
        raise InputError(
            f"The file {file.name!r} is a pickle, which can run code when loaded, and is never "
            'opened. Convert it if you trust it: python -c "import torch, safetensors.torch as '
            f"s; t = torch.load('{file.name}', map_location='cpu', weights_only=True); "
            f"s.save_file({{k: v.clone().contiguous() for k, v in t.items()}}, '{new}')\""
        )
    if suffix in ELSEWHERE:
        raise InputError(
            f"The file {file.name!r} is {ELSEWHERE[suffix]}, which is not read: its weights are "
            "packed or quantized for running. Give the safetensors file that it was made from."
        )


def _choose_file(folder: Path) -> Path:
    """Return what a folder holds: an index, else model.safetensors, else the only file."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise InputError(f"{str(folder)!r} cannot be opened: {error.strerror}.") from error
    for end in CONTAINERS:
        found = [name for name in names if name.endswith(end)]
        if f"model{end}" in found:
            return folder / f"model{end}"
        if len(found) == 1:
            return folder / found[0]
        if found:
            raise InputError(
                f"The folder {str(folder)!r} holds {', '.join(found[:4])}. Choose one of them."
            )
    for name in names:
        if Path(name).suffix.lower() in (*PICKLED, *ELSEWHERE):
            return folder / name
    raise InputError(f"The folder {str(folder)!r} holds no safetensors: nothing to audit.")

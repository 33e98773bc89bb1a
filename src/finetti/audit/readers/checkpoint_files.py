"""From a path, a model's name or an object in memory to a `Checkpoint`; refusals by name."""

import os
from pathlib import Path
from typing import Any

from finetti.audit.readers.array_tree import module_config, read_tree
from finetti.audit.readers.hub_cache import find_snapshot
from finetti.audit.readers.npz_file import read_npz
from finetti.audit.readers.safetensors_file import read_safetensors
from finetti.audit.readers.sharded import read_shards
from finetti.audit.readers.stored_tensor import Checkpoint, StoredTensor
from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, read_json

MAX_CONFIG = 4 * MEGABYTE
INDEX = ".safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
ELSEWHERE = {".gguf": "GGUF", ".onnx": "ONNX"}


def open_checkpoint(source: Any) -> Checkpoint:
    """The checkpoint at a path, under a hub name in the local cache, or in memory.

    A path is a ``.safetensors`` or ``.npz`` file, an index of shards, or a folder of a hub
    snapshot. Everything else is a tree of arrays: a state dict, an Equinox module, a mapping; or a
    PyTorch module, of which the state dict is read and what it says of its heads.

    >>> import numpy as np
    >>> open_checkpoint({"weight": np.eye(2)}).tensors["weight"].shape
    (2, 2)
    """
    if isinstance(source, Checkpoint):
        return source
    if not isinstance(source, str | Path):
        if isinstance(source, type) or not hasattr(source, "state_dict"):
            return _checked("network in memory", read_tree(source), {})
        name = f"{type(source).__name__} in memory"
        return _checked(name, read_tree(source.state_dict()), module_config(source))
    path = Path(source)
    try:
        there, folder = path.exists(), path.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{str(source)[:200]!r} cannot be opened: {error}.") from error
    if not there and not path.is_symlink():
        _refuse_kind(path)
        path, folder = find_snapshot(str(source)), True
    file = _file_of(path) if folder else path
    return _checked(str(source), _read(file), _config(file))


def _checked(name: str, tensors: dict[str, StoredTensor], config: dict[str, Any]) -> Checkpoint:
    if not tensors:
        raise InputError(f"{name} holds no tensors: nothing to audit.")
    return Checkpoint(name, tensors, config)


def _read(file: Path) -> dict[str, StoredTensor]:
    _refuse_kind(file)
    if file.name.endswith(INDEX):
        return read_shards(file)
    if file.suffix == ".safetensors":
        return read_safetensors(file)
    if file.suffix == ".npz":
        return read_npz(file)
    raise InputError(
        f"The file {file.name!r} has an unsupported format. Give .safetensors, {INDEX}, .npz, or a "
        "folder with one of these."
    )


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


def _file_of(folder: Path) -> Path:
    """What a folder of a snapshot holds: an index, else model.safetensors, else the only file."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise InputError(f"{str(folder)!r} cannot be opened: {error.strerror}.") from error
    if "adapter_model.safetensors" in names and "model.safetensors" not in names:
        raise InputError(
            f"The folder {str(folder)!r} holds a LoRA adapter, which is not a network by itself. "
            "Give `base`, the network that it belongs to."
        )
    files = (INDEX, "model" + INDEX), (".safetensors", "model.safetensors"), (".npz", "model.npz")
    for end, best in files:
        found = [name for name in names if name.endswith(end)]
        if best in found or len(found) == 1:
            return folder / (best if best in found else found[0])
        if found:
            raise InputError(
                f"The folder {str(folder)!r} holds {', '.join(found[:4])}. Choose one of them."
            )
    for name in names:
        if Path(name).suffix.lower() in (*PICKLED, *ELSEWHERE):
            return folder / name
    raise InputError(f"The folder {str(folder)!r} holds no safetensors: nothing to audit.")


def _config(file: Path) -> dict[str, Any]:
    beside = file.parent / "config.json"
    return read_json(beside, MAX_CONFIG) if os.path.lexists(beside) else {}

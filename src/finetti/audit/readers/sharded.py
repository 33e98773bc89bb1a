"""A checkpoint in several safetensors files, with the index that says what lies where."""

from pathlib import Path

from finetti.audit.readers.safetensors_file import read_safetensors
from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, read_json

MAX_INDEX = 32 * MEGABYTE


def read_shards(index: Path) -> dict[str, StoredTensor]:
    """The tensors of all shards; the index and the files must say the same."""
    places = read_json(index, MAX_INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InputError(f"{index.name} has no `weight_map` from tensors to files.")
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or "\\" in file:
            raise InputError(
                f"{index.name} puts {name[:80]!r} into {str(file)[:80]!r}, which is not the name "
                "of a file next to it."
            )
    found: dict[str, StoredTensor] = {}
    for file in sorted(set(places.values())):
        for name, tensor in read_safetensors(index.parent / file).items():
            if name in found or places.get(name) != file:
                where = f"in {places[name]}" if name in places else "nowhere"
                raise InputError(f"{file} holds {name[:80]!r}, and {index.name} has it {where}.")
            found[name] = tensor
    missing = sorted(set(places) - set(found))
    if missing:
        raise InputError(f"{places[missing[0]]} lacks {missing[0][:80]!r}, which is in the index.")
    return found

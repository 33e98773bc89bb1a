"""A model by the name it has on the hub, if it is in the local cache. Nothing is downloaded."""

import os
import re
from pathlib import Path

from finetti.core.errors import InputError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def cache_folder() -> Path:
    """Where the hub's own library keeps its files: HF_HUB_CACHE, HF_HOME/hub, or the default."""
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"])
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(home) / "hub"


def find_snapshot(name: str) -> Path:
    """Return the folder of the model's main revision, or of its only snapshot."""
    if not NAME.fullmatch(name):
        raise InputError(f"There is no file or folder {name!r}.")
    folder = cache_folder() / f"models--{name.replace('/', '--')}"
    snapshots = folder / "snapshots"
    if not snapshots.is_dir():
        raise InputError(
            f"There is no file or folder {name!r}, and no model of this name in the cache "
            f"{cache_folder()}. Download it first: Finetti never downloads anything."
        )
    main = folder / "refs" / "main"
    if main.is_file():
        with main.open(encoding="utf-8", errors="replace") as file:
            commit = file.read(100).strip()
        if re.fullmatch(r"[0-9a-f]+", commit) and (snapshots / commit).is_dir():
            return snapshots / commit
    found = sorted(path for path in snapshots.iterdir() if path.is_dir())
    if len(found) != 1:
        raise InputError(
            f"The cache has {len(found)} snapshots of {name} and none is its main revision. Give "
            f"the folder, one of those in {snapshots}."
        )
    return found[0]

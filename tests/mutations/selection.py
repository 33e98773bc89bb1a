"""A pytest plugin that keeps the tests listed in a file, in the order of their own files."""

from pathlib import Path
from typing import Any

CHOSEN = "chosen.txt"


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Drop what is not listed; a line may name a test or a whole file."""
    kept = set((Path(config.rootpath) / CHOSEN).read_text("utf-8").splitlines())
    items[:] = [item for item in items if {item.nodeid, item.nodeid.partition("::")[0]} & kept]

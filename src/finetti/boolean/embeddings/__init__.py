"""How bits become tokens: one file per embedding, listed here."""

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from finetti.boolean.embeddings.token_embedding import Embedding

EMBEDDINGS = ("deterministic", "trained", "bag")  # each is a module of this package


@lru_cache
def find_embedding(name: str) -> "Embedding":
    """The embedding of that name, which is `EMBEDDING` in the module of that name."""
    return import_module(f"{__name__}.{name}").EMBEDDING

"""Where tokens stand: the laws of keys, which know nothing of the latent."""

from typing import Any, Literal, get_args

import numpy as np

from finetti.core.errors import bad_argument
from finetti.latent.base import Floats

KeyLaw = Literal["normal", "sphere"]


def check_key_law(law: Any, dimension: int, owner: str) -> None:
    """Refuse a name that is none, and a sphere of two points."""
    if law not in get_args(KeyLaw):
        raise bad_argument("key_law", owner, '"normal" or "sphere"', repr(law))
    if law == "sphere" and dimension < 2:
        raise bad_argument("key_dimension", owner, "≥ 2 for keys on a sphere", dimension)


def draw_keys(rng: np.random.Generator, law: KeyLaw, n: int, length: int, dimension: int) -> Floats:
    """Independent keys (n, L, d): N(0, I), or uniform on the unit sphere."""
    keys = rng.normal(size=(n, length, dimension))
    return keys if law == "normal" else keys / np.linalg.norm(keys, axis=2, keepdims=True)

"""What `compile` and `compose` are asked for, checked in one call."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings.token_embedding import Embedding
from finetti.boolean.language.rule import BooleanFunction
from finetti.boolean.refusals import Refusals
from finetti.boolean.words import bits_of

BASES = ("orthonormal", "random")
OPTIONS = ("embedding", "basis", "width", "coherence", "margin", "seed", "max_bytes")
NAMES = ", ".join(EMBEDDINGS)
NO_BASIS = "is neither orthonormal nor random, nor an array of vectors"
NO_WIDTH = "is not a dimension; give a whole number of at least 1"
NO_MARGIN = "is not a finite number of at least 1"
MAX_BYTES = 2**29
MAX_TRIED_BITS = 10**6  # of a context that is tried for reasons only


@dataclass(frozen=True)
class CompilerArguments:
    """The arguments of `compile` by their names; what was refused counts as not given."""

    context_length: int
    embedding: Embedding
    basis: Any
    width: int | None
    coherence: float | None
    margin: float
    seed: int
    max_bytes: int

    @property
    def settings(self) -> dict[str, Any]:
        """How a network was made, as plain data for its file."""
        return {
            "embedding": self.embedding.name,
            "basis": self.basis if isinstance(self.basis, str) else "given",
            "width": None if self.width is None else int(self.width),
            "coherence": None if self.coherence is None else float(self.coherence),
            "margin": float(self.margin),
            "seed": int(self.seed),
        }

    def length_to_try(self, indices: tuple[int, ...]) -> int | None:
        """The context on which positions are tried, None if on none: an index outside is a reason
        by itself; whether width and coherence would do is another, and is answered on a context
        that is long enough (vectors of one's own are as many as bits)."""
        needed = max(self.context_length, max(indices, default=0) + 1)
        longest = MAX_TRIED_BITS if isinstance(self.basis, str) else 0
        return needed if needed <= max(self.context_length, longest) else None


def check_arguments(
    refusals: Refusals, rule: BooleanFunction, context_length: Any, *options: Any
) -> CompilerArguments:
    """Refuse arguments by name, and indices outside the context; ``options`` are those after it."""
    if not _is_whole(context_length) or context_length < 1:
        refusals.add(f"its context has {context_length} bits; give a whole number of at least 1")
        refusals.raise_if_any()
    outside = [index for index in rule.indices if index >= context_length]
    if outside:
        names = ", ".join(f"x{index}" for index in outside[:8])
        more = f" and {len(outside) - 8} more" if len(outside) > 8 else ""
        refusals.add(f"it uses {names}{more}, outside the context of {bits_of(context_length)}")
    given: dict[str, Any] = dict(zip(OPTIONS, options, strict=True))
    embedding, basis, width, coherence, margin, seed, max_bytes = options
    whole = "is not a whole number of at least 0"
    is_margin = margin is not True and (margin == 1 or _lies(margin, 1, np.inf))
    checks = (  # name, whether it is fine, what it counts as if not, why
        ("embedding", embedding in EMBEDDINGS, EMBEDDINGS[0], f"is not one of {NAMES}"),
        ("basis", not isinstance(basis, str) or basis in BASES, BASES[0], NO_BASIS),
        ("width", width is None or (_is_whole(width) and width >= 1), None, NO_WIDTH),
        ("coherence", coherence is None or _lies(coherence, 0, 1), None, "is not between 0 and 1"),
        ("margin", is_margin, 1.0, NO_MARGIN),
        ("seed", _is_whole(seed) and seed >= 0, 0, whole),
        ("max_bytes", _is_whole(max_bytes) and max_bytes >= 0, MAX_BYTES, whole),
    )
    for name, fine, default, why in checks:
        if not refusals.unless(fine, f"{name} {given[name]!r} {why}"):
            given[name] = default
    given["embedding"] = find_embedding(given["embedding"])
    return CompilerArguments(int(context_length), **given)


def _is_whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _lies(number: Any, low: float, high: float) -> bool:
    """Whether something is a real number, and no Boolean, strictly between two others."""
    real = isinstance(number, int | float | np.integer | np.floating)
    return real and not isinstance(number, bool) and bool(low < number < high)

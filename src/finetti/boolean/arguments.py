"""What `compile` and `compose` are asked for, checked in one call."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings.base import Embedding
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.refusals import Refusals
from finetti.boolean.words import bits_of

BASES = ("orthonormal", "random")
MAX_BYTES = 2**29
MAX_TRIED_BITS = 10**6  # of a context that is tried for reasons only


@dataclass(frozen=True, eq=False)
class Arguments:
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
            "width": self.width,
            "coherence": self.coherence,
            "margin": self.margin,
            "seed": self.seed,
        }

    def length_to_try(self, indices: tuple[int, ...]) -> int | None:
        """The context on which positions are tried, None if on none: an index outside is a reason
        by itself; whether width and coherence would do is another, and is answered on a context
        that is long enough (vectors of one's own are as many as bits)."""
        needed = max(self.context_length, max(indices, default=0) + 1)
        longest = MAX_TRIED_BITS if isinstance(self.basis, str) else 0
        return needed if needed <= max(self.context_length, longest) else None


def check_arguments(
    refusals: Refusals,
    rule: BooleanFunction,
    context_length: Any,
    embedding: Any,
    basis: Any,
    width: Any,
    coherence: Any,
    margin: Any,
    seed: Any,
    max_bytes: Any,
) -> Arguments:
    """Refuse arguments by name, and indices outside the context."""
    _check_context(refusals, rule, context_length)
    if not refusals.unless(
        embedding in EMBEDDINGS, f"embedding {embedding!r} is none of {', '.join(EMBEDDINGS)}"
    ):
        embedding = EMBEDDINGS[0]
    if not refusals.unless(
        not isinstance(basis, str) or basis in BASES,
        f"basis {basis!r} is neither orthonormal nor random, nor an array of vectors",
    ):
        basis = BASES[0]
    if not refusals.unless(
        width is None or (_is_whole(width) and width >= 1),
        f"width {width!r} is no dimension; give a whole number of at least 1",
    ):
        width = None
    if not refusals.unless(
        coherence is None or (_is_number(coherence) and 0 < coherence < 1),
        f"coherence {coherence!r} is not between 0 and 1",
    ):
        coherence = None
    if not refusals.unless(
        _is_number(margin) and 1 <= margin < np.inf,
        f"margin {margin!r} is not a finite number of at least 1",
    ):
        margin = 1.0
    whole = "is not a whole number of at least 0"
    if not refusals.unless(_is_whole(seed) and seed >= 0, f"seed {seed!r} {whole}"):
        seed = 0
    if not refusals.unless(
        _is_whole(max_bytes) and max_bytes >= 0, f"max_bytes {max_bytes!r} {whole}"
    ):
        max_bytes = MAX_BYTES
    return Arguments(
        int(context_length),
        find_embedding(embedding),
        basis,
        None if width is None else int(width),
        None if coherence is None else float(coherence),
        float(margin),
        int(seed),
        int(max_bytes),
    )


def _check_context(refusals: Refusals, rule: BooleanFunction, context_length: Any) -> None:
    """Refuse indices outside the context."""
    if not _is_whole(context_length) or context_length < 1:
        refusals.add(f"its context has {context_length} bits; give a whole number of at least 1")
        refusals.raise_if_any()
    outside = [index for index in rule.indices if index >= context_length]
    if outside:
        names = ", ".join(f"x{index}" for index in outside[:8])
        more = f" and {len(outside) - 8} more" if len(outside) > 8 else ""
        refusals.add(f"it uses {names}{more}, outside the context of {bits_of(context_length)}")


def _is_whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _is_number(number: Any) -> bool:
    real = isinstance(number, int | float | np.integer | np.floating)
    return real and not isinstance(number, bool)

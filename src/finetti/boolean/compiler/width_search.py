"""Chooses positions that are wide enough, by what is measured of what is built on them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from finetti.boolean.compiler.compiler_options import CompilerArguments
from finetti.boolean.embeddings.position_geometry import MIN_GAP, as_vectors, draw_basis
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions
from finetti.boolean.refusals import readable_bytes

MIN_AUTOMATIC_GAP = 0.5  # what an automatic width must reach
WIDTH_GROWTH = 1.25
MAX_GROWTHS = 40
MAX_TABLE_BYTES = 2**32


@dataclass(frozen=True)
class PositionRequest:
    """What positions are asked for."""

    arguments: CompilerArguments  # of the function that users called
    owner: str  # that function
    what: str  # whom they must be good enough for, in words
    context_length: int  # T, as long as the indices need
    indices: tuple[int, ...]  # the relevant bits
    scalar: bool  # whether one feature of the number of ones is enough

    @property
    def n_vectors(self) -> int:
        """How many vectors must be told apart."""
        sparsity = len(self.indices)
        return self.arguments.embedding.n_vectors(self.context_length, sparsity, self.scalar)


class Attempt(NamedTuple):
    """What was built on some vectors, and how good they are."""

    built: Any  # what was asked for
    gap: float  # by how much the scores of what is read lead, before R; 0 or less if they do not
    coherence: float  # of the relevant vectors; 0 where nobody asked
    complaint: str  # why so small a gap will not do, in half a sentence


Build = Callable[[BitPositions], Attempt]
Found = tuple[Any, tuple[str, ...]]  # what was built, or None; the reasons against it


def choose_positions(request: PositionRequest, build: Build, first_width: int) -> Found:
    """What ``build`` makes of the vectors, drawn wider and wider from ``first_width`` until they
    are good where they are random and no width is given."""
    asked, count = request.arguments, request.n_vectors
    if not isinstance(asked.basis, str):
        vectors = as_vectors(asked.basis, request.context_length, request.owner)
        if asked.embedding.marks_relevant:
            chosen = vectors.rows(list(request.indices[:count]))[:, RESERVED:]
            vectors = as_vectors(chosen, count, request.owner)
        return _judged(request, build(vectors))
    default = RESERVED + count if asked.basis == "orthonormal" else first_width
    width, attempt = default if asked.width is None else asked.width, None
    for _ in range(MAX_GROWTHS):
        reason = _width_reason(request, width)
        if reason:
            return None, (reason,)
        attempt = build(draw_basis(asked.basis, count, width, asked.seed))
        close = asked.coherence is None or attempt.coherence <= asked.coherence
        good = close and attempt.gap >= MIN_AUTOMATIC_GAP
        if good or asked.width is not None or asked.basis == "orthonormal":
            break
        width = RESERVED + math.ceil(WIDTH_GROWTH * (width - RESERVED))
    assert attempt is not None
    return _judged(request, attempt)


def _width_reason(request: PositionRequest, width: int) -> str:
    """Why there are no vectors of this width; empty if there are."""
    asked, count = request.arguments, request.n_vectors
    if asked.basis == "orthonormal":
        size = 8 * count * width if asked.embedding.marks_relevant else 0
        if size > MAX_TABLE_BYTES:
            return (
                f"the vectors of its {count} relevant bits take {readable_bytes(size)}, and these "
                f'end at {readable_bytes(MAX_TABLE_BYTES)}; use basis="random"'
            )
        if width < RESERVED + count:
            return (
                f"width {width} is too small for {count} orthonormal vectors beside e_0, e_1 and "
                f'v_[CLS]: at least {RESERVED + count}, or basis="random"'
            )
    elif width <= RESERVED:
        reason = f"width {width} leaves no room beside e_0, e_1 and v_[CLS]"
        return f"{reason}: at least {RESERVED + 1}"
    elif count * width / 8 > asked.max_bytes:
        return (
            f"a random basis good enough for {request.what} takes "
            f"{readable_bytes(count * width / 8)}, above the budget of "
            f'{readable_bytes(asked.max_bytes)}; use basis="orthonormal", which needs no memory '
            "here, or raise `max_bytes`"
        )
    return ""


def _judged(request: PositionRequest, attempt: Attempt) -> Found:
    """Reasons against these vectors: by the gap that was measured, not by the coherence."""
    reasons = [attempt.complaint] if attempt.gap < MIN_GAP else []
    allowed = request.arguments.coherence
    if allowed is not None and attempt.coherence > allowed:
        reasons.append(
            f"the vectors of the relevant positions have coherence {attempt.coherence:.3g}, above "
            f"the {allowed:.3g} asked for; leave width free, or choose a larger one"
        )
    return None if reasons else attempt.built, tuple(reasons)

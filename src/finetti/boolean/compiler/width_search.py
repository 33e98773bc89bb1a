"""Chooses positions that are wide enough, by what is measured of what is built on them."""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from finetti.boolean.compiler.compiler_options import CompilerOptions, Refusals
from finetti.boolean.embeddings.position_geometry import MIN_GAP, as_vectors, draw_basis
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions

MIN_AUTOMATIC_GAP = 0.5  # what an automatic width must reach
WIDTH_GROWTH = 1.25
MAX_GROWTHS = 40
Built = TypeVar("Built")


class VectorRequest(NamedTuple):
    """Which vectors are asked for."""

    n_vectors: int  # how many must be told apart
    first_width: int  # of random ones, where no width is given
    indices: tuple[int, ...]  # the relevant bits


def check_width(refusals: Refusals, options: CompilerOptions, count: int) -> None:
    """Refuse a width that leaves no room for ``count`` vectors."""
    if not isinstance(options.basis, str) or options.width is None:
        return
    if options.basis == "orthonormal" and options.width < RESERVED + count:
        refusals.add(
            f"width {options.width} is too small for {count} orthonormal vectors beside e_0, e_1 "
            f'and v_[CLS]: at least {RESERVED + count}, or basis="random"'
        )
    elif options.width <= RESERVED:
        refusals.add(
            f"width {options.width} leaves no room beside e_0, e_1 and v_[CLS]: at least "
            f"{RESERVED + 1}"
        )


def search_width(
    refusals: Refusals,
    options: CompilerOptions,
    request: VectorRequest,
    build: Callable[[BitPositions], tuple[Built, float, str]],
) -> Built:
    """Increase the width by 25 % until the measured gap is at least 0.5; return what ``build`` made
    of the vectors. Only random vectors have a width to choose; others are taken as they are.

    ``build`` gives what was asked for, the gap by which the scores of what is read lead before R (0
    or less if they do not), and why a gap that is too small will not do, in half a sentence.
    """
    count, random = request.n_vectors, isinstance(options.basis, str) and options.basis == "random"
    default = request.first_width if random else RESERVED + count
    width = default if options.width is None else options.width
    n_growths = 0
    while True:
        if random:
            advice = 'use basis="orthonormal", which needs no memory here'
            refusals.check_memory("the vectors of a random basis", count * width / 8, advice)
            refusals.raise_if_any()
        built, gap, complaint = build(_vectors(options, request, width))
        fixed = options.width is not None or not random or n_growths == MAX_GROWTHS
        if gap >= MIN_AUTOMATIC_GAP or fixed:
            break
        n_growths += 1
        width = RESERVED + math.ceil(WIDTH_GROWTH * (width - RESERVED))
    if gap < MIN_GAP:
        refusals.add(complaint)
    refusals.raise_if_any()
    return built


def _vectors(options: CompilerOptions, request: VectorRequest, width: int) -> BitPositions:
    if isinstance(options.basis, str):
        return draw_basis(options.basis, request.n_vectors, width, options.seed)
    vectors = as_vectors(options.basis, options.context_length)
    if options.embedding.marks_relevant:
        chosen = vectors.rows(list(request.indices[: request.n_vectors]))[:, RESERVED:]
        vectors = as_vectors(chosen, request.n_vectors)
    return vectors

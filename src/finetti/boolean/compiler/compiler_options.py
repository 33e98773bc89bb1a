"""What `compile_rule` is asked for, and all reasons why it cannot be done, said at once."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings.token_embedding import Embedding
from finetti.boolean.embeddings.weight_range import MAX_BYTES
from finetti.boolean.language.rule import BooleanFunction, name_bits
from finetti.core.errors import InputError
from finetti.display.formatting import format_bytes

BASES = ("orthonormal", "random")
GATES_ADVICE = "build it from gates with `gates=True`"


class Refusals:
    """Collects reasons; raises one error that lists them all.

    >>> refusals = Refusals()
    >>> refusals.add("its index 12 lies outside the context of 10 bits")
    >>> refusals.check_memory("its lookup", 2**40, "choose fewer bits")
    >>> refusals.raise_if_any()
    Traceback (most recent call last):
    finetti.core.errors.InputError: The rule cannot be compiled, for 2 reasons: (1) its index 12 ...
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def add(self, reason: str) -> None:
        """One more reason: half a sentence that says why, and what would help."""
        self.reasons.append(reason)

    def check_memory(self, what: str, size: float, advice: str) -> None:
        """Refuse what takes more than the limit."""
        if size > MAX_BYTES:
            self.add(
                f"{what} take {format_bytes(size)}, above the limit of {format_bytes(MAX_BYTES)}; "
                f"{advice}"
            )

    def raise_if_any(self) -> None:
        """Raise the error, if there is a reason to."""
        count = len(self.reasons)
        if count == 1:
            raise InputError(f"The rule cannot be compiled: {self.reasons[0]}.")
        if count:
            listed = "; ".join(f"({n}) {reason}" for n, reason in enumerate(self.reasons, 1))
            raise InputError(f"The rule cannot be compiled, for {count} reasons: {listed}.")


@dataclass(frozen=True)
class CompilerOptions:
    """The options of `compile_rule` by their names."""

    context_length: int
    embedding: Embedding
    basis: Any
    width: int | None
    margin: float
    seed: int

    @property
    def settings(self) -> dict[str, Any]:
        """How a network was made, as plain data for its file."""
        basis = self.basis if isinstance(self.basis, str) else "given"
        found = asdict(replace(self, basis=basis))
        del found["context_length"]
        return found | {"embedding": self.embedding.name}


def check_options(
    refusals: Refusals,
    rule: BooleanFunction,
    context_length: Any,
    embedding: Any,
    basis: Any,
    width: Any,
    margin: Any,
    seed: Any,
) -> CompilerOptions:
    """Refuse options by name, and indices outside the context. A refused option is replaced by its
    default, so that checking can go on."""
    if not _is_whole(context_length, 1):
        refusals.add(f"its context has {context_length} bits; give a whole number of at least 1")
        refusals.raise_if_any()
    outside = [index for index in rule.indices if index >= context_length]
    if outside:
        names = ", ".join(f"x{index}" for index in outside[:8])
        more = f" and {len(outside) - 8} more" if len(outside) > 8 else ""
        refusals.add(f"it uses {names}{more}, outside the context of {name_bits(context_length)}")

    def checked(name: str, value: Any, fine: bool, default: Any, why: str) -> Any:
        if not fine:
            refusals.add(f"{name} {value!r} {why}")
        return value if fine else default

    no_basis = "is neither orthonormal nor random, nor an array of vectors"
    no_width = "is not a dimension; give a whole number of at least 1"
    real = isinstance(margin, int | float | np.integer | np.floating)
    is_margin = real and not isinstance(margin, bool) and bool(1 <= margin < np.inf)
    known = isinstance(embedding, str) and embedding in EMBEDDINGS
    kind = checked(
        "embedding", embedding, known, EMBEDDINGS[0], f"is not one of {', '.join(EMBEDDINGS)}"
    )
    basis_fine = not isinstance(basis, str) or basis in BASES
    basis = checked("basis", basis, basis_fine, BASES[0], no_basis)
    width = checked("width", width, width is None or _is_whole(width, 1), None, no_width)
    margin = checked("margin", margin, is_margin, 1.0, "is not a finite number of at least 1")
    seed = checked("seed", seed, _is_whole(seed, 0), 0, "is not a whole number of at least 0")
    return CompilerOptions(
        int(context_length),
        find_embedding(kind),
        basis,
        None if width is None else int(width),
        float(margin),
        int(seed),
    )


def _is_whole(number: Any, least: int) -> bool:
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    return whole and bool(number >= least)

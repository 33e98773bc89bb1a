"""All reasons why a rule cannot be compiled, said at once."""

from finetti.core.errors import InputError

GATES_ADVICE = "build it from gates with `compose`"


class Refusals:
    """Collects reasons; raises one error that lists them all.

    >>> refusals = Refusals()
    >>> refusals.add("its index 12 lies outside the context of 10 bits", "its lookup takes 3 GB")
    >>> refusals.raise_if_any()
    Traceback (most recent call last):
    finetti.core.errors.InputError: The rule cannot be compiled, for 2 reasons: (1) its index 12 ...
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def add(self, *reasons: str) -> None:
        """More reasons: half sentences that say why, and what would help."""
        self.reasons += reasons

    def unless(self, fine: bool, reason: str) -> bool:
        """Add the reason unless all is ``fine``, which is handed back."""
        if not fine:
            self.add(reason)
        return fine

    def raise_if_any(self) -> None:
        """Raise the error, if there is a reason to."""
        count = len(self.reasons)
        if count == 1:
            raise InputError(f"The rule cannot be compiled: {self.reasons[0]}.")
        if count:
            listed = "; ".join(f"({n}) {reason}" for n, reason in enumerate(self.reasons, 1))
            raise InputError(f"The rule cannot be compiled, for {count} reasons: {listed}.")


def readable_bytes(count: float) -> str:
    """A size in memory as people read it.

    >>> readable_bytes(3 * 2**30), readable_bytes(1536)
    ('3 GiB', '1.5 KiB')
    """
    for name in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or name == "TiB":
            break
        count /= 1024
    return f"{count:.3g} {name}"

"""How many threads a process may use, and how often it looks for garbage."""

import gc
import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def limit_threads(
    limit: int | None, kind: Literal["blas", "openmp"]
) -> AbstractContextManager[Any]:
    """At most so many threads inside ``with``; None changes nothing.

    Small problems on busy cores: threads that wait for each other take far longer than the work.

    >>> with limit_threads(1, "blas"):
    ...     pass
    """
    return _controller(len(sys.modules)).limit(limits=limit, user_api=kind)


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> "ThreadpoolController":
    """The libraries there are. A look takes milliseconds: once, until something is imported."""
    from threadpoolctl import ThreadpoolController  # not above: the command starts without it

    return ThreadpoolController()


def relax_gc() -> None:
    """For processes of our own, which import thousands of modules first.

    None of these is garbage, and looking at all of them again and again is a tenth of the time
    that it takes to import them.
    """
    gc.set_threshold(50_000, 20, 100)

"""How many threads BLAS and OpenMP may use for a while."""

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

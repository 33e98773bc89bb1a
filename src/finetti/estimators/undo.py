"""A fit that fails, or is interrupted, leaves the estimator as it was."""

import functools
from collections.abc import Callable
from typing import Any


def all_or_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of an estimator that sets its attributes when it succeeds, and only then."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(self.__dict__)
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return run

"""Where text for people goes."""

import os
from typing import Any


def make_console(stderr: bool = False) -> Any:
    """A Rich console. Logs and pipes have no width of their own and get a roomy one."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=120)
    return console

"""The bar of a running study, on stderr; silent where there is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from finetti.studies.engine import Standing


@contextmanager
def progress_bar(name: str, total: int, shown: bool) -> Iterator[Callable[[Standing], None]]:
    """A bar with what is going on, the failures so far and the estimated time left.

    Yields what the engine calls at each change. Nothing is written unless ``shown`` and stderr is
    a terminal.
    """
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not (shown and console.is_terminal and total):
        yield lambda standing: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[activity]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # Cohorts come back in bursts, so the speed is measured over minutes and not over seconds.
    with Progress(
        *columns, console=console, transient=True, speed_estimate_period=600, refresh_per_second=4
    ) as progress:
        task = progress.add_task(name, total=total, activity="starting…")

        def on_change(standing: Standing) -> None:
            activity = standing.activity
            if standing.failed:
                activity += f", {standing.failed} failed"
            progress.update(task, completed=standing.stored, activity=activity)

        yield on_change

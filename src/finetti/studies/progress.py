"""How a running study gets on, on stderr: a bar, or now and then a line in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from finetti.studies.engine import Standing

LONGEST_SILENCE = 30.0
SHORTEST_SILENCE = 5.0


class _Lines:
    """Writes a line for whoever reads the log of a long run."""

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.tenths = 0
        self.last = time.monotonic()

    def __call__(self, standing: Standing) -> None:
        silence = time.monotonic() - self.last
        tenths = 10 * standing.stored // self.total
        further = tenths > self.tenths and silence >= SHORTEST_SILENCE
        if not further and silence < LONGEST_SILENCE:
            return
        self.tenths, self.last = tenths, time.monotonic()
        failed = f", {standing.failed} failed" if standing.failed else ""
        text = f"{self.name}: {standing.stored} of {self.total} trials{failed}, {standing.activity}"
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(name: str, total: int, shown: bool) -> Iterator[Callable[[Standing], None]]:
    """A bar with what is going on, the failures so far and the estimated time left.

    Yields what the engine calls at each change. Where stderr is no terminal it is a line every 30
    seconds, or for every tenth of the trials if these take longer than 5 seconds.
    """
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not (shown and total):
        yield lambda standing: None
        return
    if not console.is_terminal:
        yield _Lines(name, total)
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

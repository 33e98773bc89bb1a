"""How something long gets on, on stderr: a bar, or now and then a line in a log."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from finetti.core.plain_data import clean_text
from finetti.display.formatting import format_duration

MAX_SILENCE_SECONDS = 30.0
MIN_SILENCE_SECONDS = 5.0
SHORT_SECONDS = 5.0  # of work that needs no sign of life
REFRESH_SECONDS = 0.25


@dataclass(frozen=True)
class Progress:
    """How far a run is: what it has done, of that failed, and what it is doing now."""

    done: int
    failed: int
    activity: str


class _Lines:
    """Writes a line for whoever reads the log of a long run."""

    def __init__(self, name: str, total: int, unit: str, every: bool) -> None:
        self.name, self.total, self.unit, self.every = name, total, unit, every
        self.tenths = 0
        self.told: Progress | None = None
        self.start = self.last = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        silence = time.monotonic() - self.last
        tenths = 10 * progress.done // self.total
        further = tenths > self.tenths and silence >= MIN_SILENCE_SECONDS
        changed = self.every and progress != self.told and progress.done < self.total
        if not (changed or further or silence >= MAX_SILENCE_SECONDS):
            return
        self.told = progress
        self.tenths, self.last = tenths, time.monotonic()
        text = f"{self.name}: {progress.done} of {self.total} {self.unit}"
        text += f", {progress.failed} failed" if progress.failed else ""
        if 0 < progress.done < self.total:
            left = (self.last - self.start) / progress.done * (self.total - progress.done)
            text += f", about {format_duration(left)} left"
        print(clean_text(f"{text}, {progress.activity}"), file=sys.stderr, flush=True)


@contextmanager
def progress_bar(
    name: str, total: int, shown: bool, unit: str = "trials", every: bool = False
) -> Iterator[Callable[[Progress], None]]:
    """A bar with what is going on, the failures so far and the estimated time left.

    Yields what is called at each change. Where stderr is no terminal it is a line every 30 seconds,
    or for every tenth of the ``total`` if these take longer than 5 seconds, or ``every`` change.
    """
    from finetti.display.clean_console import CleanConsole

    console = CleanConsole(stderr=True)
    if not (shown and total):
        yield lambda progress: None
        return
    if not console.is_terminal:
        yield _Lines(name, total, unit, every)
        return
    from rich import progress as rich

    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(bar_width=24),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[activity]}", markup=False),
    )
    # What is done comes in bursts, so the speed is measured over minutes and not over seconds.
    options = {"transient": True, "speed_estimate_period": 600, "refresh_per_second": 4}
    with rich.Progress(*columns, console=console, **options) as bar:
        task = bar.add_task(name, total=total, activity="starting…")

        def on_change(progress: Progress) -> None:
            failed = f", {progress.failed} failed" if progress.failed else ""
            bar.update(task, completed=progress.done, activity=progress.activity + failed)

        yield on_change


@contextmanager
def late_progress(name: str, total: int, unit: str) -> Iterator[Callable[[Progress], None]]:
    """Show a `progress_bar` for work that turns out to take longer than `SHORT_SECONDS`.

    Yields what is called at each change, which may be often. A thread of its own shows the latest
    one, also while the work is in a single long call; in a log the first line comes at once.
    """
    latest, ended, start = [Progress(0, 0, "starting…")], threading.Event(), time.monotonic()

    def watch() -> None:
        if ended.wait(SHORT_SECONDS):
            return
        with progress_bar(name, total, True, unit) as bar:
            if isinstance(bar, _Lines):
                bar.start, bar.last = start, -math.inf
            bar(latest[0])
            while not ended.wait(REFRESH_SECONDS):
                bar(latest[0])
            bar(latest[0])

    def report(progress: Progress) -> None:
        latest[0] = progress

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield report
    finally:
        ended.set()
        watcher.join()

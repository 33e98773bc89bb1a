"""``finetti view``: open the page that another command has written."""

import os
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from finetti.cli.options import Debug
from finetti.cli.output import say
from finetti.core.errors import InputError

MAX_NEAR = 5
WRITERS = "finetti reproduce, probe, risk, coherence, and audit"


def view(
    place: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of a run, or an HTML page.")
    ] = Path(),
    print_path: Annotated[
        bool, typer.Option("--print-path", help="Print the path of the page instead of opening it.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Open the page of a run in the browser, or print its path if there is no screen."""
    page = find_page(place).resolve()
    if print_path:
        say(page)
    elif _has_screen() and webbrowser.open(page.as_uri()):
        say(f"Opened {page}")
    else:
        say(f"No browser is available here. Page: {page}")


def find_page(place: Path) -> Path:
    """The page in ``place``, or ``place`` if it is one."""
    if is_page(place):
        return place
    if not place.is_dir():
        what = "is not an HTML page" if place.exists() else "does not exist"
        raise InputError(f"{place} {what}. {_advice(_pages_below(place.parent))}")
    pages = sorted(place.glob("*.html"))
    if len(pages) > 1:
        names = ", ".join(str(page) for page in pages)
        raise InputError(f"{place} holds several pages. Choose one: {names}.")
    if not pages:
        near = [*_pages_below(place), *_pages_below(place.resolve().parent)]
        raise InputError(f"There is no page in {str(place)!r}. {_advice(near)}")
    return pages[0]


def is_page(path: Path) -> bool:
    """Whether ``path`` is a file with the name of an HTML page."""
    return path.suffix.lower() in (".html", ".htm") and path.is_file()


def _pages_below(place: Path) -> list[Path]:
    """The pages in a directory and in those right below it, as far as they may be read."""
    folders, pages = [place], []
    with suppress(OSError):
        folders += sorted(each for each in place.iterdir() if each.is_dir())
    for folder in folders:
        with suppress(OSError):
            pages += sorted(each for each in folder.iterdir() if is_page(each))
    return pages


def _advice(near: list[Path]) -> str:
    if near:
        names = list(dict.fromkeys(map(str, near)))[:MAX_NEAR]
        return f"Pages nearby: {', '.join(names)}."
    return f"{WRITERS} write one to the directory given by --out."


def _has_screen() -> bool:
    """Whether a window can be opened: a browser for text would take the terminal over."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))

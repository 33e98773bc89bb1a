"""``finetti view``: open the page that another command has written."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from finetti.cli.options import Debug
from finetti.core.errors import InputError

MAX_NEAR = 5
WRITERS = "finetti reproduce, probe, risk, coherence and audit"


def view(
    place: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory of a run, or a page itself.")
    ] = Path(),
    print_path: Annotated[
        bool, typer.Option("--print-path", help="Only say where the page is.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Open the page of a run in your browser; where there is no screen, say where it is."""
    page = find_page(place).resolve()
    if print_path:
        typer.echo(page)
    elif _has_screen() and webbrowser.open(page.as_uri()):
        typer.echo(f"Opened {page}")
    else:
        typer.echo(f"No browser can be opened from here. The page: {page}")


def find_page(place: Path) -> Path:
    """The page in ``place``, or ``place`` if it is one."""
    if place.is_file() and place.suffix.lower() in (".html", ".htm"):
        return place
    if not place.is_dir():
        what = "is no page" if place.exists() else "does not exist"
        raise InputError(f"{place} {what}. {_advice(place.parent)}")
    pages = sorted(place.glob("*.html"))
    if len(pages) > 1:
        names = ", ".join(str(page) for page in pages)
        raise InputError(f"{place} holds several pages. Say which: {names}.")
    if not pages:
        raise InputError(f"There is no page in {place}. {_advice(place)}")
    return pages[0]


def _advice(place: Path) -> str:
    """The pages nearby: in the directory, beside it, and one and two steps below."""
    around = (place, *((place.resolve().parent,) if place.is_dir() else ()))
    patterns = ("*.html", "*/*.html", "*/*/*.html")
    found = [page for each in around for pattern in patterns for page in sorted(each.glob(pattern))]
    near = list(dict.fromkeys(found))[:MAX_NEAR]
    if near:
        return f"Pages nearby: {', '.join(map(str, near))}."
    return f"{WRITERS} write one into the directory that --out names."


def _has_screen() -> bool:
    """Whether a window can be opened: a browser for text would take the terminal over."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))

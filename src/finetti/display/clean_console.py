"""Rich consoles that print text of others safely."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.segment import Segment

from finetti.core.plain_data import clean_text


class CleanConsole(Console):
    """A console whose only control characters are its own.

    Names in files of others may hold those that clear the screen or fill the clipboard. Content is
    text, never markup.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        """Render as Rich does, and clean the text of every part."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield segment._replace(text=clean_text(segment.text))

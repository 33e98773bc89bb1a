"""What a command returns in Python: text, notebook, JSON and a page from one object."""

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from finetti.core.files import check_directory, write_file, write_results
from finetti.core.provenance import software
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable
from finetti.display.notebook import to_html
from finetti.display.terminal import renderable, to_text

if TYPE_CHECKING:
    from finetti.display.pages.document import Document


class RunResult(Displayable):
    """The result of a run: text, notebooks, JSON (`to_dict`) and a page (`page`, `write_page`).

    In the page ``command`` is the line that makes the result again, where there is one.
    """

    __slots__ = ()

    page_name: ClassVar[str] = "page.html"
    interrupted: bool = False  # whether Ctrl-C ended the run before its end

    @property
    @abstractmethod
    def headline(self) -> str:
        """What was found, in one line."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """What was found, as plain data for JSON."""

    @property
    def as_expected(self) -> bool:
        """Whether all is as it should be; else the command exits with 1."""
        return True

    @property
    def surprises(self) -> tuple[str, ...]:
        """What a reader must know first, also one who asked for little."""
        return ()

    def failure_table(self) -> Table | None:
        """Why parts of the run failed; None if none did."""
        return None

    def final_sentence(self, page: Path | None = None) -> str:
        """How the run ended, and where its files are."""
        return "" if page is None else f"Page: {page}"

    def results(self, command: str = "") -> dict[str, Any]:
        """The document ``results.json``: what was found, and how it was made."""
        return {**self.to_dict(), "command": command, "provenance": software()}

    def page(self, command: str = "") -> "Document":
        """The page; unless a result draws one of its own, that of its card."""
        from finetti.display.pages.document import Document, Section  # which draw charts

        card = self.__card__()
        section = Section("Results", tables=card.tables, notes=card.notes)
        return Document(
            card.title,
            warnings=self.surprises,
            sections=(section,) if card.tables or card.notes else (),
            command=command,
            facts=card.fields,
        )

    def write_page(self, directory: str | Path, command: str = "") -> Path:
        """Write ``results.json``, the page, and each of its figures as SVG; return the page."""
        directory = check_directory(directory)
        write_results(self.results(command), directory)
        page = self.page(command)
        place = write_file(page.render().encode(), directory / self.page_name)
        for figure in (each for section in page.sections for each in section.figures):
            figure.chart.save(directory / f"{figure.name}.svg")
        return place

    def __card__(self) -> Card:
        return Card(self.headline)

    def cards(self) -> tuple[Card, ...]:
        """What is shown as text; one card, unless a result has several parts."""
        return (self.__card__(),)

    def __str__(self) -> str:
        return "\n".join(map(to_text, self.cards()))

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*map(renderable, self.cards()))

    def _repr_html_(self) -> str:
        return "".join(map(to_html, self.cards()))

"""Objects that show themselves the same way in a terminal and in a notebook."""

from abc import ABC, abstractmethod
from typing import Any

from finetti.display.card import Card
from finetti.display.notebook import to_html
from finetti.display.terminal import renderable, to_text


class Displayable(ABC):
    """Give ``__card__``, get ``print(object)``, Rich output and what notebooks show from it."""

    __slots__ = ()

    @abstractmethod
    def __card__(self) -> Card:
        """What the object says about itself."""

    def __str__(self) -> str:
        return to_text(self.__card__())

    def __rich__(self) -> Any:
        return renderable(self.__card__())

    def _repr_html_(self) -> str:
        return to_html(self.__card__())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """In a notebook's text, too, the card stands in for the fields and their arrays."""
        return {"text/plain": str(self)}

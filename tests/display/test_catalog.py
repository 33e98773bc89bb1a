from dataclasses import dataclass
from typing import ClassVar

import pytest

from finetti.core.errors import FinettiError
from finetti.display import Catalog


@dataclass(frozen=True)
class Book:
    title: str
    text: str
    paper: str = "A"


class Shelf(Catalog[Book]):
    noun, key, command = "book", "title", "library list"
    texts = ("title", "text")
    columns: ClassVar = {"called": "title", "about": "text"}
    papers = ("A", "B")


SHELF = Shelf((Book("B-1", "bees", "B"), Book("A-10", "ants and bees"), Book("A-2", "ants, Asia")))


def titles(books):
    return [book.title for book in books]


def test_entries_are_in_the_order_of_papers_and_numbers():
    assert titles(SHELF) == ["A-2", "A-10", "B-1"]
    assert "a-10 " in SHELF
    assert "A-1" not in SHELF
    assert "called" in str(SHELF)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("A-1", ["A-10"]),  # a beginning
        ("a-2", ["A-2"]),
        ("*1*", ["A-10", "B-1"]),
        ("bees ants", ["A-10"]),  # all words
        ("asia, B-1", ["A-2", "B-1"]),
        ("B-1 A-2", ["A-2", "B-1"]),  # all of them names
        ("A-2 bees", []),
    ],
)
def test_names_globs_and_words_select(pattern, found):
    if found:
        assert titles(SHELF.select(pattern)) == found
    else:
        with pytest.raises(FinettiError, match="No book matches 'A-2 bees'"):
            SHELF.select(pattern)


def test_what_is_not_there_is_told_with_the_nearest():
    with pytest.raises(FinettiError, match=r"Unknown book 'B-2'\. Did you mean one of B-1, A-2\?"):
        SHELF["B-2"]
    with pytest.raises(FinettiError, match="`library list` lists all books"):
        SHELF["zzzz"]
    with pytest.raises(FinettiError, match="books is empty"):
        Shelf(())["B-1"]
    with pytest.raises(FinettiError, match="Two books have the title B-1"):
        Shelf((Book("B-1", "", "B"), Book("b-1", "", "B")))

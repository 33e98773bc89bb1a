import re
from dataclasses import dataclass
from html import unescape

import equinox as eqx
import pytest

from finetti.core.errors import InputError
from finetti.display import Card, Displayable, Table, to_html, to_text
from finetti.display.column_widths import BETWEEN, EDGES, fit_columns

CARD = Card(
    "A title with [bold]brackets[/bold] & <tags>",
    (("ridge", 0.123456), ("keys", None), ("<name>", "<script>alert(1)</script>")),
    (Table("Sizes", ("T", "holds", "name"), ((8, True, "a<b"), (16, False, None))),),
    ("A note: 2 < 3.",),
)


def words(text):
    return re.findall(r"[^\s─━]+", text)


def test_text_and_html_have_the_same_content_in_the_same_order():
    html = unescape(re.sub(r"<[^>]*>", " ", to_html(CARD)))
    assert words(to_text(CARD, width=200)) == words(html)


def test_content_is_never_markup():
    assert "[bold]brackets[/bold]" in to_text(CARD, width=200)
    html = to_html(CARD)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_html_brings_everything_with_it_and_leaves_colors_to_the_page():
    html = to_html(CARD)
    assert not re.search(r"<(link|img|script|style)|https?:|url\(", html)
    assert not re.search(r"color:\s*#", html)


def test_text_keeps_to_the_width(monkeypatch):
    assert max(map(len, to_text(CARD, width=40).splitlines())) <= 40
    monkeypatch.setenv("COLUMNS", "30")
    assert max(map(len, to_text(CARD).splitlines())) <= 30


NORMS = Table(
    "Norms",
    ("layer", "W_QW_Kᵀ", "feed-forward in", "of", "count", "log₁₀ N", "most of it"),
    (
        ("0", 3.435, 2.834, "/a/path/of/more/than/forty/characters/to/fold", 10**20, 2.5e8, "W_QK"),
        ("1", -3.304, None, "a text of many words that folds", 12, 1e-300, "layer 0, W_QK: 47.7 %"),
    ),
)


@pytest.mark.parametrize("width", [*range(31, 100, 7), 120, 200])
def test_numbers_and_names_of_columns_are_never_broken(width):
    text = to_text(Card("", (), (NORMS,)), width=width)
    assert max(map(len, text.splitlines())) <= width
    numbers = ("3.435", "2.834", "-3.304", str(10**20), "2.5e8", "1e-300", "47.7")
    names = [word for name in NORMS.columns for word in name.split()]
    assert {*numbers, *names} <= {*text.split()}
    assert text.count("Norms") == 1
    heads = [line for line in text.splitlines() if line.startswith(" layer")]
    assert len(heads) == sum("──" in line for line in text.splitlines())  # in every part
    assert (len(heads) > 1) == (width < 93)


def test_a_terminal_without_room_for_two_columns_still_has_all_characters():
    table = Table("", ("name", "count"), (("a", 10**60),))
    text = to_text(Card("", (), (table,)), width=20)
    assert max(map(len, text.splitlines())) <= 20
    assert text.count("0") == 60
    assert to_text(Card("", (), (Table("empty", (), ()),)), width=20) is not None


def test_color_only_on_request_and_never_against_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in to_text(CARD)
    assert "\x1b[36m" in to_text(CARD, color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[36m" not in to_text(CARD, color=True)


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(InputError, match="2 cells"):
        Table("", ("a", "b"), ((1,),))


@dataclass(frozen=True)
class Thing(Displayable):
    size: int

    def __card__(self):
        return Card("Thing", (("size", self.size),))


class Module(Displayable, eqx.Module):
    size: int

    def __card__(self):
        return Card("Module", (("size", self.size),))


@pytest.mark.parametrize("kind", [Thing, Module])
def test_objects_show_themselves(kind):
    thing = kind(3)
    assert str(thing) == to_text(thing.__card__())
    assert thing._repr_html_() == to_html(thing.__card__())
    assert "size=3" in repr(thing)


def test_a_card_is_required():
    class Mute(Displayable):
        pass

    with pytest.raises(TypeError, match="__card__"):
        Mute()  # pyright: ignore[reportAbstractUsage]


def test_columns_that_stand_side_by_side_fit_the_width():
    words = "some words that can be broken " * 3
    for width in (60, 80):
        (part,) = fit_columns([("a", words), ("b", words), ("c", words), ("d", words)], width)
        assert EDGES + sum(part.values()) + 3 * BETWEEN == width

"""A letter means one thing on screen, and a quantity has one letter."""

import re
from collections import Counter

import pytest

from finetti.bounds import BoundSettings, Sample, load_bounds
from finetti.bounds.sweep import VARIABLES
from finetti.bounds.symbols import SYMBOLS, symbols_in

REGISTRY = load_bounds()
NORMS = {name for bound in REGISTRY for name in bound.norm_names()}
SHORT_WORDS = {"an", "as", "at", "by", "if", "in", "is", "it", "no", "of", "on", "or", "to"}
CAPITALS = {"CME", "LayerNorm", "ReLU"}


def screen(bound):
    """All that --list and --explain show of formulas."""
    return (bound.title, bound.statement, *bound.assumes)


def test_symbols_and_quantities_are_one_to_one():
    meanings = Counter(meaning for meaning, _ in SYMBOLS.values())
    assert max(meanings.values()) == 1
    for symbol, (_, argument) in SYMBOLS.items():
        options = {f"--{each.option}": each.letter for each in VARIABLES}
        assert argument in options or argument in NORMS or not argument
        if argument in options and symbol != "d_out":  # a linear map is as wide as its tokens
            assert options[argument] == symbol
    assert {each.letter for each in VARIABLES if each.letter} <= {*SYMBOLS}


@pytest.mark.parametrize("bound", REGISTRY, ids=lambda bound: bound.name)
def test_a_bound_uses_only_declared_symbols(bound):
    built = bound.from_settings(BoundSettings(width=4, n_heads=1 if bound.paper != "R" else 100))
    value = built.evaluate(Sample(10**6, 10))
    terms = (term.name for term in value.terms if not term.name.startswith("He_"))
    for text in (*screen(bound), *value.notes, *terms):
        assert {*symbols_in(text)} <= {*SYMBOLS}, text
        # A product of letters without a dot would pass for a word.
        plain = re.sub(r"`[^`]*`|_[A-Za-z]+|\b[a-z]+\d{4}\b", "", text)
        for word in re.findall("[A-Za-z]{2,}", plain):
            short = len(word) == 2 and word.lower() not in SHORT_WORDS
            assert re.fullmatch("[A-Z]?[a-z]+", word) or word in CAPITALS, text
            assert not short, text


def test_every_symbol_is_on_screen_somewhere():
    used = {symbol for bound in REGISTRY for text in screen(bound) for symbol in symbols_in(text)}
    assert used == {*SYMBOLS}


def test_what_is_no_symbol():
    assert symbols_in("a head of Lemma C.7, `value_norm` and ‖F‖_∞·x") == ["F", "x"]
    assert symbols_in("f̂, f*, f, ρ̃·α̃") == ["f̂", "f*", "f", "ρ̃", "α̃"]
    assert "Q_7" in symbols_in("log Q_7")

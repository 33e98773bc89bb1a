"""`docs/errata.md` names every erratum of the ledger, under its paper and number, and no other."""

import re
from pathlib import Path

import pytest

from finetti.claims import PAPERS, load_ledger

PAGE = Path(__file__).parents[2] / "docs" / "errata.md"
LEDGER = load_ledger()
ROW = re.compile(r"^\| *(\d*) *\|.*\|(.*)\|$", re.MULTILINE)
NAMES = re.compile(r"`([ESRF]-[\w.-]+)`")


def section(letter):
    """The rows of a paper's table as (number, ids), and the whole text of its section."""
    (text,) = re.findall(
        rf"^## Paper {letter} .*?(?=^## |\Z)", PAGE.read_text("utf-8"), re.M | re.S
    )
    return [(number, NAMES.findall(ids)) for number, ids in ROW.findall(text)], text


@pytest.mark.parametrize("letter", ["E", "S"])
def test_every_erratum_is_on_the_page_under_its_number(letter):
    rows, _ = section(letter)
    assert [number for number, _ in rows] == sorted(
        (n for n, _ in rows), key=lambda n: int(n or 99)
    )
    listed = {(number, name) for number, ids in rows for name in ids if "-erratum-" in name}
    numbered = re.compile(rf"{letter}-erratum-(\d+)")
    known = {(m[1], c.id) for c in LEDGER if (m := numbered.match(c.id))}
    assert listed == known


@pytest.mark.parametrize("letter", ["E", "S"])
def test_every_claim_on_the_page_exists_and_speaks_of_the_paper(letter):
    _, text = section(letter)
    assert PAPERS[letter].key in text
    for name in NAMES.findall(text):
        assert LEDGER.get(name).paper == letter


def test_what_is_expected_to_fail_is_on_the_page():
    text = PAGE.read_text("utf-8")
    assert not [c.id for c in LEDGER if c.expected == "fails" and f"`{c.id}`" not in text]


def test_tests_that_the_page_names_exist():
    for path in re.findall(r"tests/[\w/]+\.py", PAGE.read_text("utf-8")):
        assert (PAGE.parents[1] / path).exists()

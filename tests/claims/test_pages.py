"""The pages of the ledger are made of it, and the ledger itself only grows."""

import re
from pathlib import Path

import pytest

from finetti.claims import PAPERS, load_ledger
from finetti.claims.claim import COMMANDS
from finetti.claims.documentation import ERRATUM, claims_page, errata_page

DOCS = Path(__file__).parents[2] / "docs"
LEDGER = load_ledger()
NAMES = re.compile(r"\b[ESRF]-[a-z]+(?:-[A-Za-z0-9]+(?:\.[A-Za-z0-9]+)*)+")
# Ids are for ever: add the new ones, and leave the others as they are.
IDS = (Path(__file__).parent / "ids.txt").read_text(encoding="utf-8").split()


def test_ids_are_stable():
    assert [claim.id for claim in LEDGER] == IDS


@pytest.mark.parametrize(("name", "make"), [("claims.md", claims_page), ("errata.md", errata_page)])
def test_pages_are_made_of_the_ledger(name, make):
    advice = "run python -m finetti.claims.documentation"
    assert (DOCS / name).read_text(encoding="utf-8") == make(LEDGER), advice


def test_pages_name_the_papers_and_which_text_was_read():
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    errata = errata_page(LEDGER)
    for paper in PAPERS.values():
        if paper.arxiv:
            assert paper.text in claims_page(LEDGER)
            for page in (readme, errata):
                link = f"https://arxiv.org/abs/{paper.arxiv}"
                for part in (*paper.authors, paper.title, link, paper.about, paper.text):
                    assert part in page, part


def test_claims_of_a_paper_that_is_not_quoted_say_so():
    assert [paper.letter for paper in PAPERS.values() if not paper.quoted] == ["R"]
    for claim in LEDGER:
        assert ("not quoted" in claim.to_dict()["citation"]) == (claim.paper == "R")
        assert ("not quoted" in str(claim)) == (claim.paper == "R")


def test_names_on_the_pages_exist():
    for text in (claims_page(LEDGER), errata_page(LEDGER)):
        for name in NAMES.findall(text):
            assert name in LEDGER


def test_every_erratum_has_both_forms_and_every_expected_failure_is_one():
    for claim in LEDGER:
        assert bool(ERRATUM.match(claim.id)) == (claim.kind == "erratum")
        if claim.expected == "fails":
            assert claim.kind == "erratum"
            assert claim.erratum
            assert claim.printed not in ("", claim.formula)
    numbers = {letter: set() for letter in PAPERS}
    for claim in LEDGER:
        if found := ERRATUM.match(claim.id):
            numbers[claim.paper].add(int(found[1]))
    # S 7, 11 and 13 are withdrawn: what is true instead is a claim, and the page says so.
    assert numbers["E"] == set(range(1, 13))
    assert numbers["S"] == set(range(1, 18)) - {7, 11, 13}


@pytest.mark.parametrize("claim", LEDGER, ids=lambda claim: claim.id)
def test_every_claim_has_a_formula_in_the_notation_and_a_wrong_version(claim):
    assert claim.formula
    assert claim.red_for  # a wrong version, what is printed, or what its rule rejects
    assert len({control.name for control in claim.controls}) == len(claim.controls)
    for formula in (claim.formula, claim.printed):
        assert set(re.findall(r"\\([A-Za-z]+)", formula)) <= set(COMMANDS)
        plain = re.sub(r"\\[{}]", "", formula)
        for open_sign, close_sign in ("{}", "()", "[]", "⟨⟩", "⌈⌉", "⌊⌋"):
            assert plain.count(open_sign) == plain.count(close_sign), formula
        assert plain.count("‖") % 2 == 0
        assert not re.search(r"[_^]( |$)", plain)

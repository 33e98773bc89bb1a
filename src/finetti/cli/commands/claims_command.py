"""``finetti claims``: the ledger, what words find in it, one claim in full, or BibTeX."""

from enum import StrEnum
from typing import Annotated

import typer

from finetti.claims.claim import CheckMethod
from finetti.cli.options import Debug, Json
from finetti.cli.output import make_console, say, say_json


class PaperLetter(StrEnum):
    """The papers, by the letter that begins the ids of their claims; F is this package."""

    E = "E"
    S = "S"
    R = "R"
    F = "F"


CheckOption = Annotated[
    CheckMethod | None,
    typer.Option(
        "--check", case_sensitive=False, help="Only the claims that are checked in this way."
    ),
]


def claims(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID|WORD",
            help="Claim ID, glob, or search words: E-prop-4.1, 'E-prop*', softmax limit.",
        ),
    ] = None,
    paper: Annotated[
        PaperLetter | None,
        typer.Option(
            "--paper",
            case_sensitive=False,
            help="Show only the claims of this paper (F: this package).",
        ),
    ] = None,
    check: CheckOption = None,
    cite: Annotated[
        bool, typer.Option("--cite", help="Print the BibTeX entries of the papers.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the papers' claims, search them, or explain one."""
    from finetti.claims import PAPERS, load_ledger

    ledger = load_ledger() if paper is None else load_ledger().of_paper(paper)
    if check is not None:
        ledger = ledger.checked_as(check)
    if words:
        ledger = ledger.select(" ".join(words))
    claims = list(ledger)
    alone = words and len(words) == len(claims) == 1 and words[0].lower() == claims[0].id.lower()
    claim = claims[0] if alone else None
    if cite:
        letters = {paper or each for each in PAPERS} if not words else {c.paper for c in ledger}
        entries = {p.key: p.bibtex for p in PAPERS.values() if p.letter in letters}
        say_json(entries) if as_json else say("\n\n".join(entries.values()))
    elif as_json:
        say_json(claim.to_dict() if claim else [each.to_dict() for each in ledger])
    else:
        console = make_console()
        console.print(claim or ledger)
        if claim and (source := claim.code["source"]):
            from rich.text import Text

            console.print(Text(f"\n{source}"), soft_wrap=True, end="")

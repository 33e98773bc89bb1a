"""``finetti claims``: the ledger, one claim in full, or the papers as BibTeX."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from finetti.cli.console import make_console
from finetti.cli.options import Debug, Json


class PaperLetter(StrEnum):
    """The papers, by the letter that begins the ids of their claims."""

    E = "E"
    S = "S"
    R = "R"


def claims(
    claim_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Explain this claim, as E-prop-4.1.")
    ] = None,
    paper: Annotated[
        PaperLetter | None,
        typer.Option("--paper", case_sensitive=False, help="Only the claims of this paper."),
    ] = None,
    cite: Annotated[bool, typer.Option("--cite", help="The papers as BibTeX.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the claims of the papers, or explain one."""
    from finetti.claims import PAPERS, load_ledger

    ledger = load_ledger() if paper is None else load_ledger().of_paper(paper)
    claim = None if claim_id is None else ledger.get(claim_id)
    if cite:
        letter = claim.paper if claim else paper
        entries = {p.key: p.bibtex for p in PAPERS.values() if letter in (None, p.letter)}
        typer.echo(json.dumps(entries, indent=1) if as_json else "\n\n".join(entries.values()))
    elif as_json:
        content = claim.to_dict() if claim else [each.to_dict() for each in ledger]
        typer.echo(json.dumps(content, indent=1, allow_nan=False))
    else:
        make_console().print(claim or ledger)

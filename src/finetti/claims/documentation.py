"""``docs/claims.md`` and ``docs/errata.md``, made of the ledger.

``python -m finetti.claims.documentation`` writes both; a test holds them to it.
"""

import re
import sys
from pathlib import Path

from finetti.claims.bibliography import PAPERS
from finetti.claims.claim import Claim
from finetti.claims.ledger import Ledger, load_ledger
from finetti.display.formatting import format_number

ERRATUM = re.compile(r"[ESRF]-erratum-(\d+)")
MADE = "*Made of the ledger by `python -m finetti.claims.documentation`; a test keeps it so.*"
WITHDRAWN = """\
Withdrawn, with what is true instead:
- S 7: the paper itself projects onto the ball. Dividing by the length and LayerNorm are no
  contractions: `S-lemma-A.9-sphere`.
- S 11: "unit spectral norms avoid the exponential in the depth" does not follow from Theorem A.17,
  which has a factor of 3 per layer (5 with the printed C), but it is true: such layers bring tokens
  together, and amplify a deviation by less than 11.7 in all. `S-thm-4.6-depth`.
- S 13: 4L·Rad + 2b√(log(1/δ)/2m) holds for one side, since one sample changes the empirical
  complexity by at most b/2m. The derived 2L·Rad + 3b√(log(3/δ)/2m) is the textbook's, for both
  sides. `S-lemma-2.2`.
"""


def claims_page(ledger: Ledger) -> str:
    """Every claim: what it says, where, how it is measured, and what turns it red."""
    counts = {kind: sum(claim.kind == kind for claim in ledger) for kind in ("theorem", "figure")}
    errata = len(ledger) - sum(counts.values())
    controls = sum(len(claim.controls) for claim in ledger)
    parts = [
        "# The claims",
        f"{len(ledger)} claims: {counts['theorem']} theorems, lemmas and formulas, "
        f"{counts['figure']} experiments, {errata} errata; {controls} wrong versions of them, each "
        "of which must turn its claim red. The chance that any true claim is red in a whole run is "
        f"at most {format_number(100 * ledger.false_alarm)} %. `finetti claims ID` explains one "
        "with the code that checks it, `finetti reproduce --only ID` runs it.",
        MADE,
    ]
    for paper in PAPERS.values():
        parts.append(f"## {paper.letter}: {paper.title}")
        parts += [paper.text] if paper.text else []
        parts += [_entry(claim) for claim in ledger.of_paper(paper.letter)]
    return "\n\n".join(parts) + "\n"


def _entry(claim: Claim) -> str:
    lines = [
        f"### `{claim.id}`: {claim.title}",
        "",
        claim.statement,
        "",
        f"- {'derived' if claim.printed else 'formula'}: `{claim.formula}`",
        *([f"- printed: `{claim.printed}`"] if claim.printed else []),
        f"- source: {claim.citation}",
        f"- measured: {' '.join(claim.measured.split())}",
        f"- expected: {claim.expected.value}. {claim.pass_rule}",
        f"- check: {claim.check_words}",
        *([f"- erratum: {claim.why}"] if claim.why else []),
        f"- turns red for: {'; '.join(claim.red_for)}",
    ]
    return "\n".join(lines)


def errata_page(ledger: Ledger) -> str:
    """Where print and proof differ: one row per erratum, with what the paper prints beside it."""
    parts = [
        "# Errata",
        "Where a paper prints one thing and its proof gives another. The derived form is the "
        "default everywhere; each difference is a claim that is expected to fail, on an instance "
        "at which the derived form holds (`finetti claims erratum`). The printed forms are those "
        "of the texts that were read:",
        "\n".join(f"- {paper.entry}" for paper in PAPERS.values() if paper.arxiv),
        "A version that was not read may print something else. Paper R has no errata, since "
        "nothing of it is quoted.",
        MADE,
    ]
    for letter in ("E", "S"):
        rows = [claim for claim in ledger.of_paper(letter) if claim.why]
        parts.append(f"## Paper {letter} ({PAPERS[letter].key})")
        table = ["| no. | where | printed | derived | claim |", "|---|---|---|---|---|"]
        for claim in sorted(rows, key=_number):
            cells = (claim.label, *map(_code, (claim.printed, claim.formula)), f"`{claim.id}`")
            table.append(f"| {_number(claim)} | {' | '.join(cells)} |")
        parts.append("\n".join(table))
        parts += [f"**{_number(each)}** (`{each.id}`). {each.why}" for each in rows]
    return "\n\n".join([*parts, WITHDRAWN])


def _number(claim: Claim) -> int:
    found = ERRATUM.match(claim.id)
    return int(found[1]) if found else 0


def _code(text: str) -> str:
    """A formula in a cell of a table, where a bar ends the cell."""
    return f"`{text.replace('|', '∣')}`" if text else "as derived"


def main(directory: str = "docs") -> None:
    """Write both pages."""
    ledger = load_ledger()
    for name, make in (("claims.md", claims_page), ("errata.md", errata_page)):
        (Path(directory) / name).write_text(make(ledger), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

import pytest

from finetti.claims import (
    Claim,
    Context,
    Evidence,
    Ledger,
    Verdict,
    at_most,
    close,
    provenance,
    results_document,
    run_claim,
    within,
)
from finetti.show import Table, line_chart

EVIL = '<script>alert("x")</script>'


def _curve(context):
    """The error over the context length."""
    records = [
        {"T": size, "error": factor / size, "of": kind}
        for kind, factor in (("softmax", 2.0), (f"</script>{EVIL}", 1.0))
        for size in (8, 16, 32)
    ]
    chart = line_chart(records, "T", "error", color="of", log_x=True, title=f"Error {EVIL}")
    table = Table(EVIL, (EVIL, "n"), ((EVIL, 1.23456),))
    slope = within("slope", -0.98, -1.1, -0.9, interval=(-1.02, -0.94))
    return Evidence(slope, note=EVIL, charts=(chart, chart), tables=(table,))


def _fails(context):
    return Evidence(at_most(EVIL, 1.73, 1.0, unit=EVIL), derived=(close(EVIL, 0.25, 1.0),))


def _raises(context):
    raise RuntimeError(EVIL)


@pytest.fixture(scope="session")
def results():
    """A run with every kind of verdict, and markup wherever a text can stand."""
    claims = (
        Claim("E-prop-4.1", "the error falls", "As 1/T.", _curve),
        Claim("S-erratum-3", EVIL, EVIL, _fails, EVIL, Verdict.FAILS, 0.001, f"It prints {EVIL}."),
        Claim(
            "S-thm-4.2",
            "nan",
            "…",
            lambda c: Evidence(close("a", 1e999 * 0, 1)),
        ),
        Claim("R-table", "breaks", "…", _raises, "Table 1"),
    )
    context = Context("quick", 7)
    run = [run_claim(claim, context) for claim in Ledger(claims)]
    return results_document(run, provenance(context), len(claims))

import copy

import pytest

from browser import open_browser
from finetti.claims import (
    Claim,
    Context,
    Evidence,
    Ledger,
    Verdict,
    at_most,
    close,
    compare_runs,
    provenance,
    results_document,
    run_claim,
    within,
)
from finetti.claims.claim import Control
from finetti.claims.run import ControlResult, run_control
from finetti.display import Table, line_chart
from finetti.report import write_report

EVIL = '<script>alert("x")</script><!-- <script> ]]>'


def _curve(context, slope=-0.98):
    """The error over the context length."""
    records = [
        {"T": size, "error": factor / size, "of": kind}
        for kind, factor in (("softmax", 2.0), (f"</script>{EVIL}", 1.0))
        for size in (8, 16, 32)
    ]
    chart = line_chart(records, "T", "error", color="of", log_x=True, title=f"Error {EVIL}")
    table = Table(EVIL, (EVIL, "n"), ((EVIL, 1.23456),))
    found = within("slope", slope, -1.1, -0.9, interval=(slope - 0.04, slope + 0.04))
    return Evidence(found, note=EVIL, charts=(chart, chart), tables=(table,))


def _fails(context):
    return Evidence(at_most(EVIL, 1.73, 1.0, unit=EVIL), derived=(close(EVIL, 0.25, 1.0),))


def _raises(context):
    raise RuntimeError(EVIL)


@pytest.fixture(scope="session")
def results():
    """A run with every kind of verdict, and markup wherever a text can stand.

    Against an older one: a verdict has flipped, a number moved, a claim is new, and one is gone.
    """
    wrong = Control("a flat curve", changes={"slope": 0.0})
    claims = (
        Claim(
            "E-prop-4.1",
            "the error falls",
            "As 1/T.",
            _curve,
            formula=r"‖f̂ − f‖ ≤ \frac{c}{√T} + \frac{log n + log T}{n} + \frac{d log n}{n},  c > 0",
            controls=(wrong,),
        ),
        Claim(
            "S-erratum-3",
            EVIL,
            EVIL,
            _fails,
            EVIL,
            Verdict.FAILS,
            0.001,
            f"It prints {EVIL}.",
            formula="λ² < max(aaaaaaaaaaaa, bbbbbbbbbbbb, cccccccccccc, dddddddddddd)",
            printed=rf"\{EVIL}",
        ),
        Claim(
            "S-thm-4.2",
            "nan",
            "…",
            lambda c: Evidence(close("a", 1e999 * 0, 1)),
        ),
        Claim("R-table", "breaks", "…", _raises, "Table 1", controls=(Control(EVIL, {}),)),
    )
    context = Context("quick", 7)
    ran = [run_claim(claim, context) for claim in Ledger(claims)]
    red = ControlResult(wrong.name, run_control(claims[0], wrong, context))
    object.__setattr__(ran[0], "controls", (red,))
    document = results_document(ran, provenance(context), len(claims))
    older = copy.deepcopy(document)
    older["provenance"]["finetti"] = EVIL
    first, *others, last = older["results"]
    first["verdict"] = "fails"
    first["measurements"][0] |= {"value": -0.5, "interval": [-0.6, -0.4]}
    older["results"] = [first, *others[:1], {**last, "id": "R-gone"}, last]
    document["changes"] = compare_runs(older, document)
    return document


@pytest.fixture(scope="session")
def report(tmp_path_factory, results):
    return write_report(results, tmp_path_factory.mktemp("report"))


# For each test: Playwright keeps an event loop running, beside which others cannot start theirs.
@pytest.fixture
def browser():
    with open_browser() as opened:
        yield opened

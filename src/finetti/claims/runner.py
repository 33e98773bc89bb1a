"""Runs claims, one after another, and turns what came out into plain data."""

import math
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from finetti.claims.bibliography import PAPERS
from finetti.claims.claim import Claim, Context, Control
from finetti.claims.evidence import Evidence, Verdict
from finetti.core.provenance import jax_device, software
from finetti.show.card import Card
from finetti.show.numbers import format_duration
from finetti.show.shown import Shown

RESULTS_FORMAT = "finetti-results-1"


@dataclass(frozen=True)
class ClaimResult(Shown):
    """What became of one claim. ``error`` is the traceback of a claim that could not finish."""

    claim: Claim
    evidence: Evidence | None
    seconds: float
    error: str | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of the evidence; a claim that raised is inconclusive.

        So is one that should fail and shows no derived form: a bug fails every rule.
        """
        if self.evidence is None or self._lacks_derived:
            return Verdict.INCONCLUSIVE
        return self.evidence.verdict

    @property
    def _lacks_derived(self) -> bool:
        should_fail = self.expected is Verdict.FAILS
        return should_fail and self.evidence is not None and not self.evidence.derived

    @property
    def expected(self) -> Verdict:
        """The verdict that the ledger expects."""
        return self.claim.expected

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the expected one; never true of a claim that raised."""
        return self.error is None and self.verdict is self.expected

    @property
    def reason(self) -> str:
        """One sentence: the measurement that decided, or the last line of the error."""
        if self._lacks_derived:
            return (
                "A claim that is expected to fail must show that its derived form holds there: "
                "give its Evidence derived measurements."
            )
        if self.evidence is not None:
            return self.evidence.reason
        return f"It could not finish: {(self.error or 'no evidence').strip().splitlines()[-1]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with everything that a report needs."""
        evidence = self.evidence or Evidence()
        return {
            **self.claim.to_dict(),
            "verdict": self.verdict.value,
            "as_expected": self.as_expected,
            "reason": self.reason,
            "seconds": round(self.seconds, 4),
            "measurements": [to_plain(asdict(m)) for m in evidence.measurements],
            "derived": [to_plain(asdict(m)) for m in evidence.derived],
            "note": evidence.note,
            "charts": [to_plain(chart) for chart in evidence.charts],
            "tables": [
                {"title": t.title, "columns": list(t.columns), "rows": to_plain(t.rows)}
                for t in evidence.tables
            ],
            "error": self.error,
        }

    def __card__(self) -> Card:
        fields = (
            ("verdict", self.verdict.value),
            ("expected", self.expected.value),
            ("because", self.reason),
            ("time", format_duration(self.seconds)),
        )
        tables = self.evidence.__card__().tables if self.evidence else ()
        notes = self.evidence.__card__().notes if self.evidence else ()
        return Card(f"{self.claim.id}: {self.claim.title}", fields, tables, notes)


def to_plain(value: Any) -> Any:
    """Plain JSON data. JSON has no NaN or infinity, so they become the words that name them.

    >>> to_plain({"a": (1, float("inf"))})
    {'a': [1, 'Infinity']}
    """
    if hasattr(value, "tolist"):  # NumPy and JAX arrays and scalars
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


def _shareable_traceback(error: BaseException) -> str:
    """The traceback with files named from their package on, since results are shown to others."""

    def shorten(match: re.Match[str]) -> str:
        path = match[1].replace("\\", "/")
        for root in ("/site-packages/", "/src/"):
            if root in path:
                return f'File "{path.rsplit(root, 1)[1]}"'
        return f'File "{path.rsplit("/", 1)[-1]}"'

    return re.sub(r'File "([^"]+)"', shorten, "".join(traceback.format_exception(error)))


def run_claim(claim: Claim, context: Context) -> ClaimResult:
    """Run one claim in float64. An exception is a result too; Ctrl-C is not, and goes through."""
    from finetti.core.precision import float64

    start = time.perf_counter()
    try:
        with float64():
            evidence = claim.run(context)
        if not isinstance(evidence, Evidence):
            raise TypeError(
                f"run of {claim.id} must return Evidence. Got {type(evidence)} instead."
            )
        error = None
    except Exception as exception:
        evidence, error = None, _shareable_traceback(exception)
    return ClaimResult(claim, evidence, time.perf_counter() - start, error)


def run_claims(
    claims: Iterable[Claim],
    context: Context | None = None,
    on_start: Callable[[Claim], Any] | None = None,
) -> Iterator[ClaimResult]:
    """Run ``claims`` in turn and yield each result as it is there.

    Results that were yielded stay with the caller if the run is interrupted.
    """
    context = context or Context()
    for claim in claims:
        if on_start:
            on_start(claim)
        yield run_claim(claim, context)


def run_control(claim: Claim, control: Control, context: Context) -> ClaimResult:
    """Run a wrong version of ``claim``'s formula, which must turn it red (``turns_red``)."""
    run = control.run or partial(claim.run, **control.changes)
    return run_claim(replace(claim, run=run), context)


def turns_red(result: ClaimResult) -> bool:
    """Whether a wrong formula was noticed: a rule was broken, and not by an error or a NaN."""
    if result.evidence is None or result.as_expected:
        return False
    measured = (*result.evidence.measurements, *result.evidence.derived)
    return all(measurement.holds is not None for measurement in measured)


def provenance(context: Context) -> dict[str, Any]:
    """What another person needs to repeat the run; nothing that tells whose machine it was."""
    import jax  # noqa: F401 - loaded, so that its device is known

    return {
        **software(),
        "device": jax_device(),
        "scale": context.scale.value,
        "seed": context.seed,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def results_document(
    results: Iterable[ClaimResult], made_by: dict[str, Any], selected: int
) -> dict[str, Any]:
    """The whole run as plain data; ``complete`` says whether all ``selected`` claims were run."""
    plain = [result.to_dict() for result in results]
    return {
        "format": RESULTS_FORMAT,
        "complete": len(plain) == selected,
        "selected": selected,
        "finished": len(plain),
        "as_expected": sum(result["as_expected"] for result in plain),
        "seconds": round(sum(result["seconds"] for result in plain), 3),
        "provenance": made_by,
        "papers": {
            paper.letter: {"title": paper.title, "citation": paper.cite(), "arxiv": paper.arxiv}
            for paper in PAPERS.values()
        },
        "results": plain,
    }

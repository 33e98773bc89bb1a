"""Runs one claim, or a wrong version of it, and says what became of it."""

import re
import time
import traceback
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from finetti.claims.claim import Claim, Context, Control
from finetti.claims.evidence import Evidence, Verdict
from finetti.claims.wrong import broken
from finetti.show.card import Card
from finetti.show.numbers import format_duration
from finetti.show.shown import Shown


@dataclass(frozen=True)
class ClaimResult(Shown):
    """What became of one claim.

    Args:
        claim: the claim.
        evidence: what was measured; None if it could not finish.
        seconds: that it took.
        error: the traceback of a claim that could not finish.
        seed: of its run.
        fresh: whether it was run now; else its evidence is that of an earlier run of the same code.
        controls: what became of its wrong versions, where they were run.
    """

    claim: Claim
    evidence: Evidence | None
    seconds: float
    error: str | None = None
    seed: int = 0
    fresh: bool = True
    controls: "tuple[ControlResult, ...]" = ()

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
        return {
            **self.claim.to_dict(),
            "verdict": self.verdict.value,
            "as_expected": self.as_expected,
            "reason": self.reason,
            "seconds": round(self.seconds, 4),
            "seed": self.seed,
            "fresh": self.fresh,
            **(self.evidence or Evidence()).to_dict(),
            "control_results": [each.to_dict() for each in self.controls],
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


@dataclass(frozen=True)
class ControlResult:
    """What became of a wrong version of a claim: it must turn the claim red."""

    name: str
    result: ClaimResult

    @property
    def red(self) -> bool:
        """Whether the wrong version was noticed."""
        return turns_red(self.result)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "red": self.red,
            "reason": self.result.reason,
            "seconds": round(self.result.seconds, 4),
            "fresh": self.result.fresh,
            "error": self.result.error,
        }


def shareable_traceback(text: str) -> str:
    """A traceback with files named from their package on, since results are shown to others."""

    def shorten(match: re.Match[str]) -> str:
        path = match[1].replace("\\", "/")
        for root in ("/site-packages/", "/src/"):
            if root in path:
                return f'File "{path.rsplit(root, 1)[1]}"'
        return f'File "{path.rsplit("/", 1)[-1]}"'

    return re.sub(r'File "([^"]+)"', shorten, text)


def wrong_version(claim: Claim, control: Control) -> Claim:
    """``claim`` with the wrong formula of ``control``."""

    def run(context: Context) -> Evidence:
        with broken(control.breaks):
            return (control.run or partial(claim.run, **control.changes))(context)

    return replace(claim, run=run)


def measure(claim: Claim, context: Context) -> Evidence:
    """The evidence for ``claim``, measured in float64."""
    from finetti.core.precision import float64

    with float64():
        evidence = claim.run(context)
    if not isinstance(evidence, Evidence):
        raise TypeError(f"run of {claim.id} must return Evidence. Got {type(evidence)} instead.")
    return evidence


def run_claim(claim: Claim, context: Context) -> ClaimResult:
    """Run one claim here and now. An exception is a result too; Ctrl-C is not, and goes through."""
    start, evidence, error = time.perf_counter(), None, None
    try:
        evidence = measure(claim, context)
    except Exception as exception:
        error = shareable_traceback("".join(traceback.format_exception(exception)))
    return ClaimResult(claim, evidence, time.perf_counter() - start, error, context.seed)


def run_control(claim: Claim, control: Control, context: Context) -> ClaimResult:
    """Run a wrong version of ``claim``'s formula, which must turn it red (``turns_red``)."""
    return run_claim(wrong_version(claim, control), context)


def turns_red(result: ClaimResult) -> bool:
    """Whether a wrong formula was noticed: a rule was broken, and not by an error or a NaN."""
    if result.evidence is None or result.as_expected:
        return False
    measured = (*result.evidence.measurements, *result.evidence.derived)
    return all(measurement.holds is not None for measurement in measured)

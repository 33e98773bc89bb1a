"""Runs one claim, or a wrong version of it, and says what became of it."""

import re
import time
import traceback
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any, cast

from finetti.claims.claim import DERIVED, Claim, Context, Control, PrintedForm
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
        bases: what became of the claims that it rests on, as far as they were run.
    """

    claim: Claim
    evidence: Evidence | None
    seconds: float
    error: str | None = None
    seed: int = 0
    fresh: bool = True
    controls: "tuple[ControlResult, ...]" = ()
    bases: "tuple[ClaimResult, ...]" = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict of the evidence; a claim that raised is inconclusive.

        So is one that should fail and shows no derived form: a bug fails every rule. A claim that
        rests on others holds if all of them are as expected, and is undecided otherwise.
        """
        if self.claim.rests_on:
            return Verdict.INCONCLUSIVE if self._doubted else Verdict.HOLDS
        if self.evidence is None or self._lacks_derived:
            return Verdict.INCONCLUSIVE
        return self.evidence.verdict

    @property
    def _lacks_derived(self) -> bool:
        should_fail = self.expected is Verdict.FAILS
        return should_fail and self.evidence is not None and not self.evidence.derived

    @property
    def _doubted(self) -> list[str]:
        """Of what it rests on: what is not as expected, and what was not run."""
        known = {each.claim.id: each for each in self.bases}
        doubts = []
        for name in self.claim.rests_on:
            if name not in known:
                doubts.append(f"{name}, which was not run")
            elif not known[name].as_expected:
                doubts.append(f"{name}, which is not as expected: {known[name].reason}")
        return doubts

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
        if self.claim.rests_on:
            doubts = self._doubted
            if not doubts:
                return f"Rests on {', '.join(self.claim.rests_on)}: as expected."
            return f"Rests on {'; '.join(doubts)}".rstrip(".") + "."
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
    if claim.host is not None:
        wrong = wrong_version(claim.host, control)
        return replace(claim, measure=replace(cast(PrintedForm, claim.measure), host=wrong))
    if control.changes and is_dataclass(claim.measure):
        return replace(claim, measure=replace(cast(Any, claim.measure), **control.changes))
    right = claim.measure

    def measure(context: Context, form: str = DERIVED) -> Evidence:
        with broken(control.breaks):
            if control.run is not None:
                return control.run(context)
            changed = replace(claim, measure=partial(cast(Any, right), **control.changes))
            return changed.evidence(context, form)

    return replace(claim, measure=measure)


def measure(claim: Claim, context: Context, form: str = DERIVED) -> Evidence:
    """The evidence for ``claim``, measured in float64."""
    from finetti.core.precision import float64

    with float64():
        return claim.evidence(context, form)


def run_claim(claim: Claim, context: Context) -> ClaimResult:
    """Run one claim here and now. An exception is a result too; Ctrl-C is not, and goes through.

    A claim that rests on others is told by `finetti.claims.reproduce_claims`.
    """
    start, evidence, error = time.perf_counter(), None, None
    if claim.rests_on:
        return ClaimResult(claim, None, 0.0, seed=context.seed)
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

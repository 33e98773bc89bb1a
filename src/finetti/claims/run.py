"""Runs claims and their wrong versions: one here and now, or all as the trials of a study.

The study is resumable, runs on any executor, and keeps a row for every failure. Its entry is a
claim by its id, measured in all its forms, or one of its controls as ``id: name``. The ids of the
trials hold the fingerprint of all that a claim may depend on, so that evidence is only used again
where it would come out the same.
"""

import importlib
import os
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import finetti
from finetti.claims.claim import DERIVED, Claim, Context, Control, PrintedForm, Scale
from finetti.claims.evidence import Evidence, Verdict
from finetti.core.provenance import jax_device, software
from finetti.display.card import Card
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_duration
from finetti.studies.coordinator import StudyPlan
from finetti.studies.store.store_reader import Row
from finetti.studies.study import Study
from finetti.studies.trials import DONE, Outcome, TrialResult, canonical_json, digest

ABOVE = ("cli", "report")  # parts of the package that no claim can use
LIBRARIES = ("equinox", "jaxlib", "optax", "scikit-learn", "scipy")  # beside those of `software`
FINGERPRINT_DIGITS = 16  # of a hash, hexadecimal


@dataclass(frozen=True)
class ClaimResult(Displayable):
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
            **(self.evidence or Evidence()).shown(),
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
    change: Any = replace if is_dataclass(claim.measure) else partial
    return replace(claim, measure=change(claim.measure, **control.changes))


def measure(claim: Claim, context: Context, form: str = DERIVED) -> Evidence:
    """The evidence for ``claim``, measured in float64."""
    from finetti.core.numerics.float64 import float64

    with float64():
        return claim.evidence(context, form)


def run_claim(claim: Claim, context: Context) -> ClaimResult:
    """Run one claim here and now. An exception is a result too; Ctrl-C is not, and goes through.

    A claim that rests on others is told by `finetti.claims.run_claims`.
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


@contextmanager
def shared_programs() -> Iterator[None]:
    """Share compiled programs between the processes that start JAX inside, children and this one.

    Compiling takes most of the time of claims, and wrong versions run the programs of the right
    ones. Nor is it noted for each operation which line it comes from. What the user has set stays.
    """
    with tempfile.TemporaryDirectory() as programs:
        settings = {
            "JAX_COMPILATION_CACHE_DIR": programs,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",
        }
        added = settings.keys() - os.environ.keys()
        os.environ.update({name: settings[name] for name in added})
        try:
            yield
        finally:
            for name in added:
                del os.environ[name]


def code_fingerprint() -> str:
    """Hash of all that evidence may depend on: the files of this package, as far as claims can use
    them, the versions of the libraries, and JAX's device."""
    import jax  # noqa: F401 - loaded, so that its device is known

    root = Path(finetti.__file__).parent
    files = {
        path.relative_to(root).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and path.relative_to(root).parts[0] not in ABOVE
        and "__pycache__" not in path.parts
    }
    versions = software() | {name: version(name) for name in LIBRARIES} | {"device": jax_device()}
    return digest(canonical_json([files, versions])).hex()[:FINGERPRINT_DIGITS]


def check_entry(seed: int, entry: str, scale: str, claim_seed: int) -> TrialResult:
    """One trial: a claim in all its forms. It draws from its id and ``claim_seed``, so that a run
    can be repeated."""
    claim_id, _, name = entry.partition(": ")
    # Found where everybody finds it, so that a ledger of one's own may stand in its place.
    claim = importlib.import_module("finetti.claims").load_ledger()[claim_id]
    forms = [DERIVED, *(each.form for each in claim.errata)]
    if name:
        (control,) = (each for each in claim.controls if each.name == name)
        claim, forms = wrong_version(claim, control), [DERIVED]
    context, found, verdict = Context(Scale(scale), claim_seed), {}, ""
    for form in forms:
        start = time.perf_counter()
        evidence = measure(claim, context, form)
        seconds = time.perf_counter() - start
        found[form] = {"evidence": evidence.to_dict(), "seconds": seconds}
        verdict = verdict or evidence.verdict.value
    return TrialResult({"verdict": verdict}, record=found)


def claims_study(
    claims: Iterable[Claim], context: Context, store: str | Path, controls: bool = False
) -> Study:
    """The study whose trials are the ``claims``, and their ``controls`` if asked for."""
    measured = [each for each in claims if not each.rests_on]
    # An erratum is measured with its host; two rows may have one host, which is one trial.
    entries = list(dict.fromkeys((claim.host or claim).id for claim in measured))
    if controls:
        entries += [f"{claim.id}: {each.name}" for claim in measured for each in claim.controls]
    return Study(
        check_entry,
        store=store,
        name="claims",
        code_version=code_fingerprint(),
        grid={"entry": entries},
        fixed={"scale": context.scale.value, "claim_seed": context.seed},
        cohort=1,
    )


def run_claims(
    claims: Iterable[Claim],
    context: Context | None = None,
    *,
    store: str | Path,
    controls: bool = False,
    run: Callable[[Study, StudyPlan], Any] = lambda study, plan: study.run(
        "inline", plan=plan, retry_failed=True, quiet=True
    ),
) -> list[ClaimResult]:
    """Run what has no evidence yet, and what became of each claim, as far as it was run.

    Args:
        claims: of a ledger.
        context: scale and seed.
        store: the file that keeps the evidence.
        controls: also run the wrong versions of each claim.
        run: runs the study by its plan; here, one after another, unless given.
    """
    claims, context = tuple(claims), context or Context()
    ledger = importlib.import_module("finetti.claims").load_ledger()
    chosen = {claim.id for claim in claims}
    bases = {base.id: base for claim in claims for base in ledger.bases(claim)}
    others = tuple(base for base in bases.values() if base.id not in chosen)
    study = claims_study((*claims, *others), context, store, controls)
    plan = study.plan
    before = _finished(study, plan)
    run(study, plan)
    found = _finished(study, plan)

    def result(claim: Claim, entry: str) -> ClaimResult | None:
        row = found.get(entry)
        if row is None:
            return None
        known = before.get(entry)
        fresh = known is None or known.outcome.finished != row.outcome.finished
        return _result(claim, row.outcome, context, fresh)

    made = {each.id: result(each, (each.host or each).id) for each in (*claims, *others)}
    results = []
    for claim in claims:
        wrong = ((each.name, result(claim, f"{claim.id}: {each.name}")) for each in claim.controls)
        tried = tuple(ControlResult(name, each) for name, each in wrong if each is not None)
        known = tuple(each for name in claim.rests_on if (each := made[name]) is not None)
        if claim.rests_on:
            fresh = any(each.fresh for each in known)
            results.append(ClaimResult(claim, None, 0.0, None, context.seed, fresh, bases=known))
        elif (own := made[claim.id]) is not None:
            results.append(replace(own, controls=tried))
    return results


def _finished(study: Study, plan: StudyPlan) -> dict[str, Row]:
    """The entries of the study that have a row."""
    _, rows = study.read(plan)
    own = plan.trial_positions
    return {row.cell.params["entry"]: row for row in rows if row.outcome.trial_id in own}


def _result(claim: Claim, outcome: Outcome, context: Context, fresh: bool) -> ClaimResult:
    if outcome.state != DONE:
        error = shareable_traceback(outcome.traceback or outcome.error or "")
        return ClaimResult(claim, None, outcome.seconds, error, context.seed, fresh)
    forms = outcome.record or {}
    form = claim.measure.form if isinstance(claim.measure, PrintedForm) else DERIVED
    # A wrong version of an erratum's row measures both forms itself.
    form = form if form in forms else DERIVED
    evidence, derived = (Evidence.from_dict(forms[each]["evidence"]) for each in (form, DERIVED))
    if form != DERIVED:
        evidence = PrintedForm.combine(evidence, derived)
    return ClaimResult(claim, evidence, forms[form]["seconds"], None, context.seed, fresh)

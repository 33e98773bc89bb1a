"""The claims as trials of a study: resumable, on any executor, with a row for every failure.

An entry of the study is a claim by its id, or one of its controls as ``id: name``. The ids of the
trials hold the fingerprint of all code that a claim may use, so that evidence is only used again
where it would come out the same.
"""

import importlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import finetti
from finetti.claims.claim import DERIVED, Claim, Context, PrintedForm, Scale
from finetti.claims.evidence import Evidence
from finetti.claims.runner import (
    ClaimResult,
    ControlResult,
    measure,
    shareable_traceback,
    wrong_version,
)
from finetti.core.provenance import software
from finetti.studies.canonical import canonical_json, digest
from finetti.studies.outcome import DONE, Outcome, TrialResult
from finetti.studies.records import Row
from finetti.studies.study import Study

ABOVE = ("cli", "report")  # rooms that no claim can use
FINGERPRINT_DIGITS = 16  # of a hash, hexadecimal


def code_fingerprint() -> str:
    """Hash of the source of this package, as far as claims can use it, and of the versions."""
    root = Path(finetti.__file__).parent
    files = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    texts = {
        path.as_posix(): (root / path).read_text(encoding="utf-8")
        for path in files
        if path.parts[0] not in ABOVE
    }
    return digest(canonical_json([texts, software()])).hex()[:FINGERPRINT_DIGITS]


def check_entry(seed: int, entry: str, scale: str, claim_seed: int) -> TrialResult:
    """One trial: a claim in all its forms. It draws from its id and ``claim_seed``, so that a run
    can be repeated."""
    claim_id, _, name = entry.partition(": ")
    # Found where everybody finds it, so that a ledger of one's own may stand in its place.
    claim = importlib.import_module("finetti.claims").load_ledger().get(claim_id)
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
    return TrialResult({"verdict": verdict}, found)


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


def reproduce_claims(
    claims: Iterable[Claim],
    context: Context | None = None,
    *,
    store: str | Path,
    controls: bool = False,
    run: Callable[[Study], Any] = lambda study: study.run("inline", retry_failed=True, quiet=True),
) -> list[ClaimResult]:
    """Run what has no evidence yet, and what became of each claim, as far as it was run.

    Args:
        claims: of a ledger.
        context: scale and seed.
        store: the file that keeps the evidence.
        controls: also run the wrong versions of each claim.
        run: runs the study; here, one after another, unless given.
    """
    claims, context = tuple(claims), context or Context()
    ledger = importlib.import_module("finetti.claims").load_ledger()
    chosen = {claim.id for claim in claims}
    bases = {base.id: base for claim in claims for base in ledger.bases(claim)}
    others = tuple(base for base in bases.values() if base.id not in chosen)
    study = claims_study((*claims, *others), context, store, controls)
    before = _finished(study)
    run(study)
    found = _finished(study)

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
            results.append(ClaimResult(claim, None, 0.0, seed=context.seed, bases=known))
        elif (own := made[claim.id]) is not None:
            results.append(replace(own, controls=tried))
    return results


def _finished(study: Study) -> dict[str, Row]:
    """The entries of the study that have a row."""
    plan, rows = study.read()
    return {row.cell.params["entry"]: row for row in rows if row.outcome.trial_id in plan.places}


def _result(claim: Claim, outcome: Outcome, context: Context, fresh: bool) -> ClaimResult:
    if outcome.state != DONE:
        error = shareable_traceback(outcome.traceback or outcome.error or "")
        return ClaimResult(claim, None, outcome.seconds, error, context.seed, fresh)
    forms = outcome.trace or {}
    form = claim.measure.form if isinstance(claim.measure, PrintedForm) else DERIVED
    # A wrong version of an erratum's row measures both forms itself.
    form = form if form in forms else DERIVED
    evidence, derived = (Evidence.from_dict(forms[each]["evidence"]) for each in (form, DERIVED))
    if form != DERIVED:
        evidence = PrintedForm.combine(evidence, derived)
    return ClaimResult(claim, evidence, forms[form]["seconds"], None, context.seed, fresh)

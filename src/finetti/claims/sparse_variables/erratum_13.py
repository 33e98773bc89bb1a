"""Erratum 13: the constants of Lemma 2.2 are not those of its proof."""

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_least


def run(context: Context) -> Evidence:
    """The printed confidence term over the one that McDiarmid's inequality gives, for many δ."""
    import math

    from finetti.bounds import Sample
    from finetti.bounds.covering.generalization import log_confidence

    ratios = []
    for delta in (0.3, 0.1, 0.05, 1e-3, 1e-9):
        sample = Sample(1000, 1, delta=delta)
        logs = [log_confidence(sample, form) for form in ("printed", "derived")]
        ratios.append(math.exp(logs[0] - logs[1]))
    return Evidence(
        (at_least("least printed / derived confidence term", min(ratios), 1.0),),
        note="Printed 2b√(log(1/δ)/2m), derived 3b√(log(3/δ)/2m) with the empirical complexity, "
        "two-sided. S-lemma-2.2 holds with the derived one.",
    )


CLAIM = Claim(
    id="S-erratum-13",
    title="printed: the constants of the generalization lemma",
    statement="The printed confidence term 2b√(log(1/δ)/2m) is at least the one that the proof "
    "through empirical Rademacher complexity gives.",
    paper="S",
    label="Lemma 2.2, A.4",
    run=run,
    expected=Verdict.FAILS,
    erratum="The standard statement is 2L·Rad + 3b√(log(3/δ)/2m), one-sided with log(2/δ); printed "
    "is 4L·Rad + 2b√(log(1/δ)/2m).",
)

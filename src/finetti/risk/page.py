"""The page of a study of the excess risk: one HTML file that works offline."""

from collections.abc import Mapping
from typing import Any

from finetti.display import Chart, Document, Figure, Section, line_chart
from finetti.display.charts.bar_charts import waterfall
from finetti.display.pages.document import run_facts
from finetti.risk.findings import REACH, SIGNS, RiskFindings, RiskPoint
from finetti.risk.risk_trial import PARTS

NAMES = {"excess": "excess risk", "baseline": "mean answer"}


def risk_page(findings: RiskFindings, document: Mapping[str, Any]) -> Document:
    """The page; ``document`` is the plain data of the run (command, time, provenance)."""
    counts = document["trials"]
    warnings = []
    if left := counts["all"] - counts["done"] - counts["failed"]:
        warnings.append(
            f"The study is not complete: {left} of {counts['all']} trials have not run."
        )
    if counts["failed"]:
        warnings.append(f"{counts['failed']} trials ended with an error and are not counted.")
    sections = []
    if findings.points:
        sections = [_against(findings), _apart(findings), _bound(findings)]
    if findings.failures:
        sections.append(Section("Errors", tables=(findings.failure_table(),)))
    return Document(
        findings.headline,
        summary=(_what_was_done(findings),),
        warnings=tuple(warnings),
        sections=tuple(sections),
        command=document["command"],
        facts=run_facts(document),
    )


def _what_was_done(findings: RiskFindings) -> str:
    given = findings.experiment.settings
    several = findings.experiment.trials > 1
    times = f"{findings.experiment.trials} times each" if several else "once"
    return (
        f"The network ({given.network}) is trained on n sequences of {given.context_length} tokens "
        f"of a world ({given.world}), {times}, by {given.iterations} steps from one start. In this "
        "world the best answer f*(X) = E[y|X] is known, so that the excess risk E‖f̂ − f*‖² is, "
        f"too. The minima over the class are the best of {given.restarts} starts."
    )


def _records(findings: RiskFindings, names: tuple[str, ...]) -> list[dict[str, Any]]:
    records = []
    for point in findings.points:
        for name in names:
            value, error = point.values[name]
            label = NAMES.get(name) or f"{name} {SIGNS[name].strip()}".strip()
            # Four bands over each other would hide what they are about.
            reach = REACH * error if name == "excess" else 0.0
            ends = {"low": value - reach, "high": value + reach}
            records.append({"n": point.n_samples, "risk": value, "part": label, **ends})
    return records


def curves_chart(findings: RiskFindings) -> Chart:
    """The excess risk, its parts and the baseline against n, both axes logarithmic."""
    return line_chart(
        _records(findings, ("excess", "baseline", *PARTS)),
        "n",
        "risk",
        color="part",
        low="low",
        high="high",
        reference=findings.points[-1].noise or None,
        log_x=True,
        log_y=True,
        x_title="training sequences n",
        y_title="risk above that of E[y|X]",
    )


def point_chart(point: RiskPoint) -> Chart:
    """A waterfall from 0 by the three parts to the excess risk, at one n."""
    parts = [(f"{name} {SIGNS[name].strip()}".strip(), *point.values[name]) for name in PARTS]
    return waterfall(
        parts,
        ("excess risk", *point.values["excess"]),
        title=f"n = {point.n_samples}",
        y_title="risk above that of E[y|X]",
        reference=point.values["baseline"][0],
    )


def bound_chart(findings: RiskFindings) -> Chart:
    """The generalization part and its bound against n."""
    records = [
        {"n": point.n_samples, "risk": value, "what": what}
        for point in findings.points
        if point.bound is not None
        for what, value in (
            ("generalization part", point.values["generalization"][0]),
            ("bound of Theorem 5.3", point.bound),
        )
    ]
    return line_chart(
        records,
        "n",
        "risk",
        color="what",
        log_x=True,
        log_y=True,
        x_title="training sequences n",
        y_title="risk",
    )


def _against(findings: RiskFindings) -> Section:
    caption = (
        "The excess risk of the trained network, and what it is made of: a sample of n sequences "
        "(generalization), the class of networks (approximation, estimated from above), and "
        "training (optimization, estimated from below). Band: two standard errors of the excess "
        "risk; those of the parts stand below. What is negative has no place on a logarithmic "
        "axis: see the table. The mean answer is what is had without a network; dashed: the noise, "
        "the risk of E[y|X] itself."
    )
    return Section(
        "Excess risk against the number of sequences",
        figures=(Figure(curves_chart(findings), caption, "risk"),),
        tables=tuple(findings.tables()),
        notes=findings.notes[: len(findings.notes) - len(findings.bound_notes)],
    )


def _apart(findings: RiskFindings) -> Section:
    figures = [
        Figure(point_chart(point), name=f"parts-{point.n_samples}") for point in findings.points
    ]
    text = (
        "The three parts add up to the excess risk exactly, (5.3). Bars at the ends: two standard "
        "errors. Dashed: the excess risk of the mean answer.",
    )
    return Section("Taken apart", text, tuple(figures))


def _bound(findings: RiskFindings) -> Section:
    title = "The bound of Theorem 5.3"
    if all(point.bound is None for point in findings.points):
        return Section(title, ("There is none for this network.",), notes=findings.bound_notes)
    text = (
        "All constants kept, an upper bound of the generalization part with probability 0.95. It "
        "holds for every distribution of such sequences at once, and is far above what happens in "
        "one of them; how it falls with n is what it tells.",
    )
    figure = Figure(bound_chart(findings), name="bound")
    return Section(title, text, (figure,), notes=findings.bound_notes)

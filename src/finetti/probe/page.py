"""The page of a probe: what was found, drawn; one HTML file that works offline."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from finetti.display import Document, Figure, Section
from finetti.display.charts.bar_charts import stacked_bars
from finetti.display.charts.chart_theme import PALETTE
from finetti.display.pages.document import run_facts
from finetti.probe.charts import critical_chart, success_chart, training_chart
from finetti.probe.findings import REASONS, Findings
from finetti.probe.tasks.information import information_bounds

# Blue is what should happen, gray what nobody can help.
COLORS = dict(zip(REASONS, (PALETTE[0], "#B5B5B5", PALETTE[1], PALETTE[5]), strict=True))
DRAWN_AHEAD = 4  # times the longest context: as far as the laws are drawn


def probe_page(findings: Findings, document: Mapping[str, Any]) -> Document:
    """The page; ``document`` is the plain data of the run (command, time, provenance)."""
    counts = document["trials"]
    warnings = []
    if left := counts["all"] - counts["done"] - counts["failed"]:
        warnings.append(
            f"The probe is not complete: {left} of {counts['all']} trials have not run."
        )
    elif findings.partial:
        warnings.append(f"The probe is not complete: {findings.partial}.")
    if counts["failed"]:
        warnings.append(f"{counts['failed']} trials ended with an error and are not counted.")
    sections: list[Section] = []
    if findings.analysis is not None:
        sections += [_success(findings), _critical(findings)]
    if findings.transitions is not None:
        sections.append(_training(findings))
    if findings.reasons:
        sections.append(_reasons(findings))
    if findings.comparisons:
        sections.append(_comparison(findings))
    if findings.ratios:
        sections.append(_ratios(findings))
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


def _name(*words: str) -> str:
    """A name for a file.

    >>> _name("training", "./mine.py:Net, T = 40")
    'training-mine-py-Net-T-40'
    """
    return "-".join(re.findall(r"\w+", " ".join(words)))


def _what_was_done(findings: Findings) -> str:
    experiment = findings.experiment
    rule = experiment.rule(experiment.context_lengths[0])
    chance = rule.bit_probability
    bits = "fair coins" if chance == 0.5 else f"1 with probability {chance:g}"
    given = "at every step a fresh batch of" if experiment.online else "m"
    text = (
        f"A learner sees {given} labeled sequences of T bits, {bits}. The label is the "
        f"{experiment.title}, at positions that the learner does not know. "
    )
    if rule.label_noise:
        text += f"Each label is flipped with probability {rule.label_noise:g}. "
    if findings.searches is None:
        text += f"{experiment.trials} trials per point: each"
    else:
        sizes = experiment.n_samples
        text += (
            f"A search chose m between {sizes[0]} and {sizes[-1]}, with at most "
            f"{experiment.trials} trials for each learner and T; it ran {_trials_run(findings)}. "
            "Each trial"
        )
    wanted = experiment.fixed.get("success_accuracy", 0.99)
    return text + (
        " draws new positions, new samples and a new start. A trial succeeds if its accuracy on "
        f"fresh, clean samples exceeds {wanted:g}."
    )


def _trials_run(findings: Findings) -> str:
    """Of a search: how many trials have a result, by learner and context length."""
    done, experiment = findings.done, findings.experiment
    counts = Counter(zip(done["learner"], done["context_length"], strict=True) if len(done) else ())
    return ", ".join(
        f"{counts[learner, length]} ({learner}, T = {length})"
        for learner in experiment.learners
        for length in experiment.context_lengths
    )


def _success(findings: Findings) -> Section:
    assert findings.analysis is not None
    analysis, searched = findings.analysis, findings.searches is not None
    caption = (
        "Share of trials that found the rule, with 95 % intervals (Wilson), and the fitted curve "
        "(1 − λ)·logistic(a + b·log m). Dashed: the level of the critical sample size."
    )
    # A picture per learner: side by side they would not fit on a page.
    figures = [
        Figure(
            success_chart(replace(analysis, laws={key: law}), log_x=searched),
            name=_name("success", *key),
        )
        for key, law in analysis.laws.items()
    ]
    figures[-1] = replace(figures[-1], caption=caption)
    tables = (*([findings.search_table()] if searched else findings.success_tables()),)
    return Section("Success against the number of samples", figures=tuple(figures), tables=tables)


def _critical(findings: Findings) -> Section:
    assert findings.analysis is not None
    experiment = findings.experiment

    def least(context_length: int) -> float | None:
        return information_bounds(experiment.rule(context_length), findings.level).packing

    floor: Any = {length: each.packing for length, each in findings.bounds.items()}
    if not experiment.fixed.get("label_noise"):
        floor = least  # cheap enough to be drawn as a line
    longest = experiment.context_lengths[-1]
    several = len(experiment.context_lengths) > 1
    chart = critical_chart(
        findings.analysis,
        bounds={"no learner can do with fewer": floor},
        extrapolate_to=DRAWN_AHEAD * longest if several else None,
    )
    source = "bootstrap" if findings.searches is None else "posterior of the search"
    caption = (
        f"Samples at which success reaches {findings.level:g}, with 95 % intervals ({source}). "
        "Triangles: not reached with the samples that were tried, or already with the fewest; "
        "small ones at the end of a bar: the interval goes on there, beyond these samples. "
        "Bands: both laws, with the error of the trials carried through. Dashed: the information "
        "bound, below which no learner finds the rule as often."
    )
    tables = (findings.critical_table(), *findings.law_tables())
    notes = findings.notes
    title = "Critical sample size against the context length"
    return Section(
        title, (), (Figure(chart, caption, "critical"),), tuple(t for t in tables if t.rows), notes
    )


def _comparison(findings: Findings) -> Section:
    text = (
        "Both learners of a pair saw the same data. Differences are second minus first; in "
        "each cell intervals by the score test and the exact one, p-values by McNemar's exact test "
        "(adjusted by Holm's method over the cells); over all cells p-values by flipping the signs "
        "of whole seeds, and intervals, as those of critical sizes, by resampling whole seeds "
        "(where each seed has one pair, as in a cell).",
    )
    return Section("Learners compared", text, tables=tuple(findings.comparison_tables()))


def _ratios(findings: Findings) -> Section:
    text = (
        "Every search chose sample sizes of its own, so that success is not compared size by size. "
        "These are the critical sizes, second learner over first: above 1 the second needs more. "
        "95 % intervals from the posteriors of both searches, taken as independent.",
    )
    return Section("Learners compared", text, tables=(findings.ratio_table(),))


def _training(findings: Findings) -> Section:
    assert findings.transitions is not None
    traced = findings.traced
    online = findings.experiment.online
    figures = []
    for learner in findings.experiment.learners:
        for length in [None] if online else findings.experiment.context_lengths:
            chosen = traced.loc[traced["learner"] == learner]
            where = learner
            if length is not None:
                chosen = chosen.loc[chosen["context_length"] == length]
                where = f"{learner}, T = {length}"
            if len(chosen):
                chart = training_chart(chosen, "context_length" if online else "n_samples")
                caption = f"{where}: every run is a line."
                figures.append(Figure(chart, caption, _name("training", where)))
    notes = findings.transitions.__card__().notes
    tables = tuple(findings.transition_tables())
    return Section("Training curves", (), tuple(figures), tables, notes)


def _reasons(findings: Findings) -> Section:
    several = len(findings.experiment.learners) > 1
    online = findings.experiment.online
    records = [
        {
            "x": row["context_length"] if online else row["n_samples"],
            "trials": row[reason],
            "outcome": reason,
            "panel": ", ".join(
                [row["learner"]] * (several or online)
                + [f"T = {row['context_length']}"] * (not online)
            ),
        }
        for row in findings.reasons
        for reason in REASONS
        if row[reason]
    ]
    axis = "context length T" if online else "samples m"
    chart = stacked_bars(records, "x", "trials", "outcome", COLORS, "panel", x_title=axis)
    caption = (
        "solved: the rule was found. ambiguous: other positions explain the training samples as "
        "well, so that nobody could know (information). not fitted: the training labels are not "
        "given back (optimization). not generalized: they are, and the rule is still wrong "
        "(statistics)."
    )
    return Section("What became of the trials", figures=(Figure(chart, caption, "outcomes"),))

"""The sections of a probe's page: what was found, drawn."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from finetti.display import Figure, Section
from finetti.display.charts.bar_charts import stacked_bars
from finetti.display.charts.chart_theme import PALETTE
from finetti.probe.probe_charts import critical_chart, success_chart, training_chart
from finetti.probe.probe_result import REASONS, ProbeFindings
from finetti.probe.tasks.information import information_bounds

# Blue is what should happen, gray what nobody can help.
COLORS = dict(zip(REASONS, (PALETTE[0], "#B5B5B5", PALETTE[1], PALETTE[5]), strict=True))
DRAWN_FACTOR = 4  # times the longest context: as far as the laws are drawn


def probe_sections(found: ProbeFindings) -> list[Section]:
    """The sections of the page, of what there is."""
    sections: list[Section] = []
    if found.analysis is not None:
        sections += [_success(found), _critical(found)]
    if found.transitions is not None:
        sections.append(_training(found))
    if found.reasons:
        sections.append(_reasons(found))
    if found.comparisons:
        sections.append(_comparison(found))
    if found.ratios:
        sections.append(_ratios(found))
    return sections


def _name(*words: str) -> str:
    """A name for a file.

    >>> _name("training", "./mine.py:Net, T = 40")
    'training-mine-py-Net-T-40'
    """
    return "-".join(re.findall(r"\w+", " ".join(words)))


def describe_probe(found: ProbeFindings) -> str:
    """Describe the probe in a paragraph."""
    experiment = found.experiment
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
    if found.searches is None:
        text += f"{experiment.trials} trials per point: each"
    else:
        sizes = experiment.n_samples
        text += (
            f"A search chose m between {sizes[0]} and {sizes[-1]}, with at most "
            f"{experiment.trials} trials for each learner and T; it ran {_trials_run(found)}. "
            "Each trial"
        )
    wanted = experiment.success_accuracy
    return text + (
        " draws new positions, new samples and a new start. A trial succeeds if its accuracy on "
        f"fresh, clean samples exceeds {wanted:g}."
    )


def _trials_run(found: ProbeFindings) -> str:
    """Count the trials of a search that have a result, by learner and context length."""
    done, experiment = found.done, found.experiment
    counts = Counter(zip(done["learner"], done["context_length"], strict=True) if len(done) else ())
    return ", ".join(
        f"{counts[learner, length]} ({learner}, T = {length})"
        for learner in experiment.learners
        for length in experiment.context_lengths
    )


def _success(found: ProbeFindings) -> Section:
    assert found.analysis is not None
    analysis, searched = found.analysis, found.searches is not None
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
    tables = (*([found.search_table()] if searched else found.success_tables()),)
    return Section("Success against the number of samples", figures=tuple(figures), tables=tables)


def _critical(found: ProbeFindings) -> Section:
    assert found.analysis is not None
    experiment = found.experiment

    def least(context_length: int) -> float | None:
        return information_bounds(experiment.rule(context_length), found.level).packing

    floor: Any = {length: each.packing for length, each in found.bounds.items()}
    if not experiment.fixed.get("label_noise"):
        floor = least  # cheap enough to be drawn as a line
    longest = experiment.context_lengths[-1]
    several = len(experiment.context_lengths) > 1
    chart = critical_chart(
        found.analysis,
        bounds={"no learner can do with fewer": floor},
        extrapolate_to=DRAWN_FACTOR * longest if several else None,
    )
    source = "bootstrap" if found.searches is None else "posterior of the search"
    caption = (
        f"Samples at which success reaches {found.level:g}, with 95 % intervals ({source}). "
        "Triangles: not reached with the samples that were tried, or already with the fewest; "
        "small ones at the end of a bar: the interval goes on there, beyond these samples. "
        "Bands: both laws, with the error of the trials carried through. Dashed: the information "
        "bound, below which no learner finds the rule as often."
    )
    tables = (found.critical_table(), *found.law_tables())
    notes = found.notes
    title = "Critical sample size against the context length"
    return Section(
        title, (), (Figure(chart, caption, "critical"),), tuple(t for t in tables if t.rows), notes
    )


def _comparison(found: ProbeFindings) -> Section:
    text = (
        "Both learners of a pair saw the same data. Differences are second minus first; in "
        "each cell intervals by the score test and the exact one, p-values by McNemar's exact test "
        "(adjusted by Holm's method over the cells); over all cells p-values by flipping the signs "
        "of whole seeds, and intervals, as those of critical sizes, by resampling whole seeds "
        "(where each seed has one pair, as in a cell).",
    )
    return Section("Learners compared", text, tables=tuple(found.comparison_tables()))


def _ratios(found: ProbeFindings) -> Section:
    text = (
        "Every search chose sample sizes of its own, so that success is not compared size by size. "
        "These are the critical sizes, second learner over first: above 1 the second needs more. "
        "95 % intervals from the posteriors of both searches, taken as independent.",
    )
    return Section("Learners compared", text, tables=(found.ratio_table(),))


def _training(found: ProbeFindings) -> Section:
    assert found.transitions is not None
    traced = found.traced
    online = found.experiment.online
    figures = []
    for learner in found.experiment.learners:
        for length in [None] if online else found.experiment.context_lengths:
            chosen = traced.loc[traced["learner"] == learner]
            where = learner
            if length is not None:
                chosen = chosen.loc[chosen["context_length"] == length]
                where = f"{learner}, T = {length}"
            if len(chosen):
                chart = training_chart(chosen, "context_length" if online else "n_samples")
                caption = f"{where}: every run is a line."
                figures.append(Figure(chart, caption, _name("training", where)))
    notes = found.transitions.__card__().notes
    tables = tuple(found.transition_tables())
    return Section("Training curves", (), tuple(figures), tables, notes)


def _reasons(found: ProbeFindings) -> Section:
    several = len(found.experiment.learners) > 1
    online = found.experiment.online
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
        for row in found.reasons
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


class ProbeResult(ProbeFindings):
    """The result of a probe; it prints its tables and draws its page."""

    @property
    def summary(self) -> str:
        """Return the first paragraph of the page: what was done."""
        return describe_probe(self)

    def sections(self) -> list[Section]:
        """Return the content of the page."""
        return probe_sections(self)

"""The sections of the page of a study of the excess risk."""

from typing import Any

from finetti.display import Chart, Figure, Section, line_chart, waterfall
from finetti.risk.risk_result import REACH, SIGNS, RiskFindings, RiskPoint
from finetti.risk.risk_trial import RISK_PARTS

NAMES = {"excess": "excess risk", "baseline": "mean answer"}


def risk_sections(found: RiskFindings) -> list[Section]:
    """The sections of the page."""
    return [_against(found), _apart(found), _bound(found)] if found.points else []


def describe_study(found: RiskFindings) -> str:
    """Describe the study in a paragraph."""
    given = found.experiment.settings
    several = found.experiment.trials > 1
    times = f"{found.experiment.trials} times each" if several else "once"
    return (
        f"The network ({given.network}) is trained on n sequences of {given.context_length} tokens "
        f"of a world ({given.world}), {times}, by {given.iterations} steps from one start. In this "
        "world the best answer f*(X) = E[y|X] is known, so that the excess risk E‖f̂ − f*‖² is, "
        f"too. The minima over the class are the best of {given.restarts} starts."
    )


def _records(found: RiskFindings, names: tuple[str, ...]) -> list[dict[str, Any]]:
    records = []
    for point in found.points:
        for name in names:
            value, error = point.values[name]
            label = NAMES.get(name) or f"{name} {SIGNS[name].strip()}".strip()
            # Four bands over each other would hide what they are about.
            reach = REACH * error if name == "excess" else 0.0
            ends = {"low": value - reach, "high": value + reach}
            records.append({"n": point.n_samples, "risk": value, "part": label, **ends})
    return records


def curves_chart(found: RiskFindings) -> Chart:
    """The excess risk, its parts and the baseline against n, both axes logarithmic."""
    return line_chart(
        _records(found, ("excess", "baseline", *RISK_PARTS)),
        "n",
        "risk",
        color="part",
        low="low",
        high="high",
        reference=found.points[-1].noise or None,
        log_x=True,
        log_y=True,
        x_title="training sequences n",
        y_title="risk above that of E[y|X]",
    )


def point_chart(point: RiskPoint) -> Chart:
    """A waterfall from 0 by the three parts to the excess risk, at one n."""
    parts = [(f"{name} {SIGNS[name].strip()}".strip(), *point.values[name]) for name in RISK_PARTS]
    return waterfall(
        parts,
        ("excess risk", *point.values["excess"]),
        title=f"n = {point.n_samples}",
        y_title="risk above that of E[y|X]",
        reference=point.values["baseline"][0],
    )


def bound_chart(found: RiskFindings) -> Chart:
    """The generalization part and its bound against n."""
    records = [
        {"n": point.n_samples, "risk": value, "what": what}
        for point in found.points
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


def _against(found: RiskFindings) -> Section:
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
        figures=(Figure(curves_chart(found), caption, "risk"),),
        tables=tuple(found.tables()),
        notes=found.notes[: len(found.notes) - len(found.bound_notes)],
    )


def _apart(found: RiskFindings) -> Section:
    figures = [
        Figure(point_chart(point), name=f"parts-{point.n_samples}") for point in found.points
    ]
    text = (
        "The three parts add up to the excess risk exactly, (5.3). Bars at the ends: two standard "
        "errors. Dashed: the excess risk of the mean answer.",
    )
    return Section("Taken apart", text, tuple(figures))


def _bound(found: RiskFindings) -> Section:
    title = "The bound of Theorem 5.3"
    if all(point.bound is None for point in found.points):
        return Section(title, ("There is none for this network.",), notes=found.bound_notes)
    text = (
        "All constants kept, an upper bound of the generalization part with probability 0.95. It "
        "holds for every distribution of such sequences at once, and is far above what happens in "
        "one of them; how it falls with n is what it tells.",
    )
    figure = Figure(bound_chart(found), name="bound")
    return Section(title, text, (figure,), notes=found.bound_notes)


class RiskResult(RiskFindings):
    """The result of a study of the excess risk; it prints its tables and draws its page."""

    @property
    def summary(self) -> str:
        """Return the first paragraph of the page: what was done."""
        return describe_study(self)

    def sections(self) -> list[Section]:
        """Return the content of the page."""
        return risk_sections(self)

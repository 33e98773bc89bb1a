"""The page of a coherence run: the table, and defects and distance against the context length."""

from finetti.coherence.coherence_result import CoherenceFindings, CoherenceRow
from finetti.coherence.defects.defect import Defect
from finetti.core.provenance import software
from finetti.display import Chart, Document, Figure, Section, line_chart
from finetti.display.pages.document import software_facts

DEFECTS = {
    "order": "Largest change of an answer over orders of the context.",
    "martingale": "Largest change of an answer, on average over the predictor's own next value.",
    "two_step": "Largest difference between two steps and the same two in the other order.",
}
DISTANCES = {
    "nats": "mean KL from the exact predictive",
    "spread": "root mean squared distance to the exact predictive mean",
    "probability": "root mean squared distance to the exact probabilities",
}


def coherence_page(found: CoherenceFindings, command: str = "") -> Document:
    """The page; ``command`` makes it again."""
    facts = (("World", found.world.name), ("Seed", found.seed), *software_facts(software()))
    summary = (
        "De Finetti: predictions of exchangeable data are coherent if they come from one "
        "exchangeable law. Then they do not depend on the order of the context, do not move on "
        "average when the predictor sees its own next value, and two steps have the same law in "
        "either order. Each of these is measured; none alone is coherence.",
    )
    tables = tuple(found.table(length) for length in reversed(found.context_lengths))
    sections = [Section("Which are coherent", tables=tables, notes=found.notes)]
    figures = [
        Figure(chart, caption, name.replace("_", "-"))
        for name, caption in DEFECTS.items()
        if (chart := _defect_chart(found, name)) is not None
    ]
    if figures:
        sections.append(Section("Defects against the context length", figures=tuple(figures)))
    sections += [_distance(found, unit) for unit in found.units]
    return Document(
        found.headline,
        summary=summary,
        warnings=found.surprises,
        sections=tuple(sections),
        command=command,
        facts=facts,
    )


def _defect_chart(found: CoherenceFindings, name: str) -> Chart | None:
    """The largest defects of targets that have some; a median can be 0."""
    records = [
        {"tokens": row.context_length, "largest": defect.maximum, "target": row.name}
        for row, defect in _with_defect(found, name)
    ]
    if not records:
        return None
    units = dict.fromkeys(defect.unit for _, defect in _with_defect(found, name))
    return line_chart(
        records,
        "tokens",
        "largest",
        color="target",
        log_y=True,
        title=f"{name.replace('_', '-')} defect",
        x_title="tokens in the context",
        y_title=f"largest seen ({' or '.join(units)})",
    )


def _with_defect(found: CoherenceFindings, name: str) -> list[tuple[CoherenceRow, Defect]]:
    every = ((row, getattr(row, name)) for row in found.rows)
    return [(row, defect) for row, defect in every if defect is not None and not defect.holds()]


def _distance(found: CoherenceFindings, unit: str) -> Section:
    """Return the section on all targets whose distance is in this unit."""
    title = "Distance to the truth" + (f", {unit}" if len(found.units) > 1 else "")
    text = f"The {DISTANCES[unit]}, with 95 % intervals, in the world {found.world.name}."
    rows = [(row, row.distance) for row in found.rows if row.distance and row.distance.unit == unit]
    records = [
        {
            "tokens": row.context_length,
            "distance": each.value,
            "low": each.interval[0],
            "high": each.interval[1],
            "target": row.name,
        }
        for row, each in rows
        if not each.is_none
    ]
    exact = sorted({row.name for row, each in rows if each.is_none})
    if exact:
        text += f" Not drawn, where it is rounding error, or noise of draws: {', '.join(exact)}."
    if not records:
        return Section(title, (text,))
    chart = line_chart(
        records,
        "tokens",
        "distance",
        color="target",
        low="low",
        high="high",
        log_y=True,
        title="distance to the truth",
        x_title="tokens in the context",
        y_title=f"distance ({unit})",
    )
    name = "distance" if len(found.units) == 1 else f"distance-{unit}"
    return Section(title, figures=(Figure(chart, text, name),))


class CoherenceTable(CoherenceFindings):
    """Targets and their defects in one world; it prints itself and draws its page."""

    def page(self, command: str = "") -> Document:
        """Return the page: the table, and defects and distance against the context length."""
        return coherence_page(self, command)

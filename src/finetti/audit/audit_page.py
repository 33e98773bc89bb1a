"""The page of an audit: what bounds ask for, where capacity sits, and all that was measured."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from finetti.audit.audit_report import AuditFindings, CheckpointReport
from finetti.audit.capacity.capacity_result import RESOLUTION, TUNING, Capacity, CapacityRow
from finetti.audit.compare.weight_changes import CheckpointChanges
from finetti.audit.measures.measurements import TITLES, Audit
from finetti.core.provenance import software
from finetti.display import (
    Chart,
    Document,
    Figure,
    Section,
    heat_map,
    line_chart,
    ranked_bars,
    side_by_side,
    waterfall,
)
from finetti.display.card import Table
from finetti.display.pages.document import software_facts

_LOG_10 = math.log(10)
SMALL = "biases, norms"
LITTLE = 0.001  # of all: parts that a waterfall shows together
MOST_LAYERS = 9  # bars of a waterfall that have room; more are gathered
PAGE_TEXT = (
    "Every matrix of the checkpoint is measured, and the norms are put into theorems. Capacity is "
    "log N(ε), the logarithm of how many functions come within ε of all networks with these norms. "
    "A gap is the difference between training and test error of a loss in [0, 1]. All values "
    "contain the price of choosing the class after training (the post-hoc term)."
)


def audit_page(report: AuditFindings, command: str = "") -> Document:
    """Return the page of a report; ``command`` makes it again."""
    found = report.found
    several = len(found) > 1
    sections = [
        section
        for number, each in enumerate(found, start=1)
        for section in checkpoint_sections(each, f"{number}-" if several else "")
    ]
    more = [
        Section(title, tables=each.__card__().tables, notes=each.__card__().notes)
        for title, each in report.comparisons.items()
    ]
    return Document(
        headline(found[0]) if not several else f"{len(found)} checkpoints, audited",
        summary=(PAGE_TEXT, *(_said(each) for each in found)),
        sections=(*more, *sections),
        command=command,
        facts=(
            *(("Checkpoint", each.audit.name) for each in found),
            *software_facts(software()),
        ),
    )


def headline(found: CheckpointReport) -> str:
    """Return what was found, in one line."""
    name, capacity = short_name(found.audit.name), found.capacity
    tuned = next((row for row in capacity.rows if row.name == TUNING and row.needed), None)
    best = capacity.best
    if best is None or best.needed is None:
        return f"{name}: measured; the chain for real blocks does not cover it"
    text = f"{name} asks for {_words(best)} samples for a gap of {capacity.wanted:g}"
    if tuned is not None:
        return f"{text}, and its fine-tuning for {_words(tuned)}"
    return f"{text}, whatever the context length"


def short_name(name: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(name.rstrip("/").split("/")[-2:])


def _words(row: CapacityRow) -> str:
    """Return a number of samples as people say it."""
    assert row.needed is not None
    log10 = row.needed.log_value / _LOG_10
    if log10 < 6:
        return row.needed.text
    power = math.floor(log10)
    digits = str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{10 ** (log10 - power):.2g}·10{digits}"


def _said(found: CheckpointReport) -> str:
    audit, capacity = found.audit, found.capacity
    heads = audit.geometry
    text = (
        f"{short_name(audit.name)}: {audit.layout}, {len(audit.layers) * heads.repeats} layers of "
        f"{heads.heads} heads, width {heads.width}; {audit.n_parameters:,} numbers in "
        f"{len(audit.read)} parameters read, {len(audit.skipped)} skipped."
    )
    if capacity.log_lipschitz is not None and math.isfinite(capacity.log_lipschitz):
        grown = capacity.log_lipschitz / _LOG_10
        text += f" Between tokens and readout a deviation may grow by 10^{grown:.1f}"
        by_norms = _norms_of(audit) * -math.log10(audit.design.epsilon or 1.0) / 2
        if by_norms > grown / 2:
            text += f", of which 10^{by_norms:.4g} by the small ε under the root of its norms"
        text += ". Covers without T see only the logarithm."
    return text


def _norms_of(audit: Audit) -> int:
    """Return how many norms a token passes."""
    inside = sum(len(layer.gains) for layer in audit.layers) * audit.geometry.repeats
    return inside + sum(each.gain is not None for each in audit.outer.values())


def checkpoint_sections(found: CheckpointReport, prefix: str = "") -> list[Section]:
    """Return all sections of one checkpoint; ``prefix`` begins the names of its figures."""
    audit, capacity = found.audit, found.capacity
    name = f"{short_name(audit.name)}: " if prefix else ""
    made = [_samples(capacity), _where(capacity), _growth(capacity)]
    if found.changes is not None:
        made.append(_moved(found.changes, capacity))
    made += [_heads(audit), _spectra(audit), _norms(audit), _read(audit)]
    return [
        Section(
            name + each.title,
            each.text,
            tuple(Figure(f.chart, f.caption, prefix + f.name) for f in each.figures),
            each.tables,
            each.notes,
        )
        for each in made
        if each is not None
    ]


def _samples(capacity: Capacity) -> Section:
    rows = []
    for row in capacity.rows:
        if row.needed is None:
            continue
        group = "nearest class" if row.nearest else "this network"
        rows.append((row.name, row.needed.log_value / _LOG_10, _words(row), group))
    charts: tuple[Figure, ...] = ()
    if rows:
        chart = ranked_bars(rows, x_title="samples needed", logarithmic=True)
        caption = (
            f"Samples that each bound asks for, for a gap of {capacity.wanted:g} with probability "
            f"{1 - capacity.sample.delta:g}, at {capacity.sample.context_length} tokens."
        )
        charts = (Figure(chart, caption, "samples"),)
    broken = capacity.violations_table()
    notes = [f"{row.name} is {row_class(row)}" for row in capacity.rows if row.nearest]
    vacuous = capacity.vacuous_note()
    text = (vacuous,) if vacuous else ()
    tables = (capacity.table(), *(() if broken is None else (broken,)))
    return Section("How many samples", text, charts, tables, (*notes, *capacity.notes))


def row_class(row: CapacityRow) -> str:
    """Return which class the values are of."""
    return f"evaluated for the nearest class that it covers: {row.nearest}. It bounds no other."


def _where(capacity: Capacity) -> Section | None:
    row = capacity.best
    if row is None or row.covering is None or row.covering.log_value == -math.inf:
        return None
    total = math.exp(row.covering.log_value)
    unit, word = _unit(total)
    layers = capacity.shares(row, lambda layer, matrix: layer)
    parts = [(label, share * total / unit) for label, share in _gathered(layers)]
    fall = waterfall(
        parts, ("all", total / unit), y_title=f"log N at ε = {RESOLUTION:g}, in {word}nats"
    )
    caption = f"What each part adds to the capacity by the cover “{row.name}”."
    figures = [Figure(fall, caption, "waterfall"), _by_matrix(capacity, row, "capacity")]
    theirs = next((each for each in capacity.rows if each.nearest and capacity.largest(each)), None)
    if theirs is not None:
        figures.append(_by_matrix(capacity, theirs, "capacity-nearest"))
    return Section("Where the capacity sits", figures=tuple(figures))


def _unit(total: float) -> tuple[float, str]:
    for unit, word in ((1e9, "billion "), (1e6, "million "), (1e3, "thousand ")):
        if total >= unit:
            return unit, word
    return 1.0, ""


def _gathered(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """As many as there is room for: neighbors of many layers together, and what is little."""
    little = {label: share for label, share in shares.items() if share < LITTLE}
    items = [item for item in shares.items() if item[0] not in little]
    items += [("others", sum(little.values()))] if little else []
    layers = [item for item in items if item[0].startswith("layer ")]
    if len(items) <= MOST_LAYERS:
        return items
    others = len(items) - len(layers)
    step = math.ceil(len(layers) / max(1, MOST_LAYERS - others))
    found, waiting = [], []
    for item in items:
        if not item[0].startswith("layer "):
            found.append(item)
            continue
        waiting.append(item)
        if len(waiting) == step or item == layers[-1]:
            first, last = (each[0].removeprefix("layer ") for each in (waiting[0], waiting[-1]))
            label = f"layers {first}–{last}" if first != last else f"layer {first}"
            found.append((label, sum(each[1] for each in waiting)))
            waiting = []
    return found


def _by_matrix(capacity: Capacity, row: CapacityRow, name: str) -> Figure:
    """Layers × matrices; what is beside the layers is in the waterfall."""
    cells = capacity.shares(row, lambda layer, matrix: (layer, _matrix(matrix)))
    cells = {place: share for place, share in cells.items() if place[0].startswith("layer ")}
    columns = list(dict.fromkeys(matrix for _, matrix in cells if matrix != SMALL))
    columns += [SMALL] if any(matrix == SMALL for _, matrix in cells) else []
    records = [
        {"matrix": matrix, "layer": layer, "share": 100 * cells.get((layer, matrix), 0.0)}
        for layer in dict.fromkeys(layer for layer, _ in cells)
        for matrix in columns
    ]
    for record in records:
        record["layer"] = record["layer"].removeprefix("layer ")
    chart = heat_map(records, "matrix", "layer", "share", number=".2~f")
    of = "the capacity of the nearest class" if row.nearest else "the capacity"
    return Figure(chart, f"Percent of {of} by layer and matrix: {row.name}.", name)


def _matrix(matrix: str) -> str:
    """Heads together, and what is small in one column."""
    small = matrix.startswith("bias of") or matrix in ("gain", "shift")
    return SMALL if small else matrix.partition(", head")[0]


def _growth(capacity: Capacity) -> Section | None:
    rows = [row for row in capacity.rows if row.growth and math.isfinite(row.growth[0])]
    if not rows:
        return None
    shown = [row for row in rows if row.nearest or row is capacity.best]
    records = [
        {"length": length, "times": math.exp(value - row.growth[0]), "bound": row.label}
        for row in shown
        for length, value in zip(capacity.lengths, row.growth, strict=True)
    ]
    chart = line_chart(
        records,
        "length",
        "times",
        color="bound",
        log_x=True,
        x_title="context length T",
        y_title=f"log N, in units of that at T = {capacity.lengths[0]}",
    )
    text = (
        "Theorem A.17 covers every matrix on all n(T + 1) tokens of a sample, and grows with "
        "log T. Covers in spectral norm hold for all inputs at once: T is not in them."
    )
    figure = Figure(chart, text, "growth")
    tables = (capacity.growth_table(),)
    return Section("Growth with the context length", figures=(figure,), tables=tables)


def _heads(audit: Audit) -> Section:
    charts = []
    for kind in ("query_key", "value_output"):
        records = [
            {"layer": layer.label, "head": head.number, "norm": getattr(head, kind).spectral}
            for layer in audit.layers
            for head in layer.heads
        ]
        chart = heat_map(records, "head", "layer", "norm", TITLES[kind], number=".2~f")
        charts.append(Figure(chart, f"Spectral norm of {TITLES[kind]}.", f"heads-{kind}"))
    notes = (audit.note,) if audit.note else ()
    return Section("Heads", figures=tuple(charts), notes=notes)


def _spectra(audit: Audit) -> Section:
    charts = [_spectrum(audit, kind) for kind in audit.kinds if kind != "output"]
    pairs = [charts[i : i + 2] for i in range(0, len(charts), 2)]
    figures = [
        Figure(side_by_side(*pair), "", f"spectra-{number}") for number, pair in enumerate(pairs, 1)
    ]
    text = (
        "Singular values as parts of the largest, from first to last; of heads, those of the head "
        "with the largest norm. A line that falls fast is a matrix of low effective rank.",
    )
    return Section("Spectra", text, tuple(figures))


def _spectrum(audit: Audit, kind: str) -> Chart:
    def of(layer: Any) -> Any:
        if kind in ("query_key", "value_output"):
            return getattr(layer.largest_head(kind), kind)
        return layer.matrices[kind]

    chosen = audit.layers if len(audit.layers) <= 8 else audit.layers[:: len(audit.layers) // 8 + 1]
    records = []
    for layer in chosen:
        values = of(layer).spectrum
        last = max(1, len(values) - 1)
        records += [
            {"at": i / last, "value": value / values[0] if values[0] else 0.0, "layer": layer.label}
            for i, value in enumerate(values)
        ]
    return line_chart(
        records,
        "at",
        "value",
        color="layer",
        title=TITLES[kind],
        x_title="place among the singular values",
        y_title="σ / σ₁",
    )


def _moved(changes: CheckpointChanges, capacity: Capacity) -> Section:
    records = [
        {"layer": each.layer, "matrix": each.role, "percent": 100 * (each.relative or 0.0)}
        for each in changes.matrices
    ]
    chart = heat_map(records, "matrix", "layer", "percent", number=".2~f")
    caption = "‖Δ‖_F/‖W₀‖_F in percent, by layer and matrix."
    card = changes.__card__()
    text = [f"{len(changes.moved)} of {len(changes.matrices)} matrices moved since {changes.base}."]
    text += [changes.note] if changes.note else []
    tuned = next((row for row in capacity.rows if row.name == TUNING), None)
    best = capacity.best
    if tuned is not None and tuned.needed is not None and best is not None:
        text.append(
            f"The class base + Δ, in which only the Δ are covered, asks for {_words(tuned)} "
            f"samples; the whole network for {_words(best)}."
        )
    notes = ("Which weights are trained counts as decided before training.",)
    return Section(
        "What the fine-tuning moved",
        tuple(text),
        (Figure(chart, caption, "moved"),),
        card.tables,
        notes,
    )


def _norms(audit: Audit) -> Section:
    card = audit.__card__()
    return Section("Norms", tables=card.tables, notes=card.notes[-1:])


def _read(audit: Audit) -> Section:
    tables = [
        Table("Skipped", ("parameter", "why"), tuple(audit.skipped.items())),
        Table(
            "Embeddings",
            ("table", "rows", "columns", "longest row", "Frobenius"),
            tuple((name, *values.values()) for name, values in audit.embeddings.items()),
        ),
        Table("Read", ("parameters", "how many"), tuple(_counts(audit))),
    ]
    text = [f"{len(audit.read)} parameters were read, {len(audit.skipped)} were not."]
    if audit.tied:
        text.append(f"Tied, counted once: {', '.join(audit.tied)}.")
    return Section("What was read", tuple(text), tables=tuple(each for each in tables if each.rows))


def _counts(audit: Audit) -> Iterator[tuple[str, int]]:
    """Parameters of layers by their names without the layer's number."""
    found: dict[str, int] = {}
    for name in audit.read:
        plain = ".".join("*" if part.isdigit() else part for part in name.split("."))
        found[plain] = found.get(plain, 0) + 1
    yield from found.items()


class AuditReport(AuditFindings):
    """Checkpoints with all that is known of them; it prints its tables and draws its page."""

    def page(self, command: str = "") -> Document:
        """Return the page: what bounds ask for, where capacity sits, and all that was measured."""
        return audit_page(self, command)

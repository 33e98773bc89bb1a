"""The page of a probe: what was found, drawn; one HTML file that works offline."""

from collections.abc import Mapping
from typing import Any

from finetti.probe.findings import REASONS, Findings
from finetti.show import Document, Figure, Section, format_duration
from finetti.show.bars import stacked_bars

COLORS = dict(zip(REASONS, ("#009E73", "#5B5B5B", "#D55E00", "#E69F00"), strict=True))


def probe_page(findings: Findings, document: Mapping[str, Any]) -> Document:
    """The page; ``document`` is the plain data of the run."""
    made_by = document["provenance"]
    facts = (
        ("Computing time", format_duration(document["seconds"])),
        ("Finished", (document["finished"] or "")[:16].replace("T", " ")),
        ("Versions", f"Finetti {made_by['finetti']}, JAX {made_by['jax']}"),
        ("Machine", ", ".join([*made_by["device"], made_by["platform"]])),
    )
    return Document(
        findings.headline,
        sections=(Section("x", tables=tuple(findings.tables())), _reasons(findings)),
        command=document["command"],
        facts=facts,
    )


def _reasons(findings: Findings) -> Section:
    several = len(findings.experiment.learners) > 1
    records = [
        {
            "samples m": row["n_samples"],
            "trials": row[reason],
            "outcome": reason,
            "panel": f"T = {row['context_length']}" + f", {row['learner']}" * several,
        }
        for row in findings.reasons
        for reason in REASONS
        if row[reason]
    ]
    chart = stacked_bars(records, "samples m", "trials", "outcome", COLORS, "panel")
    return Section("Why trials failed", figures=(Figure(chart),))

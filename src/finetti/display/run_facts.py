"""What stands at the end of a page about a run: how many trials, how long, with what."""

from collections.abc import Mapping
from typing import Any

from finetti.display.numbers import format_duration

VERSIONS = {"Finetti": "finetti", "JAX": "jax", "NumPy": "numpy", "Python": "python"}


def run_facts(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Names and values for `Document.facts`, from the plain data of a run.

    Args:
        document: with ``trials`` (all, done), ``seconds``, ``finished`` and ``provenance``.
    """
    counts, made_by = document["trials"], document["provenance"]
    return (
        ("Trials", f"{counts['done']} of {counts['all']}"),
        ("Computing time", format_duration(document["seconds"])),
        ("Finished", (document["finished"] or "–")[:16].replace("T", " ") + " UTC"),
        ("Versions", ", ".join(f"{name} {made_by[key]}" for name, key in VERSIONS.items())),
        ("Commit", ", ".join(made_by["commit"]) or "–"),
        ("Machine", ", ".join([*made_by["device"], made_by["platform"]])),
    )

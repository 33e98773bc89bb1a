"""What the templates of the report read, gathered from the plain data of a run.

Documents of older versions lack some of the fields; the page then leaves out what they held.
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from finetti.claims.results import time_words, verdict_sign, verdict_words
from finetti.core.errors import InputError
from finetti.show.card import Table
from finetti.show.frame import Drawn, table_parts
from finetti.show.gauge import Gauge
from finetti.show.mathml import to_breakable_html
from finetti.show.numbers import format_interval, format_number

KINDS = ("theorem", "figure", "erratum", "control")
CHANGES = ("flipped", "new", "moved")
NUMBER = r"-?(?:\d[\d.]*(?:e-?\d+)?|∞)"
RULES = {
    "≤": re.compile(rf"≤ (?P<high>{NUMBER})"),
    "≥": re.compile(rf"≥ (?P<low>{NUMBER})"),
    "in": re.compile(rf"in \[(?P<low>{NUMBER}), (?P<high>{NUMBER})\]"),
}
Plain = Mapping[str, Any]


def number(value: Any) -> float:
    """Numbers as JSON holds them; NaN and infinity are words there."""
    return value if isinstance(value, int | float) else float(str(value).replace("∞", "inf"))


def _ends(pair: Any) -> tuple[float, float] | None:
    return (number(pair[0]), number(pair[1])) if pair else None


def written(measurement: Plain) -> str:
    """A measurement as people read it: the value, its interval, its unit."""
    text = format_interval(number(measurement["value"]), _ends(measurement["interval"]))
    return f"{text} {measurement.get('unit', '')}".rstrip()


def gauge(measurement: Plain) -> str:
    """The drawing of a measurement against its rule; empty where the rule is no range."""
    limits = _ends(measurement.get("limits")) or _read_rule(measurement["rule"])
    if limits is None:
        return ""
    value, interval = number(measurement["value"]), _ends(measurement["interval"])
    return Gauge(value, *limits, measurement["holds"], interval).svg


def _read_rule(rule: str) -> tuple[float, float] | None:
    """The range in the words of a rule, for documents that do not hold it as numbers."""
    pattern = RULES.get(rule.partition(" ")[0])
    found = pattern.fullmatch(rule) if pattern else None
    if found is None:
        return None
    ends = {"low": -math.inf, "high": math.inf} | {
        k: number(v) for k, v in found.groupdict().items()
    }
    return ends["low"], ends["high"]


def formula(text: str) -> dict[str, str] | None:
    """A formula as HTML with MathML, or as it is written where it cannot be read."""
    if not text:
        return None
    try:
        return {"source": text, "html": to_breakable_html(text)}
    except InputError:
        return {"source": text, "html": ""}


def kind_of(result: Plain) -> str:
    """Theorem, figure or erratum."""
    return result.get("kind") or ("erratum" if result["erratum"] else "theorem")


def shown_result(result: Plain, drawn: Drawn, changes: Mapping[str, list[str]]) -> dict[str, Any]:
    """One claim as its template needs it."""
    measured = [shown_measurement(each) for each in result["measurements"]]
    derived = [shown_measurement(each) for each in result["derived"]]
    decisive = [each for each in derived + measured if each["said"] in result["reason"]]
    ran = {each["name"]: each for each in result.get("control_results", ())}
    return {
        **result,
        "sign": verdict_sign(result),
        "said": verdict_words(result),
        "kind": kind_of(result),
        "kinds": [kind_of(result), *(["control"] if result["controls"] else [])],
        "changed": changes.get(result["id"], []),
        "formula": formula(result.get("formula", "")),
        "printed": formula(result.get("printed", "")),
        "measurements": measured,
        "derived": derived,
        "decisive": decisive[0] if decisive else None,
        "controls": [{"name": name, **ran.get(name, {"red": None})} for name in result["controls"]],
        "charts": [drawn.add(chart, result["title"]) for chart in result["charts"]],
        "tables": [table_parts(Table(**table)) for table in result["tables"]],
    }


def shown_measurement(measurement: Plain) -> dict[str, Any]:
    """One number with its drawing."""
    text = written(measurement)
    said = f"{measurement['name']}: {text}"
    return {**measurement, "written": text, "said": said, "gauge": gauge(measurement)}


def changes_by_claim(changes: Plain | None) -> dict[str, list[str]]:
    """What changed about each claim: flipped, new, moved."""
    found: dict[str, list[str]] = {}
    for name in CHANGES:
        for each in (changes or {}).get(name, ()):
            words = found.setdefault(each if isinstance(each, str) else each["id"], [])
            if name not in words:
                words.append(name)
    return found


def shown_changes(changes: Plain | None) -> dict[str, Any] | None:
    """The comparison with an older run, its numbers written out."""
    if changes is None:
        return None
    moved = [
        {**each, "before": written(each["old"]), "now": written(each["new"])}
        for each in changes["moved"]
    ]
    count = sum(len(changes[name]) for name in (*CHANGES, "removed"))
    return {**changes, "moved": moved, "count": count, "made": made(changes["against"])}


def made(provenance: Plain) -> str:
    """When a run was made."""
    return f"{datetime.fromisoformat(provenance['time']):%Y-%m-%d %H:%M} UTC"


def shown_papers(papers: Mapping[str, Plain], results: Iterable[Plain]) -> list[dict[str, Any]]:
    """The papers that have claims in the run, each with them and its row of the matrix."""
    shown = []
    for letter, paper in papers.items():
        own = [result for result in results if result["paper"] == letter]
        if own:
            good = sum(result["as_expected"] for result in own)
            shown.append(
                {**paper, "letter": letter, "results": own, "as_expected": good, **_row(own)}
            )
    return shown


def _row(results: list[Plain]) -> dict[str, Any]:
    """How many claims of each kind there are, how many as expected; controls by what they did."""
    cells = {}
    for kind in KINDS[:-1]:
        own = [result["as_expected"] for result in results if result["kind"] == kind]
        cells[kind] = {"all": len(own), "good": sum(own)}
    red = [control["red"] for result in results for control in result["controls"]]
    ran = [each for each in red if each is not None]
    cells["control"] = {"all": len(red), "ran": len(ran), "good": sum(ran)}
    return {"cells": cells}


def sentence(run: Plain) -> tuple[str, str]:
    """The verdict of the whole run in one sentence, whose first words are its title."""
    by, good, finished = run["provenance"], run["as_expected"], run["finished"]
    chance = run.get("false_alarm", sum(each["false_alarm"] for each in run["results"]))
    title = f"{good} of {finished} verdicts as expected"
    machine = f"Finetti {by['finetti']} on {by['device']} ({by['platform']})"
    at_most = f"in at most {format_number(100 * chance, 2)} % of such runs" if chance else "in none"
    rest = (
        f"at scale {by['scale']} and seed {by['seed']}, with {machine}, in {time_words(run)}; "
        f"were every claim true, chance alone would turn any of them red {at_most}."
    )
    return title, rest

"""A run as one document of plain data: what ``--json`` prints and what a report is made of.

On top: ``format``, ``complete`` (whether all ``selected`` claims are ``finished``),
``as_expected`` (how many), ``false_alarm`` (the chance that any true claim of the run is red),
``seconds`` (computed in this run, controls included), ``reused`` (how many ``checks`` of
``all_checks``, claims and controls, are of earlier runs, and the ``seconds`` they took then),
``provenance`` (versions, device, scale, seed, time),
``papers`` (letter → title, citation, arxiv, bibtex, and which ``text`` of it was read),
``controls`` (how many were ``run``, and how many of them turned ``red``), ``changes``
(`compare_runs`, or null), ``results``. Of each result:

- the claim (`Claim.to_dict`): ``id``, ``title``, ``statement``, ``kind`` (theorem, figure,
  erratum), ``paper``, ``label``, ``citation``, ``bibtex``, ``formula`` and ``printed`` (see
  `Claim`), ``measured``, ``pass_rule``, ``checked_by``, ``code`` (file, function, source),
  ``command``, ``erratum``, ``expected``, ``false_alarm``, ``check`` (identity, tight-instance,
  simulation, experiment, rests-on), ``rests_on`` (ids), ``controls`` (names), ``rejects`` (what
  its rules notice by themselves), ``red_for`` (all that turns it red);
- what came out: ``verdict``, ``as_expected``, ``reason``, ``seconds``, ``seed``, ``fresh`` (false:
  evidence of an earlier run of the same code), ``error``;
- the evidence: ``measurements`` and ``derived``, each with ``name``, ``value``, ``interval``
  ([low, high] or null), ``limits`` ([low, high] of the rule or null), ``rule``, ``holds``,
  ``unit``, ``reason``, ``text`` (value, interval and unit as people read them); ``decisive``
  (``form`` and ``index`` of the measurement that decided, or null); ``note``, ``charts``,
  ``tables``;
- ``control_results``, for each control that was run: ``name``, ``red``, ``reason``, ``seconds``,
  ``fresh``, ``error``.

Numbers that JSON does not have are the words NaN, Infinity and -Infinity.
"""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.claims.bibliography import PAPERS
from finetti.claims.claim import Context
from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, read_json
from finetti.core.provenance import jax_device, software
from finetti.display.formatting import format_duration, format_interval, format_number

if TYPE_CHECKING:
    from finetti.claims.run import ClaimResult  # which loads NumPy and the studies

RESULTS_FORMAT = "finetti-results-1"
MAX_RESULTS = 512 * MEGABYTE  # a run of all claims has some ten
RELATIVE_MOVE = 0.01  # of the limit, for a number without an interval


def provenance(context: Context) -> dict[str, Any]:
    """What another person needs to repeat the run; nothing that tells whose machine it was."""
    import jax  # noqa: F401 - loaded, so that its device is known

    return {
        **software(),
        "device": jax_device(),
        "scale": context.scale.value,
        "seed": context.seed,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def results_document(
    results: "Iterable[ClaimResult]",
    made_by: dict[str, Any],
    selected: int,
    against: Mapping[str, Any] | None = None,
    command: str = "",
) -> dict[str, Any]:
    """The whole run as plain data; ``against`` is the document of an older run, ``command`` what
    makes this one again."""
    results = list(results)
    controls = [control for result in results for control in result.controls]
    checks = [*results, *(control.result for control in controls)]
    document = {
        "format": RESULTS_FORMAT,
        "complete": len(results) == selected,
        "selected": selected,
        "finished": len(results),
        "as_expected": sum(result.as_expected for result in results),
        "false_alarm": sum(result.claim.false_alarm for result in results),
        "seconds": _seconds(each for each in checks if each.fresh),
        "reused": {
            "checks": sum(not each.fresh for each in checks),
            "all_checks": len(checks),
            "seconds": _seconds(each for each in checks if not each.fresh),
        },
        "provenance": made_by,
        "command": command,
        "papers": {
            paper.letter: {
                "title": paper.title,
                "citation": paper.cite(),
                "arxiv": paper.arxiv,
                "text": paper.text,
                "bibtex": paper.bibtex,
            }
            for paper in PAPERS.values()
        },
        "controls": {"run": len(controls), "red": sum(control.red for control in controls)},
        "changes": None,
        "results": [result.to_dict() for result in results],
    }
    if against is not None:
        document["changes"] = compare_runs(against, document)
    return document


def _seconds(checks: "Iterable[ClaimResult]") -> float:
    return round(sum(each.seconds for each in checks), 3)


def read_results(path: str | Path) -> dict[str, Any]:
    """The document of an earlier run, from its results.json."""
    found = read_json(Path(path), MAX_RESULTS)
    if found.get("format") != RESULTS_FORMAT or not _can_be_compared(found):
        raise InputError(
            f"{path} does not hold the results of a reproduction. Give the results.json that "
            "`finetti reproduce` wrote, or the JSON document that it printed."
        )
    return found


def _can_be_compared(found: Mapping[str, Any]) -> bool:
    """Whether all that a comparison reads and shows is there, and of the right type."""
    try:
        datetime.fromisoformat(found["provenance"]["time"])
        json.dumps(compare_runs(found, found), allow_nan=False)
        json.dumps(found["results"], allow_nan=False)  # they become part of the new document
        return all(isinstance(each[n], str) for each in found["results"] for n in ("id", "verdict"))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return False


def compare_runs(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What changed between two documents, as plain data.

    ``flipped`` verdicts (id, title, old, new, as_expected), claims ``new`` and ``removed`` (ids; a
    claim that only one of the runs selected counts, too), numbers that ``moved`` (id, name, old,
    new, each with value, interval and text), and the ``against``: the provenance of the old run.
    A number has moved if its intervals are disjoint, or if only one of the two is a number.
    Without intervals it is compared only where both runs drew alike (scale and seed): it has moved
    by more than 1 % of its limit, or obeys where it did not.
    """
    before = {each["id"]: each for each in old["results"]}
    after = {each["id"]: each for each in new["results"]}
    common = [each for each in after if each in before]
    alike = all(old["provenance"].get(n) == new["provenance"].get(n) for n in ("scale", "seed"))
    moved = []
    for each in common:
        known = _numbers(before[each])
        for name, now in _numbers(after[each]).items():
            then = known.get(name)
            if then is not None and _has_moved(then, now, alike):
                pair = {"old": _number(then), "new": _number(now)}
                moved.append({"id": each, "name": now["name"], **pair})
    return {
        "against": dict(old["provenance"]),
        "flipped": [
            {
                "id": each,
                "title": after[each]["title"],
                "old": before[each]["verdict"],
                "new": after[each]["verdict"],
                "as_expected": after[each]["as_expected"],
            }
            for each in common
            if before[each]["verdict"] != after[each]["verdict"]
        ],
        "new": [each for each in after if each not in before],
        "removed": [each for each in before if each not in after],
        "moved": moved,
    }


def _numbers(result: Mapping[str, Any]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """By form and name, the first and the second of one name apart."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for form in ("measurements", "derived"):
        names = [each["name"] for each in result[form]]
        for index, each in enumerate(result[form]):
            found[form, each["name"], names[:index].count(each["name"])] = each
    return found


def _number(measurement: Mapping[str, Any]) -> dict[str, Any]:
    """The number as data, and as people read it."""
    value, ends = float(measurement["value"]), measurement["interval"]
    interval = (float(ends[0]), float(ends[1])) if ends else None
    text = f"{format_interval(value, interval)} {measurement.get('unit', '')}".rstrip()
    return {"value": measurement["value"], "interval": ends, "text": text}


def _has_moved(then: Mapping[str, Any], now: Mapping[str, Any], alike: bool) -> bool:
    unknown = [
        [math.isnan(float(x)) for x in (each["value"], *(each["interval"] or ()))]
        for each in (then, now)
    ]
    if any(map(any, unknown)):
        return any(unknown[0]) != any(unknown[1])
    if then["interval"] or now["interval"]:
        (low, high), (first, last) = (
            map(float, each["interval"] or (each["value"],) * 2) for each in (then, now)
        )
        return not (first <= high and low <= last)
    if not alike:
        return False
    if then["holds"] != now["holds"]:
        return True
    ends = [abs(float(end)) for end in now["limits"] or ()]
    scale = max((end for end in ends if end < float("inf")), default=0.0)
    scale = scale or abs(float(then["value"]))
    return abs(float(now["value"]) - float(then["value"])) > RELATIVE_MOVE * scale


def verdict_sign(result: Mapping[str, Any]) -> str:
    """Whether a verdict is as expected, whichever it is: ✓ yes, ? undecided, ! no."""
    if result["as_expected"]:
        return "✓"
    return "?" if result["verdict"] == "inconclusive" else "!"


def verdict_words(result: Mapping[str, Any]) -> str:
    """The verdict, and the expected one where that is not to hold.

    >>> verdict_words({"verdict": "fails", "expected": "fails", "as_expected": True})
    'fails, as expected'
    """
    if not result["as_expected"]:
        return f"{result['verdict']}, expected: {result['expected']}"
    return result["verdict"] + (", as expected" if result["expected"] != "holds" else "")


def run_sentence(run: Mapping[str, Any]) -> tuple[str, str]:
    """The verdict of the whole run in one sentence, whose first words are its title."""
    by, chance = run["provenance"], run["false_alarm"]
    title = f"{run['as_expected']} of {run['finished']} verdicts as expected"
    machine = f"Finetti {by['finetti']} on {by['device']} ({by['platform']})"
    rest = f"at scale {by['scale']} and seed {by['seed']}, with {machine}, in {time_words(run)}; "
    if not chance:
        return title, f"{rest}nothing was left to chance."
    share = f"in at most {format_number(100 * chance, 2)} % of such runs"
    return title, f"{rest}were every claim true, chance alone would turn any of them red {share}."


def time_words(run: Mapping[str, Any]) -> str:
    """What a run computed itself, and what it took from earlier runs.

    >>> reused = {"checks": 5, "all_checks": 6, "seconds": 125.0}
    >>> time_words({"seconds": 3.0, "reused": reused})
    '3.0 s of computing time, 5 of 6 checks reused: 2 min 05 s in earlier runs'
    """
    text = f"{format_duration(run['seconds'])} of computing time"
    reused = run["reused"]
    if not reused["checks"]:
        return text
    count, total = reused["checks"], reused["all_checks"]
    text = "no computing time" if count == total else text
    before = format_duration(reused["seconds"])
    return f"{text}, {count} of {total} checks reused: {before} in earlier runs"

"""How verdicts and times are said, on the terminal and on the page alike, from plain data."""

from collections.abc import Mapping
from typing import Any

from finetti.show.numbers import format_duration


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


def time_words(run: Mapping[str, Any]) -> str:
    """What a run computed itself, and what it took from earlier runs.

    >>> time_words({"seconds": 3.0})
    '3.0 s of computing time'
    >>> reused = {"checks": 5, "all_checks": 6, "seconds": 125.0}
    >>> time_words({"seconds": 3.0, "reused": reused})
    '3.0 s of computing time, 5 of 6 checks reused: 2 min 05 s in earlier runs'
    """
    text = f"{format_duration(run['seconds'])} of computing time"
    reused = run.get("reused") or {"checks": 0}  # older documents do not tell
    if not reused["checks"]:
        return text
    count, total = reused["checks"], reused["all_checks"]
    text = "no computing time" if count == total else text
    before = format_duration(reused["seconds"])
    return f"{text}, {count} of {total} checks reused: {before} in earlier runs"

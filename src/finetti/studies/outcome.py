"""What came out of a trial: plain numbers, or a failure with its reason."""

import json
import math
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from finetti.studies.canonical import plain, unicode_text

DONE, FAILED = "done", "failed"
MAX_ERROR_CHARACTERS = 8000
MAX_METRIC_CHARACTERS = 64_000


@dataclass(frozen=True)
class TrialResult:
    """What a kind returns for a trial: its metrics, and small lists recorded on the way.

    Args:
        metrics: name → number, text or truth value. A NaN makes the trial a failure.
        trace: name → list of numbers.
    """

    metrics: Mapping[str, Any]
    trace: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """A finished trial as it is stored; never changed once ``state`` is done."""

    trial_id: str
    state: str
    metrics: dict[str, Any] = field(default_factory=dict)
    trace: dict[str, Any] | None = None
    error: str | None = None
    traceback: str | None = None
    seconds: float = 0.0
    finished: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)


def failed(trial_id: str, error: str, details: str | None = None, seconds: float = 0.0) -> Outcome:
    """A failure as an outcome; the end of a long traceback says most."""
    told = {
        "error": unicode_text(error)[:MAX_ERROR_CHARACTERS],
        "traceback": unicode_text(details)[-MAX_ERROR_CHARACTERS:] if details else None,
    }
    return Outcome(trial_id, FAILED, **told, seconds=seconds, finished=time.time())


def failed_by(trial_id: str, error: BaseException, seconds: float = 0.0) -> Outcome:
    """The outcome of a trial that raised."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return failed(trial_id, text, "".join(traceback.format_exception(error)), seconds)


def outcome_of(trial_id: str, returned: Any, seconds: float) -> Outcome:
    """What a kind returned, checked: plain metrics, none of them NaN.

    >>> outcome_of("ab", {"loss": 0.5}, 0.0).metrics
    {'loss': 0.5}
    >>> outcome_of("ab", {"loss": float("nan")}, 0.0).error
    'The metric `loss` is not a number (NaN).'
    >>> print(outcome_of("ab", {1: 0.5}, 0.0).error)
    A metric has the name 1, which is of type int. Names are text, as those of columns are: write \
'1' or a word.

    Raises InputError for what cannot be stored: text that is not Unicode, numbers without end.
    """
    if isinstance(returned, BaseException):
        return failed_by(trial_id, returned, seconds)
    result = returned if isinstance(returned, TrialResult) else TrialResult(returned)
    try:
        metrics, trace = _metrics(result.metrics), _trace(result.trace)
    except _UnusableError as error:
        return failed(trial_id, str(error), seconds=seconds)
    # As other processes and the store know it: an enumeration that is an int is that int.
    told = json.loads(json.dumps([metrics, trace or None]))
    return Outcome(trial_id, DONE, *told, seconds=seconds, finished=time.time())


class _UnusableError(Exception):
    """What a trial returned cannot be a row of a table."""


def _metrics(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        advice = "Return a dictionary of metrics, or a TrialResult."
        raise _UnusableError(f"The trial returned {type(given).__name__}. {advice}")
    _check_names(given, "metric")
    metrics: dict[str, Any] = {}
    for name, value in given.items():
        if hasattr(value, "item") and getattr(value, "size", None) == 1:
            value = value.item()
        wrong = None
        if not isinstance(value, bool | int | float | str):
            advice = "Metrics are int, float, str or bool; lists belong in the trace."
            wrong = f"of type {type(value).__name__}. {advice}"
        elif isinstance(value, float) and math.isnan(value):
            wrong = "not a number (NaN)."
        elif isinstance(value, str) and len(value) > MAX_METRIC_CHARACTERS:
            wrong = f"a text of more than {MAX_METRIC_CHARACTERS} characters."
        if wrong:
            raise _UnusableError(f"The metric `{name}` is {wrong}")
        metrics[plain(name, "metrics")] = _listed(value, name)
    if not metrics:
        raise _UnusableError("The trial returned no metrics. Return at least one number.")
    return metrics


def _trace(given: Any) -> dict[str, Any]:
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        advice = "Give a dictionary of lists, one name for each."
        raise _UnusableError(f"The trace of the trial is of type {type(given).__name__}. {advice}")
    _check_names(given, "part of the trace")
    return {plain(k, "trace"): _listed(v, f"trace.{k}") for k, v in given.items()}


def _check_names(names: Mapping[Any, Any], what: str) -> None:
    """A name becomes that of a column, or a key of JSON: text both."""
    for name in names:
        if not isinstance(name, str):
            raise _UnusableError(
                f"A {what} has the name {name!r}, which is of type {type(name).__name__}. "
                f"Names are text, as those of columns are: write {str(name)!r} or a word."
            )
        if not name.strip():
            advice = "Names are those of columns: write a word."
            raise _UnusableError(f"A {what} has an empty name ({name!r}). {advice}")


def _listed(value: Any, path: str) -> Any:
    """A value as nested lists; a trace may hold NaN, as a diverging run does."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [_listed(each, path) for each in value]
    return value if isinstance(value, float) else plain(value, path)

"""A trial: its content, the id and the randomness that follow from it, and what came out of it."""

import hashlib
import json
import math
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from finetti.core.errors import InputError
from finetti.core.numerics.random_keys import seed_of

# Python refuses to write whole numbers of more than 4300 digits.
MAX_INTEGER_DIGITS = 4000
INTEGER_LIMIT = 10**MAX_INTEGER_DIGITS
CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical_json(content: Any) -> str:
    """``content`` as JSON with sorted keys and no spaces.

    >>> canonical_json({"b": 1, "a": [True, 0.5]})
    '{"a":[true,0.5],"b":1}'
    """
    return CANONICAL.encode(content)


def digest(text: str) -> bytes:
    """The SHA-256 of ``text``."""
    return hashlib.sha256(text.encode()).digest()


def is_unicode(text: str) -> bool:
    """Whether ``text`` can be written: half of a surrogate pair, which Python allows, cannot."""
    return text.isascii() or text == unicode_text(text)


def unicode_text(text: str) -> str:
    r"""``text`` with what cannot be written shown by its number.

    >>> unicode_text("a\ud800")
    'a\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def plain(value: Any, path: str) -> Any:
    """``value`` if it is plain data (text, numbers, truth values, lists, tables), else an error.

    Tuples become lists and NumPy scalars become numbers, so that a study written in Python has the
    same ids as one written in TOML.

    >>> plain((1, {"rate": 0.1}), "grid.x")
    [1, {'rate': 0.1}]
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, str) and not is_unicode(value):
        raise InputError(f"`{path}` must be Unicode text. Got {value!a} instead.")
    if isinstance(value, int) and abs(value) >= INTEGER_LIMIT:
        raise InputError(
            f"`{path}` must have at most {MAX_INTEGER_DIGITS} digits. Got more instead."
        )
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"`{path}` must be finite. Got {value} instead.")
        return value
    if isinstance(value, list | tuple):
        return [plain(each, f"{path}[{index}]") for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not is_unicode(key):
                raise InputError(f"The names in `{path}` must be text. Got {key!a} instead.")
        return {key: plain(each, f"{path}.{key}") for key, each in value.items()}
    raise InputError(
        f"`{path}` must be plain data: strings, numbers, Booleans, lists, or tables. "
        f"Got {type(value).__name__} instead."
    )


@dataclass(frozen=True)
class Trial:
    """What a kind gets to see of one seeded run.

    Args:
        id: hexadecimal SHA-256 of the trial's content.
        params: the whole configuration, defaults included.
        seed: a 63-bit integer that depends on the id only, or on study seed and replicate.
    """

    id: str
    params: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Cell:
    """One point of the grid: all that its trials share.

    ``content`` holds the kind, its version, the fingerprint of its source, the resolved parameters
    and the study's seed; nothing else may change a result, and all of it changes the id. Trials
    seeded by their replicate share their random numbers with those of every other cell.
    """

    kind: str
    version: str
    fingerprint: str
    params: dict[str, Any]
    seed: int
    seed_by: str = "trial"

    @cached_property
    def content(self) -> str:
        """The canonical JSON of the cell; the usual way to seed goes without saying."""
        names = [each.name for each in fields(self)]
        usual = names[:-1] if self.seed_by == "trial" else names
        return canonical_json({name: getattr(self, name) for name in usual})

    @property
    def code(self) -> str:
        """The version of the code: that of the kind, and the user's or the hash of the source.

        >>> Cell("m:f", "1", "2f0c", {}, 0).code, Cell("m:f", "1", "", {}, 0).code
        ('1+2f0c', '1')
        """
        return "+".join(filter(None, (self.version, self.fingerprint)))

    def trial_id(self, replicate: int) -> str:
        """The id of one of the cell's trials; more trials per cell leave the first as they are.

        >>> cell = Cell("m:f", "1", "", {"n": 3}, seed=0)
        >>> cell.trial_id(0)[:8], cell.trial_id(1)[:8]
        ('87da1685', '8cd6b201')
        """
        return digest(f'{{"cell":{self.content},"replicate":{replicate}}}').hex()

    def trial(self, trial_id: str, replicate: int) -> Trial:
        """What the kind gets to see of the trial."""
        by_trial = self.seed_by == "trial"
        seed = seed_of(trial_id) if by_trial else seed_of(self.seed, replicate)
        return Trial(trial_id, self.params, seed)


DONE, FAILED = "done", "failed"
MAX_ERROR_CHARACTERS = 8000
MAX_METRIC_CHARACTERS = 64_000
PLAIN_TYPES = {bool, int, float, str}


@dataclass(frozen=True)
class TrialResult:
    """What a kind returns for a trial: its metrics, and what is kept beside them.

    Args:
        metrics: name → number, text or truth value. A NaN makes the trial a failure.
        trace: name → list of numbers recorded on the way.
        record: plain data of any shape (as of JSON), which no table shows.
    """

    metrics: Mapping[str, Any]
    trace: Mapping[str, Any] | None = None
    record: Any = None


@dataclass(frozen=True)
class Outcome:
    """A finished trial as it is stored; never changed once ``state`` is done."""

    trial_id: str
    state: str
    metrics: dict[str, Any] = field(default_factory=dict)
    trace: dict[str, Any] | None = None
    record: Any = None
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
    told = [metrics, trace or None, plain(result.record, "record")]
    if told[1:] != [None, None] or not {*map(type, metrics.values())} <= PLAIN_TYPES:
        # As other processes and the store know it: an enumeration that is an int is that int.
        told = json.loads(json.dumps(told))
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

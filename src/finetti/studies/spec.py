"""What a study is made of, from TOML or from Python. Anything unknown is refused by its path."""

import difflib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from finetti.core.errors import InputError
from finetti.core.files import parse_toml, read_file
from finetti.studies.trials import canonical_json, plain

MAX_VALUES = 1_000_000
MAX_REAL = 1e300  # beyond it the arithmetic of a range may not be finite
GRID_FORMS = "a list, {range = [first, last, step]} or {logrange = [first, last, count]}"


def _wrong(path: str, requirement: str, got: Any) -> InputError:
    return InputError(f"`{path}` must be {requirement}. Got {got} instead.")


def _three_numbers(value: Any, path: str, form: str) -> Sequence[Any]:
    numbers = isinstance(value, list | tuple) and len(value) == 3
    if not numbers or any(isinstance(x, bool) or not isinstance(x, int | float) for x in value):
        raise _wrong(path, f"{form}, three numbers", value)
    whole = all(isinstance(x, int) for x in value)
    if not whole and not all(abs(x) <= MAX_REAL for x in value):
        raise _wrong(path, f"{form}, finite numbers", value)
    return plain(value, path)


def arithmetic(value: Any, path: str) -> list[Any]:
    """first, first + step, … up to and including last; whole numbers stay whole.

    >>> arithmetic([0.1, 0.5, 0.1], "grid.rate"), arithmetic([8, 2, -3], "grid.depth")
    ([0.1, 0.2, 0.3, 0.4, 0.5], [8, 5, 2])
    """
    form = "[first, last, step]"
    first, last, step = _three_numbers(value, path, form)
    if step == 0 or (last - first) * step < 0:
        raise _wrong(path, f"{form} with a step that leads from first to last", value)
    make = int if isinstance(first, int) and isinstance(step, int) else float
    if not isinstance(last, int) or make is float:
        # Decimal, so that 0.1, 0.2, 0.3 are the numbers that people write and not their sums.
        first, last, step = (Decimal(repr(x)) for x in (first, last, step))
    reach: Any = last - first
    count: int = (reach // step if isinstance(step, int) else int(reach / step)) + 1
    if count > MAX_VALUES:
        raise _wrong(path, f"at most {MAX_VALUES} values", f"{count} values")
    return [make(first + index * step) for index in range(count)]


def geometric(value: Any, path: str) -> list[Any]:
    """``count`` values of equal ratios from first to last; between whole numbers, whole ones.

    >>> geometric([10, 1000, 3], "grid.n"), geometric([1, 4, 6], "grid.n")
    ([10, 100, 1000], [1, 2, 3, 4])
    >>> geometric([0.1, 10, 3], "grid.rate")
    [0.1, 1.0, 10.0]
    """
    form = "[first, last, count]"
    first, last, count = _three_numbers(value, path, form)
    if not 0 < first <= MAX_REAL or not 0 < last <= MAX_REAL:
        raise _wrong(path, f"{form} with positive ends", value)
    if not isinstance(count, int) or not 2 <= count <= MAX_VALUES:
        raise _wrong(path, f"{form} with a whole count from 2 to {MAX_VALUES}", value)
    low, high = math.log(first), math.log(last)
    inner = [math.exp(low + (high - low) * i / (count - 1)) for i in range(1, count - 1)]
    smallest, largest = min(first, last), max(first, last)
    # Rounded, so that 1 between 0.1 and 10 is 1; not past the ends, which are exact.
    rounded = [Decimal(f"{each:.12g}") for each in inner]
    if isinstance(first, int) and isinstance(last, int):
        values = [first, *(min(largest, max(smallest, round(each))) for each in rounded), last]
    else:
        pairs = zip(rounded, inner, strict=True)
        within = (float(r) if smallest <= float(r) <= largest else each for r, each in pairs)
        values = [float(first), *within, float(last)]
    return list(dict.fromkeys(values))


def grid_values(value: Any, path: str) -> list[Any]:
    """All values of one parameter.

    >>> grid_values({"range": [100, 300, 100]}, "grid.n")
    [100, 200, 300]
    """
    if isinstance(value, Mapping):
        makers = {"range": arithmetic, "logrange": geometric}
        unknown = [key for key in value if key not in makers]
        if unknown:
            raise InputError(f"`{path}.{unknown[0]}` is not known. Write `{path}` as {GRID_FORMS}.")
        if len(value) != 1:
            raise _wrong(path, GRID_FORMS, dict(value))
        ((form, ends),) = value.items()
        return makers[form](ends, f"{path}.{form}")
    if not isinstance(value, list | tuple):
        raise InputError(f"`{path}` must be {GRID_FORMS}. A single value belongs under `fixed`.")
    if not value:
        raise _wrong(path, "a list of at least one value", "an empty one")
    values = plain(value, path)
    seen: set[str] = set()
    for text in map(canonical_json, values):
        if text in seen:
            raise _wrong(path, "a list of different values", f"{text} twice")
        seen.add(text)
    return values


def combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values, the last parameter fastest.

    >>> list(combinations({"n": [1, 2], "m": [3]}))
    [{'n': 1, 'm': 3}, {'n': 2, 'm': 3}]
    """
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


MAX_TRIALS = 10_000_000


class Preset(BaseModel):
    """What a scale may set: the fields it names take the place of the study's own.

    ``grid`` and ``fixed`` are merged name by name.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    cohort: Annotated[int, Field(ge=1)] | None = None
    time_limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    grid: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    trials: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0)] = 0


class StudySpec(Preset):
    """A kind of trial, a grid of its parameters, and how often each cell is tried.

    Args:
        kind: ``package.module:Name``, or ``file.py:Name`` relative to the spec.
        name: a title; the file's name unless given.
        grid: parameter → list, ``{range = [first, last, step]}`` (last included) or
            ``{logrange = [first, last, count]}``.
        fixed: parameters with one value.
        trials: trials per cell of the grid.
        seed: all randomness follows from it.
        seed_by: ``trial`` (each draws its own numbers), or ``replicate`` (the trials of one
            replicate draw the same ones in every cell, so that cells are compared with less noise).
        cohort: the largest number of trials that run together; the kind knows a good one.
        time_limit, memory_limit: seconds per trial, and gigabytes of the process it runs in.
        code_version: takes the place of the hash of your source in the ids: edit comments
            freely, and change it when results change.
        scales: named presets that override the fields above.
    """

    kind: Annotated[str, Field(min_length=1)]
    name: str | None = None
    code_version: str | None = None
    seed_by: Literal["trial", "replicate"] = "trial"
    scales: dict[str, Preset] = {}

    @cached_property
    def values(self) -> dict[str, list[Any]]:
        """Every value of every parameter of the grid."""
        return {name: grid_values(each, f"grid.{name}") for name, each in self.grid.items()}

    def at_scale(self, scale: str | None) -> "StudySpec":
        """The study with the preset ``scale`` applied."""
        if scale is None:
            return self
        if scale not in self.scales:
            known = ", ".join(self.scales) or "none"
            raise InputError(f"The study has no scale {scale!r}. Its scales: {known}.")
        preset = self.scales[scale]
        update = {name: getattr(preset, name) for name in preset.model_fields_set}
        # A preset may fix what the study varies, and vary what it fixes.
        grid = {k: v for k, v in self.grid.items() if k not in preset.fixed}
        fixed = {k: v for k, v in self.fixed.items() if k not in preset.grid}
        update["grid"] = {**grid, **preset.grid}
        update["fixed"] = {**fixed, **preset.fixed}
        return self.changed(**update)

    def changed(self, **fields: Any) -> "StudySpec":
        """The study with other ``fields``, checked as if it had been written so."""
        return _checked({**{name: getattr(self, name) for name in self.model_fields_set}, **fields})


def _checked(content: Mapping[str, Any]) -> StudySpec:
    """The spec if all of it makes sense, else an error with the paths of the keys."""
    try:
        spec = StudySpec.model_validate(dict(content))
    except ValidationError as error:
        raise InputError(" ".join(map(_sentence, error.errors()))) from error
    plain([spec.kind, spec.name, spec.code_version], "kind, name, code_version")
    _check_values(spec, "")
    cells = math.prod(len(values) for values in spec.values.values())
    if cells * spec.trials > MAX_TRIALS:
        raise InputError(
            f"The study has {cells} cells of {spec.trials} trials, more than {MAX_TRIALS} trials. "
            "Make the grid or `trials` smaller."
        )
    return spec


def _check_values(settings: Preset, path: str) -> None:
    plain(settings.fixed, f"{path}fixed")
    for name, value in settings.grid.items():
        grid_values(value, f"{path}grid.{name}")
        if name in settings.fixed:
            both = f"`{path}grid` and in `{path}fixed`"
            raise InputError(f"`{name}` stands in {both}. Keep one of them.")


def _sentence(error: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        model = Preset if error["loc"][0] == "scales" else StudySpec
        near = difflib.get_close_matches(str(error["loc"][-1]), model.model_fields, n=1)
        advice = f" Did you mean `{near[0]}`?" if near else ""
        return f"`{path}` is not a key of a study.{advice}"
    if error["type"] == "missing":
        return f"`{path}` is missing."
    if error["type"] in ("dict_type", "model_type"):
        return f"`{path}` should be a table of names and values. Got {error['input']!r} instead."
    message = error["msg"].removeprefix("Input ").removeprefix("should ")
    return f"`{path}` should {message}. Got {error['input']!r} instead."


def make_spec(content: Mapping[str, Any], where: str = "The study") -> StudySpec:
    """A spec from plain data; every wrong key is named, with its path.

    >>> make_spec({"kind": "m:f", "grid": {"n": [1, 2]}, "trails": 3})
    Traceback (most recent call last):
        ...
    finetti.core.errors.InputError: The study: `trails` is not a key of a study. Did you mean \
`trials`?
    """
    try:
        spec = _checked(content)
        for scale, preset in spec.scales.items():
            _check_values(preset, f"scales.{scale}.")
            try:
                spec.at_scale(scale)
            except InputError as error:
                raise InputError(f"`scales.{scale}`: {error}") from error
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return spec


def read_spec(path: str | Path) -> StudySpec:
    """The spec in a TOML file."""
    path = Path(path)
    return make_spec(parse_toml(read_file(path), str(path)), path.name)


ROOT = Path(__file__).parents[1]
SUFFIX = ".study.toml"


def shipped_studies() -> dict[str, Path]:
    """Name → file."""
    return {path.name.removesuffix(SUFFIX): path for path in sorted(ROOT.glob(f"*/*{SUFFIX}"))}


def is_shipped(place: str | Path) -> bool:
    """Whether ``place`` is the name of a shipped study, and no file of the user's own."""
    place = Path(place)
    return place.name == str(place) and not place.exists() and place.name in shipped_studies()


def spec_file(place: str | Path) -> Path:
    """The file of the study in ``place``: that path, or the shipped study of that name."""
    place = Path(place)
    if is_shipped(place):
        return shipped_studies()[place.name]
    if not place.suffix and not place.exists():
        known = ", ".join(shipped_studies())
        raise InputError(
            f"Unknown study {str(place)!r}. Give a study.toml, or the name of a bundled "
            f"study: {known}."
        )
    return place

"""What a study is made of, from TOML or from Python. Anything unknown is refused by its path."""

import difflib
import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from finetti.core.errors import InputError
from finetti.core.files import parse_toml, read_file
from finetti.studies.canonical import plain
from finetti.studies.grid import grid_values

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

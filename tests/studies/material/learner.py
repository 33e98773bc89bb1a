"""Kinds that tests copy into a folder of their own: good ones, and all sorts of bad ones."""

import os
import random
import time
from decimal import Decimal
from enum import Enum
from pathlib import Path

from helper import FACTOR
from pydantic import BaseModel

from finetti.studies import CohortKind, TrialResult


def good(seed: int, n: int, width: int = 8, pause: float = 0.0):
    time.sleep(pause)
    draw = random.Random(seed)
    return {"loss": FACTOR * draw.random() / n, "size": n * width, "odd": draw.random() < 0.5}


def gated(seed: int, n: int, gate: str):
    """Like `good`; where n is 3 or more, not before the file ``gate`` is there."""
    while n >= 3 and not os.path.exists(gate):
        time.sleep(0.01)
    return good(seed, n)


def moody(seed: int, n: int, mood: str = "fine"):
    """Fails in the way that ``mood`` says, where n is 2."""
    if n == 2:
        return MOODS[mood]()
    return {"loss": random.Random(seed).random()}


def raises():
    raise RuntimeError("no luck")


def returns_nan():
    return {"loss": float("nan")}


def never_ends():
    """Says that it has begun, and goes on."""
    Path(__file__).with_name("begun").touch()
    while True:
        time.sleep(60)


def takes_long():
    """Says that it has begun, and ends when somebody has noticed."""
    flag = Path(__file__).with_name("begun")
    flag.touch()
    while flag.exists():
        time.sleep(0.01)


def eats_memory():
    eaten = []
    while True:
        eaten.append(bytearray(20_000_000))


def crashes():
    os.abort()


def leaves():
    raise SystemExit(3)


def returns_a_list():
    return [1.0]


def returns_half_a_character():
    return {"loss": 1.0, "text": "\ud800"}


def raises_half_a_character():
    raise RuntimeError("half \udfff")


def returns_endless_digits():
    return {"loss": 10**5000}


def returns_nothing():
    return {}


class Late:
    """A number that is computed when it is looked at, and cannot be."""

    size = 1

    def item(self):
        raise RuntimeError("too late")


def returns_too_late():
    return {"loss": Late()}


def names_by_number():
    return {1: 0.5}


def talks():
    return {"loss": "x" * 100_000}


MOODS = {
    "raises": raises,
    "nan": returns_nan,
    "endless": never_ends,
    "long": takes_long,
    "greedy": eats_memory,
    "crash": crashes,
    "exit": leaves,
    "list": returns_a_list,
    "half": returns_half_a_character,
    "half-raised": raises_half_a_character,
    "digits": returns_endless_digits,
    "nothing": returns_nothing,
    "talk": talks,
    "number": names_by_number,
    "late": returns_too_late,
}


def named(*, copy: int, json: int = 3, _hidden: int = 4, seed: int, **others):
    """Names that a model has methods of, a seed by name, and parameters that nobody announced."""
    return {"sum": copy + json + _hidden + len(others), "large": seed > 2**20}


def flaky(seed: int, flag: str, n: int):
    """Fails until the file ``flag`` is there."""
    if n == 2 and not os.path.exists(flag):
        raise RuntimeError("not yet")
    return {"loss": random.Random(seed).random()}


class Parameters(BaseModel):
    n: int
    poison: int = -1
    how: str = "raises"


class Together(CohortKind):
    """One computation for the whole cohort, spoiled by any trial whose n is ``poison``."""

    Parameters = Parameters

    def cohort_key(self, params):
        return params["poison"]

    def run_cohort(self, trials):
        for trial in trials:
            if trial.params["n"] == trial.params["poison"]:
                MOODS[trial.params["how"]]()
        draws = [random.Random(trial.seed) for trial in trials]
        return [
            TrialResult(
                {"loss": draw.random() / trial.params["n"]}, {"steps": [draw.random(), 2.0]}
            )
            for draw, trial in zip(draws, trials, strict=True)
        ]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Layer(BaseModel):
    widths: list[int] = [1]
    color: Color = Color.RED


def annotated(
    seed: int,
    n: int,
    color: Color = Color.BLUE,
    sizes: tuple[int, ...] = (1, 2),
    place: Path = Path("here"),
    rate: Decimal = Decimal("0.1"),
    names: frozenset[str] = frozenset({"a"}),
    layer: Layer = Layer(),  # noqa: B008
    depth: int = None,  # noqa: RUF013, as people write it
):
    """Says what it got, and spoils what it can."""
    values = (color, sizes, place, rate, names, layer, layer.color, depth)
    layer.widths.append(n)
    kinds = " ".join(type(value).__name__ for value in values).replace("Posix", "")
    return {"types": kinds, "widths": str(layer.widths), "rate": float(rate)}


class Nested(BaseModel):
    n: int
    options: dict[str, list[int]]
    layer: Layer


class Spoiling(CohortKind):
    """Changes the parameters that it is given, alone and in company."""

    Parameters = Nested

    def cohort_key(self, params):
        return None

    def run_cohort(self, trials):
        results = []
        for trial in trials:
            trial.params["options"]["a"].append(trial.params["n"])
            trial.params["layer"].widths.append(0)
            results.append(
                {"a": str(trial.params["options"]["a"]), "b": len(trial.params["layer"].widths)}
            )
        return results

"""Parameters are checked by their types, and reach the trial as these."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict

from finetti.core.errors import InputError
from finetti.studies.trial_kinds import (
    ParameterError,
    TrialKind,
    as_kind,
    deliver_with,
    resolve_with,
)
from finetti.studies.trials import plain


class Side(Enum):
    LEFT = "left"


class Inner(BaseModel):
    width: int = 1


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    width: int = 1


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int = 1


@dataclass
class Table:
    width: int = 1


class Outer(BaseModel):
    inner: Inner = Inner()
    many: list[Inner] = []
    by_name: dict[str, Inner] = {}
    open: Open = Open()
    closed: Closed = Closed()
    table: Table = Table()
    side: Side = Side.LEFT
    pair: tuple[int, int] = (1, 2)


@pytest.mark.parametrize(
    ("params", "name", "inside"),
    [
        ({"inner": {"widht": 2}}, "inner", "widht"),
        ({"many": [{"width": 1}, {"widht": 2}]}, "many", "1.widht"),
        ({"by_name": {"a": {"widht": 2}}}, "by_name", "a.widht"),
        ({"table": {"widht": 2}}, "table", "widht"),
        ({"closed": {"widht": 2}}, "closed", "has no 'widht'"),
        ({"outer": 2}, "outer", "is not a parameter"),
    ],
)
def test_unknown_names_are_refused_at_any_depth(params, name, inside):
    with pytest.raises(ParameterError, match=inside) as caught:
        resolve_with(Outer, params)
    assert caught.value.parameter == name


def test_what_is_open_stays_open():
    assert resolve_with(Outer, {"open": {"other": [1]}})["open"] == {"width": 1, "other": [1]}


def test_ids_are_of_plain_data_and_trials_get_the_types():
    resolved = resolve_with(Outer, {"pair": [3, 4]})
    assert plain(resolved, "x") == resolved
    assert (resolved["pair"], resolved["side"]) == ([3, 4], "left")
    first, second = deliver_with(Outer, resolved), deliver_with(Outer, resolved)
    assert (first["pair"], first["side"], first["inner"]) == ((3, 4), Side.LEFT, Inner())
    assert first["by_name"] is not second["by_name"]
    assert first["inner"] is not second["inner"]


def test_validators_that_do_not_accept_their_own_result_are_refused():
    class Doubled(BaseModel):
        n: Annotated[int, BeforeValidator(lambda n: 2 * n)]

    with pytest.raises(ParameterError, match="becomes 4 when 2 is read again"):
        resolve_with(Doubled, {"n": 1})


def test_defaults_that_cannot_be_stored_are_named():
    def endless(seed, rate: float = math.inf):
        return {"x": rate}

    with pytest.raises(ParameterError, match="must be finite") as caught:
        as_kind(endless, "m:endless").resolve({})
    assert caught.value.parameter == "rate"


def test_kinds_that_declare_no_parameters_take_none():
    class Bare(TrialKind):
        def run(self, params, seed):
            return {"n": len(params)}

    assert Bare().resolve({}) == {}
    with pytest.raises(ParameterError, match="declare them as `Parameters`"):
        Bare().resolve({"n": 1})


def test_a_resolve_of_ones_own_is_taken_at_its_word():
    class Own(TrialKind):
        def resolve(self, params):
            return {"n": 1, **params, "list": [1]}

        def run(self, params, seed):
            return {"n": params["n"]}

    kind = Own()
    resolved = kind.resolve({"m": 2})
    assert kind.deliver(resolved) == resolved
    assert kind.deliver(resolved)["list"] is not resolved["list"]
    kind.check_name("anything")


@pytest.mark.parametrize(
    "value",
    ["\ud800", ["a", "b\udfff"], {"\ud800": 1}, 10**4500, [10**4500]],
    ids=["half", "half in a list", "half as a name", "digits", "digits in a list"],
)
def test_what_cannot_be_written_is_refused_by_its_path(make_study, value):
    for fields in ({"fixed": {"x": value}}, {"grid": {"x": [value]}}):
        (part,) = fields
        with pytest.raises(InputError, match=rf"`{part}\.x") as caught:
            make_study(**fields)
        str(caught.value).encode()
    scales = {"big": {"fixed": {"x": value}}}
    with pytest.raises(InputError, match=r"`scales\.big\.fixed\.x"):
        make_study(scales=scales)

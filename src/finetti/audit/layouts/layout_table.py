"""The table of names: which parameter of a file is which matrix of a layer."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, parse_toml, read_file

ATTENTION = ("query", "key", "value")
ROLES = (*ATTENTION, "fused", "output", "feed_in", "feed_gate", "feed_out")
OUTER = ("embedding_norm", "projection", "final_norm")  # beside the layers, in this order
MAX_TABLE = MEGABYTE
OLD_KINDS = {"gamma": "weight", "beta": "bias"}  # of norms, in files of TensorFlow's making


class Place(NamedTuple):
    """Which parameter of the layers one is: its layer's number(s), its role, weight or bias."""

    number: tuple[int, ...]
    role: str
    kind: str

    @property
    def is_vector(self) -> bool:
        """Return whether it is a bias or belongs to a norm."""
        return self.kind == "bias" or self.role.startswith("norm")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How one family of networks names its parameters; `layouts.toml` explains every key."""

    name: str
    layer: str
    orientation: Literal["output_input", "input_output"]
    query: str = ""
    key: str = ""
    value: str = ""
    fused: str = ""
    output: str
    feed_in: str = ""
    feed_gate: str = ""
    feed_out: str = ""
    norms: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    embeddings: list[str] = field(default_factory=list)
    unembedding: str = ""
    embedding_norm: str = ""
    projection: str = ""
    final_norm: str = ""
    model_types: list[str] = field(default_factory=list)
    note: str = ""
    order: Literal["pre", "post", ""] = ""  # of norms and residuals; empty: not said
    normalization: Literal["LayerNorm", "RMSNorm", ""] = ""
    activation: str = ""
    epsilon: float | None = None
    rotary: bool = False
    own: bool = False  # from a user's map, which comes before the shipped table

    def __post_init__(self) -> None:
        where = f"[{self.name}] of the map"
        if "{n}" not in self.layer:
            raise InputError(f"`layer` in {where} must have {{n}} for the layer's number.")
        missing = [role for role in ATTENTION if not getattr(self, role)]
        if missing and not self.fused:
            raise InputError(f"{where} lacks `{'`, `'.join(missing)}`, or `fused`.")
        if self.epsilon is not None and not 0 < self.epsilon < 1:
            raise InputError(f"`epsilon` in {where} must be between 0 and 1.")

    @property
    def is_transposed(self) -> bool:
        """Return whether matrices of layers are stored as (inputs, outputs)."""
        return self.orientation == "input_output"

    @cached_property
    def _patterns(self) -> list[tuple[str, re.Pattern[str]]]:
        named = [(role, getattr(self, role)) for role in ROLES]
        named += [(f"norm_{number}", text) for number, text in enumerate(self.norms, 1)]
        return [(role, _pattern(self.layer + text)) for role, text in named if text]

    def place(self, name: str) -> Place | None:
        """Return where a parameter belongs in the layers, or None.

        >>> read_layouts()["gpt2"].place("transformer.h.3.attn.c_attn.bias")
        Place(number=(3,), role='fused', kind='bias')
        """
        if not self.inside_a_layer(name):
            return None
        for role, pattern in self._patterns:
            if found := pattern.fullmatch(name):
                groups = found.groupdict()
                numbers = tuple(int(groups[each]) for each in ("n", "m") if groups.get(each))
                return Place(numbers, role, _kind(found))
        return None

    def inside_a_layer(self, name: str) -> bool:
        """Return whether the name is that of a parameter in a layer, known or not."""
        return _pattern(self.layer + "{rest}").fullmatch(name) is not None

    def prefix(self, name: str) -> str:
        """Return what comes before a layer in the name of one of its parameters."""
        found = _pattern(self.layer + "{rest}").fullmatch(name)
        return "" if found is None else found["prefix"] or ""

    def is_ignored(self, name: str) -> bool:
        """Return whether the table says that a parameter of a layer is no weight."""
        return any(_pattern(self.layer + each).fullmatch(name) for each in self.ignored)

    def embedding(self, name: str) -> str | None:
        """Return which embedding a parameter is, or None."""
        for each in self.embeddings:
            if _pattern(each).fullmatch(name):
                return each.removesuffix(".weight").rpartition(".")[2]
        return None

    def beside_the_layers(self, name: str) -> tuple[str, str] | None:
        """Return which of `OUTER` a parameter belongs to, and whether it is a weight or a bias."""
        for role in OUTER:
            text = getattr(self, role)
            if text and (found := _pattern(text).fullmatch(name)):
                return role, _kind(found)
        return None

    def is_unembedding(self, name: str) -> bool:
        """Return whether a parameter is the matrix that makes words of the last layer's output."""
        return bool(self.unembedding) and _pattern(self.unembedding).fullmatch(name) is not None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    parts = {
        "n": r"(?P<n>\d{1,6})",
        "m": r"(?P<m>\d{1,6})",
        "kind": "(?P<kind>weight|bias|gamma|beta)",
        "rest": r"(?P<rest>.+)",
    }
    escaped = re.escape(text)
    for name, pattern in parts.items():
        if text.count(f"{{{name}}}") > 1:
            raise InputError(f"{text!r} in a map has {{{name}}} more than once. Write it once.")
        escaped = escaped.replace(re.escape(f"{{{name}}}"), pattern)
    return re.compile(rf"(?P<prefix>.*\.)?{escaped}")


def _kind(found: re.Match[str]) -> str:
    kind = found.groupdict().get("kind") or "weight"
    return OLD_KINDS.get(kind, kind)


def read_layouts(path: str | Path | None = None) -> dict[str, Layout]:
    """Return the table that ships with the package, and before it what a user's file adds.

    >>> ", ".join(read_layouts())
    'bert, albert, gpt2, vit, llama, torch, equinox'
    """
    own = {} if path is None else _parse(read_file(path, MAX_TABLE), str(path), own=True)
    return own | {name: each for name, each in _shipped().items() if name not in own}


@cache
def _shipped() -> dict[str, Layout]:
    return _parse((files("finetti.audit.layouts") / "layouts.toml").read_bytes(), "layouts.toml")


def _parse(content: bytes, owner: str, *, own: bool = False) -> dict[str, Layout]:
    tables = parse_toml(content, f"The map {owner}")
    for name, said in tables.items():
        if own:
            _check_keys(said, f"[{name}] of the map {owner}")
    return {name: Layout(**{"name": name, "own": own} | said) for name, said in tables.items()}


def _check_keys(said: Any, where: str) -> None:
    """Refuse what is no table of the right keys and types; the shipped table is one."""
    if not isinstance(said, dict):
        raise InputError(f"{where} is no table of names. Got {str(said)[:40]!r} instead.")
    # Loading pydantic takes longer than an audit of a small network: only own maps wait for it.
    from pydantic import ConfigDict, ValidationError, create_model

    hints = get_type_hints(Layout)
    keys: dict[str, Any] = {
        each.name: (hints[each.name], ... if _is_required(each) else None)
        for each in fields(Layout)
        if each.name not in ("name", "own")
    }
    model = create_model("Layout", __config__=ConfigDict(extra="forbid", strict=True), **keys)
    try:
        model.model_validate(said)
    except ValidationError as error:
        raise InputError(f"{where}: {'; '.join(map(_sentence, error.errors()))}.") from error


def _is_required(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _sentence(error: Mapping[str, Any]) -> str:
    """Return what is wrong with one key, in the words of pydantic."""
    path = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"`{path}` is not a key of a layout"
    if error["type"] == "missing":
        return f"`{path}` is missing"
    return f"`{path}` {error['msg'].removeprefix('Input ')}. Got {str(error['input'])[:40]!r}"

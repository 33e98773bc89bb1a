"""The table of names: which parameter of a file is which matrix of a layer."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, parse_toml, read_file

ROLES = ("query", "key", "value", "fused", "output", "feed_in", "feed_gate", "feed_out")
ORIENTATIONS = ("output_input", "input_output")
ORDERS = ("pre", "post")
NORMALIZATIONS = ("LayerNorm", "RMSNorm")
OUTER = ("embedding_norm", "projection", "final_norm")  # beside the layers, in this order
MAX_TABLE = MEGABYTE
OLD_KINDS = {"gamma": "weight", "beta": "bias"}  # of norms, in files of TensorFlow's making
# Who a parameter is: its layer's number(s), its role, and weight or bias.
Place = tuple[tuple[int, ...], str, str]


@dataclass(frozen=True)
class Layout:
    """How one family of networks names its parameters."""

    name: str
    layer: str
    orientation: str
    roles: dict[str, str]
    norms: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    embeddings: tuple[str, ...] = ()
    unembedding: str = ""
    model_types: tuple[str, ...] = ()
    note: str = ""
    outer: dict[str, str] = field(default_factory=dict)
    order: str = ""  # of norms and residuals; empty: not said
    normalization: str = ""  # what norms are called; empty: not said
    activation: str = ""
    epsilon: float | None = None
    rotary: bool = False
    own: bool = False  # from a user's map, which comes before the shipped table

    @cached_property
    def _patterns(self) -> list[tuple[str, re.Pattern[str]]]:
        named = [*self.roles.items()]
        named += [(f"norm_{number}", text) for number, text in enumerate(self.norms, 1)]
        return [(role, _pattern(self.layer + text)) for role, text in named]

    @cached_property
    def _inside(self) -> re.Pattern[str]:
        return _pattern(self.layer + "{rest}")

    def place(self, name: str) -> Place | None:
        """Where a parameter belongs in the layers, or None.

        >>> read_layouts()["gpt2"].place("transformer.h.3.attn.c_attn.bias")
        ((3,), 'fused', 'bias')
        """
        if not self.inside_a_layer(name):
            return None
        for role, pattern in self._patterns:
            if found := pattern.fullmatch(name):
                kind = found.groupdict().get("kind") or "weight"
                return _numbers(found), role, OLD_KINDS.get(kind, kind)
        return None

    def inside_a_layer(self, name: str) -> bool:
        """Whether a parameter lies in a layer without being one of its weights by the table."""
        return self._inside.fullmatch(name) is not None

    def prefix(self, name: str) -> str:
        """What comes before a layer in the name of one of its parameters."""
        found = self._inside.fullmatch(name)
        return "" if found is None else found["prefix"] or ""

    def is_ignored(self, name: str) -> bool:
        """Whether the table says that a parameter of a layer is no weight."""
        return any(_pattern(self.layer + each).fullmatch(name) for each in self.ignored)

    def embedding(self, name: str) -> str | None:
        """Which embedding a parameter is, or None."""
        for each in self.embeddings:
            if _pattern(each).fullmatch(name):
                return each.removesuffix(".weight").rpartition(".")[2]
        return None

    def beside_the_layers(self, name: str) -> tuple[str, str] | None:
        """Which of `OUTER` a parameter belongs to, and whether it is a weight or a bias."""
        for role, text in self.outer.items():
            if found := _pattern(text).fullmatch(name):
                kind = found.groupdict().get("kind") or "weight"
                return role, OLD_KINDS.get(kind, kind)
        return None

    def is_unembedding(self, name: str) -> bool:
        """Whether a parameter is the matrix that makes words of the last layer's output."""
        return bool(self.unembedding) and _pattern(self.unembedding).fullmatch(name) is not None


def _pattern(text: str) -> re.Pattern[str]:
    parts = {
        "n": r"(?P<n>\d{1,6})",
        "m": r"(?P<m>\d{1,6})",
        "kind": "(?P<kind>weight|bias|gamma|beta)",
    }
    parts |= {"rest": r"(?P<rest>.+)"}
    escaped = re.escape(text)
    for name, pattern in parts.items():
        if text.count(f"{{{name}}}") > 1:
            raise InputError(f"{text!r} in a map has {{{name}}} more than once. Write it once.")
        escaped = escaped.replace(re.escape(f"{{{name}}}"), pattern)
    return re.compile(rf"(?P<prefix>.*\.)?{escaped}")


def _numbers(found: re.Match[str]) -> tuple[int, ...]:
    groups = found.groupdict()
    return tuple(int(groups[name]) for name in ("n", "m") if groups.get(name))


def read_layouts(path: str | Path | None = None) -> dict[str, Layout]:
    """The table that ships with the package, and before it what a file of one's own adds.

    >>> ", ".join(read_layouts())
    'bert, albert, gpt2, vit, llama, torch, equinox'
    """
    shipped = (files("finetti.audit.layouts") / "layouts.toml").read_bytes()
    found = {} if path is None else _parse(read_file(path, MAX_TABLE), str(path))
    own = {name: replace(each, own=True) for name, each in found.items()}
    return own | {k: v for k, v in _parse(shipped, "layouts.toml").items() if k not in own}


def _parse(content: bytes, owner: str) -> dict[str, Layout]:
    tables = parse_toml(content, f"The map {owner}")
    return {name: _layout(name, said, owner) for name, said in tables.items()}


def _layout(name: str, said: Any, owner: str) -> Layout:
    where = f"[{name}] of the map {owner}"
    if not isinstance(said, dict):
        raise InputError(f"{name} of the map {owner} must be a table: write [{name}].")
    texts = {"layer", "orientation", "unembedding", "note", "order", *ROLES, *OUTER}
    texts |= {"normalization", "activation"}
    lists = {"norms", "ignored", "embeddings", "model_types"}
    _refuse(where, "unknown", sorted(set(said) - texts - lists - {"epsilon", "rotary"}))
    _refuse(where, "missing", sorted({"layer", "orientation", "output"} - set(said)))
    for key, value in said.items():
        wanted, good = _wanted(key, value, texts)
        if not good:
            raise InputError(f"{key} in {where} must be {wanted}.")
    choices = {"orientation": ORIENTATIONS, "order": ORDERS, "normalization": NORMALIZATIONS}
    for key, words in choices.items():
        if said.get(key, words[0]) not in words:
            raise InputError(f"The {key} in {where} must be one of {', '.join(words)}.")
    if "{n}" not in said["layer"]:
        raise InputError(f"The layer in {where} must have {{n}} in place of the layer's number.")
    if "fused" not in said:
        _refuse(where, "missing", sorted({"query", "key", "value"} - set(said)))
    roles = {role: said[role] for role in ROLES if role in said}
    rest: dict[str, Any] = {key: tuple(said.get(key, ())) for key in sorted(lists)}
    words = ("unembedding", "note", "order", "normalization", "activation")
    rest |= {key: said.get(key, "") for key in words}
    rest |= {"epsilon": said.get("epsilon"), "rotary": said.get("rotary", False)}
    rest["outer"] = {role: said[role] for role in OUTER if role in said}
    return Layout(name, said["layer"], said["orientation"], roles, **rest)


def _wanted(key: str, value: Any, texts: set[str]) -> tuple[str, bool]:
    """What a value must be, and whether it is."""
    if key in texts:
        return "a string", isinstance(value, str)
    if key == "epsilon":
        return "a number between 0 and 1", isinstance(value, float) and 0 < value < 1
    if key == "rotary":
        return "true or false", isinstance(value, bool)
    return "a list of strings", isinstance(value, list) and all(
        isinstance(each, str) for each in value
    )


def _refuse(where: str, what: str, names: Iterable[str]) -> None:
    if named := ", ".join(names):
        raise InputError(f"{where} has {what} names: {named}.")

"""``finetti bound``: what a theorem gives for a network and a sample, and what it asks for."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.console import make_console
from finetti.cli.options import Debug, Json
from finetti.core.errors import FinettiError, InputError

if TYPE_CHECKING:
    from finetti.bounds.base import Bound
    from finetti.bounds.registry import Registry
    from finetti.bounds.value import BoundValue

_SOLVED = {"heads": "a bound of paper R", "tokens": "E-prop-4.1"}
_SAMPLE = ("input_norm", "loss_lipschitz", "loss_bound", "delta")


def as_count(text: str, option: str) -> int:
    """A whole number ≥ 1, as 1000 or 1e6.

    >>> as_count("1e6", "samples"), as_count("10", "width")
    (1000000, 10)
    """
    from finetti.bounds.checks import check_count

    try:
        value = int(text) if text.strip("+-").isdigit() else float(text)
    except ValueError as error:
        raise InputError(f"--{option} {text} is not a number. Write 1000 or 1e6.") from error
    return check_count(value, option, "finetti bound")


def _count(option: str, help: str) -> Any:
    return typer.Option(f"--{option}", metavar="N", help=help)


def bound(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Bounds, as S-thm-A.17; see --list."),
    ] = None,
    layers: Annotated[str, _count("layers", "Layers.")] = "1",
    width: Annotated[str, _count("width", "Dimension of a token.")] = "64",
    heads: Annotated[str, _count("heads", "Heads per layer.")] = "1",
    head_dimension: Annotated[
        str | None, _count("head-dimension", "Dimension of a head; width / heads by default.")
    ] = None,
    context_length: Annotated[str, _count("context-length", "Tokens per sequence.")] = "1000",
    samples: Annotated[str, _count("samples", "Sequences in the sample.")] = "10000",
    norms: Annotated[
        Path | None,
        typer.Option("--norms", metavar="FILE", help="JSON with norms by name; 1 by default."),
    ] = None,
    input_norm: Annotated[float, typer.Option(help="Length of the longest token.")] = 1.0,
    loss_lipschitz: Annotated[float, typer.Option(help="Of the loss, per output.")] = 1.0,
    loss_bound: Annotated[float, typer.Option(help="Range of the loss.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Probability of failure.")] = 0.05,
    resolution: Annotated[float, typer.Option(help="ε of a covering number.")] = 0.1,
    form: Annotated[
        str, typer.Option("--form", metavar="derived|printed", help="As proven, or as printed.")
    ] = "derived",
    solve: Annotated[
        str | None,
        typer.Option("--solve", metavar="samples|heads|tokens", help="How many reach --gap."),
    ] = None,
    gap: Annotated[float | None, typer.Option(help="The target of --solve.")] = None,
    constant: Annotated[
        float | None, typer.Option(help="Multiplies a scaling quantity, for --solve.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep", metavar="WHAT=LOW:HIGH", help="As context-length=1e2:1e6, or any norm."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Chart of a sweep: svg, html, …")
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="What 10 % more of each norm does.")
    ] = False,
    measured: Annotated[
        float | None, typer.Option(help="A measured gap to put beside the bound.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Statement, source, quantity and assumptions.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="Every bound, one line each.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Evaluate the papers' bounds: capacity, generalization gap, samples needed."""
    from finetti.bounds import Sample, load_bounds

    registry = load_bounds()
    if show_list:
        if as_json:
            typer.echo(json.dumps([describe(each) for each in registry], indent=1))
        else:
            _print_list(registry)
        return
    if not names:
        raise FinettiError("Name a bound, as `finetti bound S-thm-A.17`, or see them with --list.")
    if plot is not None and sweep is None:
        raise FinettiError("--plot draws a sweep. Add --sweep, as --sweep context-length=1e2:1e6.")
    if (solve is None) != (gap is None):
        raise FinettiError("--solve and --gap go together, as --solve samples --gap 0.1.")
    together = {"--solve": solve, "--measured": measured, "--sensitivity": sensitivity or None}
    extra = [option for option, given in together.items() if given is not None]
    if sweep is not None and extra:
        raise FinettiError(
            f"--sweep and {extra[0]} do not go together: a sweep shows values only. Leave one out."
        )
    chosen = [registry.get(name) for name in names]
    if explain:
        _explain(chosen, as_json)
        return
    network = {
        "n_layers": as_count(layers, "layers"),
        "width": as_count(width, "width"),
        "n_heads": as_count(heads, "heads"),
        "head_dimension": head_dimension and as_count(head_dimension, "head-dimension"),
        "resolution": resolution,
        "form": form,
        "norms": _read_norms(norms),
    }
    data = {
        "n_samples": as_count(samples, "samples"),
        "context_length": as_count(context_length, "context-length"),
        **dict(zip(_SAMPLE, (input_norm, loss_lipschitz, loss_bound, delta), strict=True)),
    }
    if sweep is not None:
        from finetti.cli.bound_sweep import run_sweep

        run_sweep(chosen, network, data, sweep, plot, as_json)
        return
    say_unread(chosen, network)
    sample = Sample(**data)
    answers = []
    for built in build(chosen, network):
        answer: dict[str, Any] = {"bound": built}
        if solve is not None and gap is not None:
            # The sizes given may be too small for the theorem: they are what is asked for.
            answer["needed"] = _solve(built, solve, gap, sample, constant)
        else:
            answer["value"] = built.evaluate(sample)
        if sensitivity:
            answer["sensitivity"] = built.sensitivity(sample)
        if measured is not None:
            answer["comparison"] = built.evaluate(sample).beside(measured)
        answers.append(answer)
    if as_json:
        typer.echo(json.dumps([_plain(answer) for answer in answers], indent=1, allow_nan=False))
        return
    console = make_console()
    for answer in answers:
        for shown in list(answer.values())[1:]:
            console.print(shown)


def build(chosen: "list[type[Bound]]", network: Mapping[str, Any]) -> "list[Bound]":
    """Every chosen bound for one network; a norm that none of them reads is refused."""
    built, unread = _build(chosen, network)
    nobody = frozenset.intersection(*unread)
    if nobody:
        raise InputError(f"None of these bounds has a norm called {min(nobody)!r}.")
    return built


def say_unread(chosen: "list[type[Bound]]", network: Mapping[str, Any]) -> None:
    """Tell which of several bounds does not have a norm that another one reads."""
    for each, names in zip(chosen, _build(chosen, network)[1], strict=True):
        if names:
            what = f"{each.name} has no norm called {', '.join(map(repr, sorted(names)))}"
            typer.echo(f"{what}, and is the same without.", err=True)


def _build(
    chosen: "list[type[Bound]]", network: Mapping[str, Any]
) -> "tuple[list[Bound], list[frozenset[str]]]":
    """The bounds, and for each of them the norms that it did not read."""
    from finetti.bounds import Settings

    built, unread = [], []
    for each in chosen:
        settings = Settings(**network)
        built.append(each.from_settings(settings))
        if len(chosen) == 1:
            settings.check_used(each.name)
        unread.append(settings.unread)
    return built, unread


def describe(each: "type[Bound]") -> dict[str, Any]:
    """A bound as plain data."""
    return {
        "name": each.name,
        "paper": each.paper or None,
        "title": each.title,
        "statement": each.statement,
        "citation": each.citation,
        "quantity": each.quantity,
        "kind": each.derived_kind,
        "printed_kind": each.printed_kind,
        "assumes": list(each.assumes),
    }


def _solve(
    built: "Bound", what: str, gap: float, sample: Any, constant: float | None
) -> "BoundValue":
    if what == "samples":
        return built.samples_needed(gap, sample, constant)
    if what not in _SOLVED:
        raise InputError(f"--solve finds samples, heads or tokens, not {what!r}.")
    method, where = getattr(built, f"{what}_needed", None), _SOLVED[what]
    if method is None:
        raise FinettiError(
            f"{built.name} has no number of {what} to solve for. Take {where} "
            "(`finetti bound --list`), or --solve samples."
        )
    return method(gap, sample, constant) if what == "heads" else method(gap, sample)


def _read_norms(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        norms = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}. Give a JSON file.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}. Write names and numbers.") from error
    if not isinstance(norms, dict):
        raise InputError(f'{path} must hold names and numbers, as {{"value_norm": 2.0}}.')
    return norms


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    plain = describe(type(answer["bound"]))
    if "value" in answer:
        plain |= answer["value"].to_dict()
    if "needed" in answer:
        plain["needed"] = answer["needed"].to_dict()
    if "sensitivity" in answer:
        found = answer["sensitivity"]
        plain["sensitivity"] = {row.field: _finite(row.ratio) for row in found}
        plain["sensitivity_exponents"] = {row.field: _finite(row.exponent) for row in found}
        plain["sensitivity_refused"] = dict(found.refused)
    if "comparison" in answer:
        plain["measured"] = answer["comparison"].measured
        plain["obeyed"] = answer["comparison"].obeyed
    return plain


def _finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None


def _print_list(registry: "Registry") -> None:
    """A line per bound that fits the terminal: name, statement, kind."""
    from rich.text import Text

    console = make_console()
    name_width = max(len(each.name) for each in registry)
    kind_width = max(len(each.derived_kind) for each in registry)
    for each in registry:
        statement = Text(each.statement)
        room = max(console.width - name_width - kind_width - 4, 10)
        statement.truncate(room, overflow="ellipsis", pad=True)
        name, kind = Text(f"{each.name:<{name_width}}  ", style="bold"), Text(each.derived_kind)
        console.print(Text.assemble(name, statement, "  ", kind), soft_wrap=True)


def _explain(chosen: "list[type[Bound]]", as_json: bool) -> None:
    """What the bounds say and assume, without a value."""
    from finetti.show.card import Card
    from finetti.show.terminal import renderable

    plain = [describe(each) for each in chosen]
    if as_json:
        typer.echo(json.dumps(plain, indent=1))
        return
    for each in plain:
        rows = [
            ("statement", each["statement"]),
            ("source", each["citation"]),
            ("quantity", each["quantity"]),
            ("kind", each["kind"]),
            ("kind as printed", each["printed_kind"]),
            *(("assumes", words) for words in each["assumes"]),
        ]
        make_console().print(renderable(Card(f"{each['name']}: {each['title']}", tuple(rows))))

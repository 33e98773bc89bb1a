"""``finetti bound``: what a theorem gives for a network and a sample, and what it asks for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from finetti.cli.console import make_console, say
from finetti.cli.options import Debug, Json, options_named
from finetti.core.errors import FinettiError, InputError
from finetti.display.table_text import TableFormat, format_table

if TYPE_CHECKING:
    from finetti.bounds import Bound, BoundSettings, Registry, Sample, Sweep

OF_NORMS = " (of --norms)"


def parse_count(text: str, option: str) -> int:
    """A whole number, as 1000 or 1e6.

    >>> parse_count("1e6", "samples"), parse_count("10", "width")
    (1000000, 10)
    """
    from finetti.core.numbers import as_whole

    try:
        value = int(text) if text.strip("+-").isdigit() else float(text)
    except ValueError as error:
        raise InputError(f"--{option} {text} is not a number. Write 1000 or 1e6.") from error
    return as_whole(value, option, "finetti bound")


def option_names() -> dict[str, str]:
    """How the command line calls Python's arguments; other names are those of --norms."""
    from finetti.bounds.sweep import VARIABLES

    options = {name: each.option for each in VARIABLES for name in (each.option, each.field)}
    options |= {name: name for name in ("form", "solve", "gap", "constant", "measured", "norms")}
    return {name: f"--{option}" for name, option in options.items()}


def _count(option: str, help: str) -> Any:
    return typer.Option(f"--{option}", metavar="N", help=help)


def bound(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Bound to evaluate, such as S-thm-A.17; globs and words list bounds.",
        ),
    ] = None,
    layers: Annotated[str, _count("layers", "Number of layers.")] = "1",
    width: Annotated[str, _count("width", "Token dimension.")] = "64",
    heads: Annotated[str, _count("heads", "Attention heads per layer.")] = "1",
    head_dimension: Annotated[
        str | None,
        _count("head-dimension", "Head dimension; ⌈width / heads⌉ by default."),
    ] = None,
    context_length: Annotated[str, _count("context-length", "Tokens per sequence.")] = "1000",
    samples: Annotated[str, _count("samples", "Sequences in the sample.")] = "10000",
    norms: Annotated[
        Path | None,
        typer.Option(
            "--norms", metavar="FILE", help="JSON file of norms by name; norms are 1 by default."
        ),
    ] = None,
    input_norm: Annotated[float, typer.Option(help="Norm of the longest token.")] = 1.0,
    loss_lipschitz: Annotated[float, typer.Option(help="Lipschitz constant of the loss.")] = 1.0,
    loss_bound: Annotated[float, typer.Option(help="Range of the loss.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Probability that the bound fails.")] = 0.05,
    resolution: Annotated[float, typer.Option(help="Resolution ε of a covering number.")] = 0.1,
    form: Annotated[
        str,
        typer.Option(
            "--form", metavar="derived|printed", help="Formula as proven here, or as printed."
        ),
    ] = "derived",
    solve: Annotated[
        str | None,
        typer.Option(
            "--solve", metavar="samples|heads|tokens", help="Size to solve for, given --gap."
        ),
    ] = None,
    gap: Annotated[float | None, typer.Option(help="Target value for --solve.")] = None,
    constant: Annotated[
        float | None,
        typer.Option(help="Constant of a bound known only up to scaling, for --solve."),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="WHAT=LOW:HIGH",
            help="Size or norm to vary, such as T=1e2:1e6; --list shows the letters.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw the sweep to this .svg, .png, .pdf, or .html file."
        ),
    ] = None,
    table_format: Annotated[
        TableFormat | None,
        typer.Option("--format", help="Print the values or the sweep as a table."),
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Show what increasing each norm by 10% does.")
    ] = False,
    measured: Annotated[
        float | None, typer.Option(help="Measured value to compare with the bound.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the statement, source, quantity, and assumptions."),
    ] = False,
    show_list: Annotated[
        bool, typer.Option("--list", help="List all bounds, one per line.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Evaluate the papers' bounds: capacity, generalization gap, and samples needed."""
    from finetti.bounds import BoundSettings, Sample, load_bounds
    from finetti.cli.bound_sweep import write_sweep

    registry = load_bounds()
    if not show_list and not names:
        raise FinettiError(
            "Give the name of a bound, as in `finetti bound S-thm-A.17`, words to search for, as "
            "in `finetti bound transformer gap`, or --list to see them all."
        )
    words = [name for name in names or () if name not in registry]
    if show_list or len(words) == len(names or ()):
        _write_list(registry.select(" ".join(words)) if words else registry, as_json)
        return
    chosen = [registry.get(name) for name in names or ()]
    if explain:
        _explain(chosen, as_json)
        return
    _refuse_both("--sweep", sweep, "--measured", measured)
    _refuse_both("--sweep", sweep, "--sensitivity", sensitivity or None)
    _refuse_both("--json", as_json or None, "--format", table_format)
    _refuse_both("--sensitivity", sensitivity or None, "--format", table_format)
    if plot is not None and sweep is None:
        raise FinettiError(
            "--plot draws a sweep. Add --sweep, for example --sweep context-length=1e2:1e6."
        )
    if plot is not None:
        from finetti.display.charts.line_charts import check_chart_file

        check_chart_file(plot)
    if (solve is None) != (gap is None):
        raise FinettiError("--solve and --gap go together, for example --solve samples --gap 0.1.")
    if constant is not None and solve is None:
        raise FinettiError("--constant needs --solve, for example --solve samples --gap 0.1.")
    with options_named(option_names(), OF_NORMS):
        of_a_head = parse_count(head_dimension, "head-dimension") if head_dimension else None
        settings = BoundSettings(
            n_layers=parse_count(layers, "layers"),
            width=parse_count(width, "width"),
            n_heads=parse_count(heads, "heads"),
            head_dimension=of_a_head,
            resolution=resolution,
            form=cast("Any", form),  # refused below, in one sentence, if it is another word
            norms=_read_norms(norms),
        )
        sample = Sample(
            n_samples=parse_count(samples, "samples"),
            context_length=parse_count(context_length, "context-length"),
            input_norm=input_norm,
            loss_lipschitz=loss_lipschitz,
            loss_bound=loss_bound,
            delta=delta,
        )
        goal = {"solve": solve, "gap": gap, "constant": constant}
        if sweep is not None:
            found = _sweep(sweep, chosen, settings, sample, goal)
            write_sweep(found, plot, table_format, as_json)
        else:
            answers = _answers(chosen, settings, sample, goal, sensitivity, measured)
            _write(answers, table_format, as_json)


def _refuse_both(first: str, one: Any, second: str, other: Any) -> None:
    if one is not None and other is not None:
        raise FinettiError(f"{first} and {second} cannot be combined. Leave one out.")


def _sweep(
    text: str,
    chosen: "list[type[Bound]]",
    settings: "BoundSettings",
    sample: "Sample",
    goal: dict[str, Any],
) -> "Sweep":
    from finetti.bounds.sweep import sweep
    from finetti.cli.bound_sweep import parse_sweep

    variable, values = parse_sweep(text)
    found = sweep(chosen, variable, values, settings, sample, **goal)
    _say_unread(found.unread)
    return found


def _say_unread(unread: Mapping[str, frozenset[str]]) -> None:
    """Tell which of several bounds does not have a norm that another one reads."""
    for name, norms in unread.items():
        if norms:
            what = f"{name} has no norm called {', '.join(map(repr, sorted(norms)))}"
            say(f"{what}, which does not affect it.", err=True)


def _answers(
    chosen: "list[type[Bound]]",
    settings: "BoundSettings",
    sample: "Sample",
    goal: dict[str, Any],
    sensitivity: bool,
    measured: float | None,
) -> "list[tuple[type[Bound], dict[str, Any]]]":
    """For every bound what was asked of it, by name."""
    from finetti.bounds import build_bounds, sensitivities
    from finetti.bounds.registry import unread_norms
    from finetti.bounds.solve import solve

    answers = []
    for each in chosen:
        each.check_loss(sample)  # before another bound is offered that refuses it, too
    built = build_bounds(chosen, settings)
    _say_unread({each.name: unread_norms(each, settings) for each in chosen})
    for bound in built:
        # The sizes given may be too small for the theorem: they are what is asked for.
        asked: dict[str, Any] = {}
        if goal["solve"] is None:
            asked["value"] = bound.evaluate(sample)
        else:
            count, gap, constant = goal.values()
            asked["needed"] = solve(bound, count, gap, sample, constant)
        if sensitivity:
            asked["sensitivity"] = sensitivities(bound, sample)
        if measured is not None:
            asked["comparison"] = bound.evaluate(sample).compare(measured)
        answers.append((type(bound), asked))
    return answers


def _write(
    answers: "list[tuple[type[Bound], dict[str, Any]]]",
    table_format: TableFormat | None,
    as_json: bool,
) -> None:
    if as_json:
        plain = [describe_bound(bound) | _plain(asked) for bound, asked in answers]
        say(json.dumps(plain, indent=1, allow_nan=False))
    elif table_format is not None:
        from finetti.display import Table

        columns = ("bound", "quantity", "value", "kind", "form", "vacuous", "measured")
        rows = []
        for bound, asked in answers:
            value = asked.get("value") or asked["needed"]
            compared = asked["comparison"].measured if "comparison" in asked else None
            found = (value.quantity, value.number, value.kind, value.form, value.vacuous)
            rows.append((bound.name, *found, compared))
        say(format_table(Table("", columns, tuple(rows)), table_format))
    else:
        console = make_console()
        for _, asked in answers:
            for shown in asked.values():
                console.print(shown)


def describe_bound(each: "type[Bound]") -> dict[str, Any]:
    """A bound as plain data."""
    from finetti.bounds.symbols import explain_symbols

    return {
        "name": each.name,
        "paper": each.paper or None,
        "title": each.title,
        "statement": each.statement,
        "symbols": explain_symbols(each.statement),
        "citation": each.citation,
        "quantity": each.quantity,
        "kind": each.derived_kind,
        "printed_kind": each.printed_kind,
        "assumes": list(each.assumes),
        "norms": list(each.norm_names()),
    }


def _read_norms(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    from finetti.core.files import parse_json, read_file

    content = read_file(path)
    try:
        return parse_json(content, str(path))
    except InputError as error:
        advice = 'Write names and numbers, such as {"value_norm": 2.0}.'
        raise InputError(f"{error} {advice}") from error


def _plain(asked: dict[str, Any]) -> dict[str, Any]:
    from finetti.bounds.value import finite

    plain: dict[str, Any] = asked["value"].to_dict() if "value" in asked else {}
    if "needed" in asked:
        plain["needed"] = asked["needed"].to_dict()
    if "sensitivity" in asked:
        found = asked["sensitivity"]
        plain["sensitivity"] = {row.field: finite(row.ratio) for row in found}
        plain["sensitivity_exponents"] = {row.field: finite(row.exponent) for row in found}
        plain["sensitivity_refused"] = dict(found.refused)
    if "comparison" in asked:
        plain["measured"] = asked["comparison"].measured
        plain["obeyed"] = asked["comparison"].obeyed
    return plain


def _write_list(registry: "Registry", as_json: bool) -> None:
    """A line per bound that fits the terminal: name, statement, kind; then the letters."""
    from rich.text import Text

    from finetti.bounds.sweep import VARIABLES

    if as_json:
        say(json.dumps([describe_bound(each) for each in registry], indent=1))
        return
    console = make_console()
    name_width = max(len(each.name) for each in registry)
    kind_width = max(len(each.derived_kind) for each in registry)
    for each in registry:
        statement = Text(each.statement)
        room = max(console.width - name_width - kind_width - 4, 10)
        statement.truncate(room, overflow="ellipsis", pad=True)
        name, kind = Text(f"{each.name:<{name_width}}  ", style="bold"), Text(each.derived_kind)
        console.print(Text.assemble(name, statement, "  ", kind), soft_wrap=True)
    letters = [f"{each.letter} {each.option}" for each in VARIABLES if each.letter]
    say(f"Letters: {', '.join(letters)}.", err=True)


def _explain(chosen: "list[type[Bound]]", as_json: bool) -> None:
    """What the bounds say and assume, without a value."""
    from finetti.bounds.symbols import explain_symbols
    from finetti.display.card import Card
    from finetti.display.terminal import renderable

    if as_json:
        say(json.dumps([describe_bound(each) for each in chosen], indent=1))
        return
    for each in chosen:
        symbols = explain_symbols(each.statement)
        rows = (
            ("statement", each.statement),
            *(("where", f"{letter}: {words}") for letter, words in symbols.items()),
            ("source", each.citation),
            ("quantity", each.quantity),
            ("kind", each.derived_kind),
            ("kind as printed", each.printed_kind),
            *(("assumes", words) for words in each.assumes),
            ("reads of --norms", ", ".join(each.norm_names()) or "nothing"),
        )
        make_console().print(renderable(Card(f"{each.name}: {each.title}", rows)))

"""``finetti bound``: what a theorem gives for a network and a sample, and what it asks for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.options import Debug, Json, options_named
from finetti.cli.output import make_console, say, say_json, tell
from finetti.core.errors import FinettiError, InputError
from finetti.display.table_text import TableFormat, format_table

if TYPE_CHECKING:
    from finetti.bounds import BoundReport, Registry

OF_NORMS = " (of --norms)"


def parse_count(text: str, option: str) -> int:
    """A whole number, as 1000 or 1e6.

    >>> parse_count("1e6", "samples"), parse_count("10", "width")
    (1000000, 10)
    """
    from finetti.core.arguments import as_whole

    try:
        value = int(text) if text.strip("+-").isdigit() else float(text)
    except ValueError as error:
        raise InputError(f"--{option} {text} is not a number. Write 1000 or 1e6.") from error
    return as_whole(value, option, "finetti bound")


def _count(option: str, help: str) -> Any:
    return typer.Option(f"--{option}", metavar="N", help=help)


def bound(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Bound to evaluate, such as S-thm-A.17; globs and words list bounds.",
        ),
    ] = None,
    n_layers: Annotated[str, _count("layers", "Number of layers.")] = "1",
    width: Annotated[str, _count("width", "Token dimension.")] = "64",
    n_heads: Annotated[str, _count("heads", "Attention heads per layer.")] = "1",
    head_dimension: Annotated[
        str | None,
        _count("head-dimension", "Head dimension; ⌈width / heads⌉ by default."),
    ] = None,
    context_length: Annotated[str, _count("context-length", "Tokens per sequence.")] = "1000",
    n_samples: Annotated[str, _count("samples", "Sequences in the sample.")] = "10000",
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
    from finetti.bounds import evaluate_bound, load_bounds
    from finetti.bounds.evaluation.bound_report import describe_bound, explain_bound
    from finetti.display.terminal import renderable

    registry = load_bounds()
    if not show_list and not names:
        raise FinettiError(
            "Give the name of a bound, as in `finetti bound S-thm-A.17`, words to search for, as "
            "in `finetti bound transformer gap`, or --list to see them all."
        )
    words = [name for name in names or () if name not in registry]
    _refuse_claims(words)
    if show_list or len(words) == len(names or ()):
        _write_list(registry.select(" ".join(words)) if words else registry, as_json)
        return
    if explain:
        chosen = [registry[name] for name in names or ()]
        if as_json:
            say_json([describe_bound(each) for each in chosen])
            return
        for each in chosen:
            make_console().print(renderable(explain_bound(each)))
        return
    _refuse_both("--json", as_json or None, "--format", table_format)
    _refuse_both("--sensitivity", sensitivity or None, "--format", table_format)
    if plot is not None:
        if sweep is None:
            raise FinettiError(
                "--plot draws a sweep. Add --sweep, for example --sweep context-length=1e2:1e6."
            )
        from finetti.display.charts.line_charts import check_chart_file

        check_chart_file(plot)
    given: Any = {"form": form, "solve": solve, "gap": gap, "constant": constant}
    with options_named(context, OF_NORMS):
        of_a_head = parse_count(head_dimension, "head-dimension") if head_dimension else None
        report = evaluate_bound(
            *(names or ()),
            n_layers=parse_count(n_layers, "layers"),
            width=parse_count(width, "width"),
            n_heads=parse_count(n_heads, "heads"),
            head_dimension=of_a_head,
            context_length=parse_count(context_length, "context-length"),
            n_samples=parse_count(n_samples, "samples"),
            norms=norms,
            input_norm=input_norm,
            loss_lipschitz=loss_lipschitz,
            loss_bound=loss_bound,
            delta=delta,
            resolution=resolution,
            sweep=sweep,
            sensitivity=sensitivity,
            measured=measured,
            **given,
        )
    for remark in report.remarks:
        tell(remark)
    if as_json:
        document = report.to_dict()
        say_json(document.get("bounds", document))
    elif table_format is not None:
        say(format_table(report.table(), table_format))
        for note in report.swept.notes() if report.swept else ():
            tell(note)
    else:
        make_console().print(report)
    if plot is not None:
        _draw(report, plot)


def _refuse_claims(words: list[str]) -> None:
    """Say what an id of the ledger is that gives no number: an identity or a construction."""
    ids = [word for word in words if word[1:2] == "-"]
    if not ids:  # the ledger takes a second to load
        return
    from finetti.claims import load_ledger

    ledger = load_ledger()
    for word in ids:
        if word in ledger:
            claim = ledger[word]
            raise FinettiError(
                f"{claim.id} ({claim.title}) is a claim that gives no number for sizes and norms. "
                f"`finetti claims {claim.id}` explains it, `finetti reproduce --only {claim.id}` "
                "checks it."
            )


def _refuse_both(first: str, one: Any, second: str, other: Any) -> None:
    if one is not None and other is not None:
        raise FinettiError(f"{first} and {second} cannot be combined. Leave one out.")


def _draw(report: "BoundReport", plot: Path) -> None:
    assert report.swept is not None
    records = report.swept.records()
    if any(each["value"] is None for each in records) and any(e["sign"] == -1 for e in records):
        tell("Negative values have no logarithm: they are gaps in the chart.")
    saved = report.swept.chart().save(plot)
    make_console(stderr=True).print(f"Chart: {saved}", soft_wrap=True)


def _write_list(registry: "Registry", as_json: bool) -> None:
    """A line per bound that fits the terminal: name, statement, kind; then the letters."""
    from rich.text import Text

    from finetti.bounds.evaluation.bound_report import describe_bound
    from finetti.bounds.evaluation.sweep import VARIABLES

    if as_json:
        say_json([describe_bound(each) for each in registry])
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
    tell(f"Letters: {', '.join(letters)}.")

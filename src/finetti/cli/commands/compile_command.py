"""``finetti compile``: a rule as Transformer weights, with a certificate; or a file, checked."""

from pathlib import Path
from typing import Annotated, Any

import typer

from finetti.boolean.embeddings import EMBEDDINGS
from finetti.cli.options import Debug, Json, Seed, options_named
from finetti.cli.output import make_console, say_json, tell
from finetti.core.errors import InputError
from finetti.core.files import check_writable

# Names in Python that no option has.
FURTHER = {"gates=True": "--gates", "gates=False": "`finetti compile` without --gates"}
FORMATS = ("safetensors", "torch")
# All that --check reads.
OF_CHECK = ("rule", "check", "against", "tolerance", "as_json", "debug")


def compile_command(
    context: typer.Context,
    rule: Annotated[
        str | None,
        typer.Argument(
            metavar="RULE", help="Boolean rule, such as 'x3 & (x7 | ~x9)' or 'maj(x1, x5, x9)'."
        ),
    ] = None,
    context_length: Annotated[
        int | None, typer.Option("--context-length", min=1, help="Number of input bits.")
    ] = None,
    embedding: Annotated[
        str,
        typer.Option("--embedding", help=f"Token embedding: {', '.join(EMBEDDINGS)}."),
    ] = EMBEDDINGS[0],
    basis: Annotated[
        str,
        typer.Option(
            "--basis",
            help="Position vectors: orthonormal (T dimensions) or random (O(s log T) dimensions).",
        ),
    ] = "orthonormal",
    width: Annotated[
        int | None, typer.Option("--width", min=1, help="Token dimension; automatic by default.")
    ] = None,
    margin: Annotated[
        float,
        typer.Option(
            "--margin", help="Factor ≥ 1 between what the lookup tolerates and the head's error."
        ),
    ] = 1.0,
    gates: Annotated[
        bool,
        typer.Option(
            "--gates", help="Build one block per level of parentheses, one token per gate."
        ),
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="FILE",
            help="File to verify instead of compiling; exits with 1 unless proven.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--rule",
            metavar="RULE",
            help="Rule that --check compares with; the file's own by default.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", help="Largest error that --check accepts; 1e-9 by default."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="File to write the weights to."),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Of --out: safetensors, or torch, a state dict (.pt) with a module (.py) that "
            "needs PyTorch only.",
        ),
    ] = FORMATS[0],
    picture: Annotated[
        Path | None,
        typer.Option(
            "--explain",
            metavar="FILE",
            help="Draw the attention to this .svg, .png, .pdf, or .html file.",
        ),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compile a Boolean rule to Transformer weights and prove them, or check a file."""
    if check is not None:
        _refuse_unused(context)
        if rule is not None and against is not None:
            raise InputError("--check FILE takes one rule: RULE or --rule, not both.")
        _check(context, check, against or rule, tolerance, as_json)
        return
    if tolerance is not None:
        raise InputError(
            "--tolerance only applies to --check FILE: what is compiled must be exact."
        )
    if against is not None:
        raise InputError("--rule only applies to --check FILE: what is compiled is RULE itself.")
    if rule is None or context_length is None:
        missing = "a RULE" if rule is None else "--context-length"
        raise InputError(
            f"`finetti compile` needs {missing}, as in: finetti compile 'x3 & x7' "
            "--context-length 100 (or --check FILE)."
        )
    _check_places(context, out, form, picture)
    from finetti.boolean import compile_rule

    with options_named(context, **FURTHER):
        made = compile_rule(
            _parse(rule),
            context_length,
            embedding,
            basis,
            width=width,
            margin=margin,
            gates=gates,
            seed=seed,
        )
    people = make_console(stderr=as_json)
    people.print(made)
    if not made.as_expected and not gates:
        people.print("A rule of many bits is easier to prove as gates: add --gates.")
    if out is not None:
        files = made.save_torch(out) if form == "torch" else (made.save(out),)
        people.print(f"Weights: {' and '.join(map(str, files))}", soft_wrap=True)
    if picture is not None:
        people.print(f"Picture: {made.explain().save(picture)}", soft_wrap=True)
    if as_json:
        say_json(made.to_dict())
    raise typer.Exit(0 if made.as_expected else 1)


def _refuse_unused(context: typer.Context) -> None:
    """Refuse options that were written, be it with their default, and that --check ignores."""
    unused = []
    for each in context.command.params:
        source = context.get_parameter_source(each.name or "")
        if each.name not in OF_CHECK and source is not None and source.name == "COMMANDLINE":
            unused.append(each.opts[0])
    if unused:
        said = " or ".join(unused)
        raise InputError(f"--check only verifies a file: leave out {said}.")


def _check_places(
    context: typer.Context, out: Path | None, form: str, picture: Path | None
) -> None:
    """Refuse what cannot be written before anything is computed."""
    from finetti.boolean.network.weight_file import check_torch_place
    from finetti.display.charts.line_charts import check_chart_file

    if form not in FORMATS:
        raise InputError(f"--format must be one of {', '.join(FORMATS)}. Got {form!r} instead.")
    if form == "torch" and out is None:
        raise InputError("--format torch needs a file to write to: --out rule.pt.")
    if out is not None:
        with options_named(context, path="--out", save_torch="`finetti compile --format torch`"):
            check_torch_place(out) if form == "torch" else check_writable(out)
    if picture is not None:
        check_chart_file(picture)


def _parse(rule: str) -> Any:
    """The rule; a syntax error shows its place before the sentence that names it."""
    from finetti.boolean import RuleSyntaxError, parse

    try:
        return parse(rule)
    except RuleSyntaxError as error:
        tell(error.picture)
        raise InputError(error.sentence) from error


def _check(
    context: typer.Context, path: Path, rule: str | None, tolerance: float | None, as_json: bool
) -> None:
    from finetti.boolean import load
    from finetti.boolean.certificate import EXACT_RTOL
    from finetti.boolean.compiler.rule_compiler import verification_bar
    from finetti.display.formatting import short_text

    loaded = load(path)
    function = loaded.function if rule is None else _parse(rule)
    tolerance = EXACT_RTOL if tolerance is None else tolerance
    with options_named(context), verification_bar("check") as on_progress:
        found = loaded.verify(function, tolerance, on_progress)
    wrong, text = found.counterexample, short_text(str(function))
    people = make_console(stderr=as_json)
    if wrong is not None:
        said = f"does not compute {text}: {wrong}."
    elif found.proven:
        how = "exact" if tolerance == EXACT_RTOL else f"right up to {tolerance:g}"
        said = f"computes {text}: {how} on {found.method}; proven on all inputs."
        if found.rounding > found.tolerance:
            said += f" Sums in another order may move its value by {found.rounding:.2g}."
    else:
        said = (
            f"is NOT PROVEN to compute {text}: no counterexample was found on {found.method}, "
            f"but {found.why_not}."
        )
    people.print(f"{path.name} {said}", soft_wrap=True)
    if as_json:
        document = {"file": path.name, "rule": str(function), **found.to_dict()}
        say_json(document)
    raise typer.Exit(0 if found.proven else 1)

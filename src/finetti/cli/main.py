"""The entry of the command ``finetti``. Loads nothing heavy: commands import what they use."""

import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from finetti._version import __version__
from finetti.cli.commands.audit_command import audit
from finetti.cli.commands.bound_command import bound
from finetti.cli.commands.claims_command import claims
from finetti.cli.commands.coherence_command import coherence
from finetti.cli.commands.compile_command import compile_command
from finetti.cli.commands.probe_command import probe
from finetti.cli.commands.reproduce_command import reproduce
from finetti.cli.commands.risk_command import risk
from finetti.cli.commands.study_command import export, merge, run, status
from finetti.cli.commands.view_command import view
from finetti.cli.options import DEBUG, Debug
from finetti.cli.output import AGAIN, ends_with, say, tell
from finetti.cli.pipes import forgive_closed_pipes, told_if_unwritten
from finetti.core.errors import FinettiError
from finetti.core.process_tuning import relax_gc
from finetti.studies.interruption import end_with_first_interruption


class Commands(TyperGroup):
    """Commands whose errors, where the user can fix them, are one sentence and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and say what went wrong."""
        try:
            with ends_with(AGAIN):
                return super().invoke(ctx)
        except FinettiError as error:
            if ctx.meta.get(DEBUG):
                tell(traceback.format_exc())
            tell(f"Error: {' '.join(str(error).split())}")
            raise typer.Exit(2) from error


def _show_version(value: bool) -> None:
    if value:
        say(f"finetti {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """The statistics of attention: the papers' claims, checked on your machine."""


app = typer.Typer(
    name="finetti",
    cls=Commands,
    callback=_root,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 as expected, 1 something is not as expected, 2 usage error, "
    "130 interrupted.",
)
app.command("audit")(audit)
app.command("bound")(bound)
app.command("claims")(claims)
app.command("coherence")(coherence)
app.command("compile")(compile_command)
app.command("export")(export)
app.command("merge")(merge)
app.command("probe")(probe)
app.command("reproduce")(reproduce)
app.command("risk")(risk)
app.command("run")(run)
app.command("status")(status)
app.command("view")(view)


def main() -> None:
    """Run ``finetti`` with the arguments of the process."""
    relax_gc()
    forgive_closed_pipes()
    end_with_first_interruption()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot write λ or ≤ shows ? and does not end the run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    with told_if_unwritten():
        app(prog_name="finetti")

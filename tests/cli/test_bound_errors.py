"""Errors of `finetti bound` name arguments as the command line does."""

import re
from dataclasses import replace

import pytest
from typer.main import get_command

from finetti.bounds import BoundSettings, Sample, build_bounds, load_bounds, sweep
from finetti.bounds.count_solver import solve
from finetti.cli.commands.bound_command import OF_NORMS
from finetti.cli.main import app
from finetti.cli.options import name_options, option_names
from finetti.core.errors import FinettiError

REGISTRY = load_bounds()
NORMS = {name for bound in REGISTRY for name in bound.norm_names()}
COMMAND = get_command(app).commands["bound"]
OPTIONS = {option for each in COMMAND.params for option in each.opts}
SETTINGS, SAMPLE = BoundSettings(width=4), Sample(10**4, 10)


def check_names(text):
    """Every argument in a sentence is an option, or a norm of the file that --norms names."""
    assert "argument of" not in text
    assert {*re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)} <= OPTIONS, text
    for quoted in re.findall("`([^`]*)`", text):
        assert quoted in NORMS or quoted.startswith("finetti bound "), text
    first = re.search(r"`\w+`(.{0,13})", text)
    assert first is None or first[1] == " (of --norms)", text


def refused(call):
    """The sentence of a call that has to be refused; None where it is not."""
    try:
        call()
    except FinettiError as error:
        return name_options(error, option_names(COMMAND), OF_NORMS)
    return None


@pytest.mark.parametrize("bound", REGISTRY, ids=lambda bound: bound.name)
def test_every_norm_that_is_refused_is_named(bound):
    seen = 0
    for name in bound.norm_names():
        for bad in ("bad", -1, 0, [], None, {}, [{"bad": 1}], "trained", "sharp", True, 1.5):
            others = {"target": "correlation_times_power"} if "degree" in name else {}
            for form in ("derived", "printed"):
                settings = replace(SETTINGS, form=form, norms={**others, name: bad})

                def call(settings=settings):
                    (built,) = build_bounds([bound], settings)
                    built.evaluate(SAMPLE)

                text = refused(call)
                if text is not None:
                    check_names(text)
                    seen += 1
    assert seen or not bound.norm_names()


@pytest.mark.parametrize("bound", REGISTRY, ids=lambda bound: bound.name)
@pytest.mark.parametrize("count", ["samples", "heads", "tokens"])
def test_what_cannot_be_solved_for_is_named(bound, count):
    (built,) = build_bounds([bound], SETTINGS)
    goals = [(gap, constant) for gap in (0.0, 1e-300) for constant in (None, 0.0)]
    found = [refused(lambda g=goal: solve(built, count, g[0], SAMPLE, g[1])) for goal in goals]
    assert any(found)
    for text in filter(None, found):
        check_names(text)


@pytest.mark.parametrize(
    "call",
    [
        lambda: BoundSettings(width=0),
        lambda: BoundSettings(head_dimension=-1),
        lambda: BoundSettings(resolution=0.0),
        lambda: BoundSettings(form="guessed"),
        lambda: BoundSettings(norms=[1]),
        lambda: Sample(10, 10, delta=2.0),
        lambda: Sample(10, 10, loss_bound=-1.0),
        lambda: Sample(10, 10, input_norm=-1.0),
        lambda: Sample(10, 10, loss_lipschitz=-1.0),
        lambda: Sample(10, 0),
        lambda: solve(build_bounds([REGISTRY["S-lemma-2.2"]], SETTINGS)[0], "layers", 0.1, SAMPLE),
        lambda: sweep([REGISTRY["S-lemma-2.2"]], "nonsense", [1.0]),
    ],
)
def test_what_the_options_cannot_be_is_named(call):
    check_names(refused(call))


def test_a_name_that_is_no_argument_is_seen():
    for text in ("Give a `widht` (of --norms).", "Give --widht.", "The `width` argument of Sample"):
        with pytest.raises(AssertionError):
            check_names(text)

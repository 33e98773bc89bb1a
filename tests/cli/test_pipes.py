"""Readers that leave early: no traceback, and the exit code of the run."""

import subprocess
import sys

import pytest

MAX_WAIT_SECONDS = 600  # no machine is that slow
LONG = ("claims", "--json")  # more than a pipe holds
WRONG = ("claims", "nothing-like-this")


@pytest.mark.parametrize(("arguments", "code"), [(LONG, 0), (WRONG, 2)])
def test_a_closed_pipe_ends_nothing(arguments, code):
    command = [sys.executable, "-m", "finetti", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(MAX_WAIT_SECONDS) == code, errors
    assert "Pipe" not in errors
    assert "Traceback" not in errors


def test_stderr_may_be_closed_too():
    command = [sys.executable, "-m", "finetti", *WRONG]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stderr.close()
        assert process.stdout.read() == b""
        assert process.wait(MAX_WAIT_SECONDS) == 2

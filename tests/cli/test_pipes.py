"""Readers that leave early: no traceback, and the exit code of the run."""

import os
import subprocess
import sys

import pytest

from finetti.cli.pipes import PatientFile

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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_is_told_in_a_sentence():
    full = os.open("/dev/full", os.O_WRONLY)  # a device that refuses every byte
    command = [sys.executable, "-m", "finetti", "--version"]
    done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: The output cannot be written: No space left")
    assert done.stderr.count("\n") == 1
    both = subprocess.run(command, stdout=full, stderr=full, check=False)
    assert both.returncode == 2
    os.close(full)


def test_what_a_full_pipe_does_not_take_is_not_said_to_be_written():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    file = PatientFile(writer, "w")
    while written := file.write(b"x" * 4096):
        assert written == 4096
    os.read(reader, 4096)
    assert file.write(b"x" * 4096) == 4096
    os.close(reader)
    assert file.write(b"unread") == 6
    assert file.refused is None
    file.close()

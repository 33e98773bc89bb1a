"""Kill it, interrupt it, start it twice: the table is that of a run that nothing happened to."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from pandas.testing import assert_frame_equal

from finetti.core.errors import FinettiError
from finetti.studies import Study, StudyInterrupted
from finetti.studies.executors.resource_limits import usable_cores
from finetti.studies.store.trial_store import Store
from finetti.studies.store.writer_lock import read_holder

from .commands import MAX_WAIT_SECONDS, count, ended, family, finish, start, stored, wait_for

SPEC = """
kind = "learner.py:{kind}"
trials = {trials}
cohort = 4
[grid]
n = {{range = [1, 5, 1]}}
[fixed]
{fixed}
"""


@pytest.fixture
def spec(folder):
    def spec(kind="good", trials=8, fixed=""):
        path = folder / "study.toml"
        path.write_text(SPEC.format(kind=kind, trials=trials, fixed=fixed))
        return path

    return spec


@pytest.fixture
def gate(folder):
    """A file that lets trials end: those with n from 3 on wait for it, whatever the time."""
    return folder / "gate"


CLUSTER = ("--cluster",)


@pytest.fixture
def started(request):
    """A run that has stored something, and all processes that work for it, on the cluster, too."""

    def started(path, store, options):
        if options == CLUSTER:
            options = ("--cluster", request.getfixturevalue("address"))
        before = family()
        process = start("run", path, *options)
        wait_for(lambda: count(store))
        return process, [each for each in family() if each not in before]

    return started


def reference(path):
    study = Study.from_toml(path, store=path.with_name("reference.sqlite"))
    study.run("inline", quiet=True)
    return study.table()


def test_twenty_times_kill_minus_nine(spec, monkeypatch):
    path, draw = spec(trials=30, fixed="pause = 0.04"), random.Random(0)
    store = path.with_suffix(".sqlite")
    before, progressed = {}, 0
    for turn in range(20):
        process = start("run", path, "--quiet")
        children = []

        def has_stored(process=process, before=before):
            return process.poll() is not None or count(store) > len(before)

        if turn % 2:  # in the middle of the trials, however slow the machine is
            wait_for(has_stored)
        else:  # anywhere, imports included
            time.sleep(draw.uniform(0.0, 0.6))
        if process.poll() is None:
            children = family(process)
        process.kill()
        process.communicate()
        after = stored(store)
        # Nothing that was stored is lost or changed.
        assert before.items() <= after.items()
        progressed += len(after) > len(before)
        before = after
        wait_for(lambda children=children: ended(children))
    assert progressed >= 3, "the kills came too early to mean anything"
    code, _, err = finish("run", path, "--quiet")
    assert code == 0, err
    assert before.items() <= stored(store).items()
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # nobody waits for the pauses again
    assert_frame_equal(Study.from_toml(path).table(), reference(path), check_exact=True)


@pytest.mark.parametrize(
    ("number", "options"),
    [(signal.SIGTERM, ()), (signal.SIGINT, ("--workers", "2")), (signal.SIGINT, CLUSTER)],
)
def test_interruptions_end_cleanly_and_can_be_continued(spec, gate, started, number, options):
    path = spec("gated", fixed=f'gate = "{gate}"')
    store = path.with_suffix(".sqlite")
    process, children = started(path, store, options)
    process.send_signal(number)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 130, err
    assert "rerun the same command to resume" in out
    assert "Traceback" not in out + err
    wait_for(lambda: ended(children))
    assert read_holder(store) is None
    before = stored(store)
    assert 0 < len(before) <= 16
    gate.touch()
    code, _, _ = finish("run", path, "--quiet")
    assert code == 0
    assert before.items() <= stored(store).items()
    assert_frame_equal(Study.from_toml(path).table(), reference(path), check_exact=True)


@pytest.mark.parametrize("options", [(), CLUSTER])
def test_impatience_changes_nothing(spec, gate, started, options):
    path = spec("gated", fixed=f'gate = "{gate}"')
    store = path.with_suffix(".sqlite")
    process, children = started(path, store, options)
    while process.poll() is None:  # Ctrl-C, again and again
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert (process.returncode, "Traceback" in out + err) == (130, False), err
    assert "rerun the same command to resume" in out
    wait_for(lambda: ended(children))
    assert not store.with_name(f"{store.name}.lock").exists()


# Interrupted in the middle of a trial, and again when the run has ended and its command goes on.
TWICE = """
import contextlib, os, signal, sys
from finetti.cli import main, output

real = output.private_stdout

@contextlib.contextmanager
def interrupted_at_its_end():
    with real():
        try:
            yield
        finally:
            os.kill(os.getpid(), signal.SIGINT)

output.private_stdout = interrupted_at_its_end
main.main()
"""


def test_a_second_interruption_does_not_take_the_sentence_along(folder):
    (folder / "kind.py").write_text("def f(seed):\n    raise KeyboardInterrupt\n")
    (folder / "study.toml").write_text('kind = "kind.py:f"\ntrials = 3\n')
    command = [sys.executable, "-c", TWICE, "run", "study.toml", "--executor", "inline"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 130, run.stderr
    assert "Interrupted with 3 left: rerun the same command to resume" in run.stdout


def test_an_interruption_in_python_is_one_after_all_is_stored(make_study, folder):
    (folder / "helper.py").write_text("FACTOR = 1.0\n")
    text = (folder / "learner.py").read_text().replace("RuntimeError", "KeyboardInterrupt")
    (folder / "learner.py").write_text(text)
    study = make_study("moody", fixed={"mood": "raises"}, cohort=1, trials=2)
    with pytest.raises(KeyboardInterrupt) as caught:
        study.run("inline", quiet=True)
    assert isinstance(caught.value, StudyInterrupted)
    # The first replicate of every cell comes first, and the second cell is interrupted.
    assert (caught.value.summary.ran, caught.value.summary.pending) == (1, 5)
    assert study.table()["n"].tolist() == [1]
    assert read_holder(study.store) is None


def test_the_second_process_is_told_or_waits(spec):
    path = spec(trials=2)
    with Store(path.with_suffix(".sqlite")):
        code, out, err = finish("run", path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"process {os.getpid()} on" in err
        # Reading needs no lock.
        code, out, _ = finish("status", path)
        assert (code, f"process {os.getpid()} on" in out) == (0, True)
        second = start("run", path, "--wait", "--quiet")
        assert f"process {os.getpid()} on" in second.stderr.readline()
    out, err = second.communicate(timeout=MAX_WAIT_SECONDS)
    assert (second.returncode, err) == (0, "")
    assert "10 of 10 trials done (10 in this run" in out


BUSY = """
import ctypes, pathlib, subprocess
def f(seed):
    other = subprocess.Popen(["sleep", "3600"])
    pathlib.Path({file!r}).write_text(str(other.pid))
    ctypes.PyDLL(None).sleep(3600)  # holds the interpreter's lock
"""


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_nothing_outlives_a_coordinator_that_was_killed(folder, options):
    file = folder / "pid"
    (folder / "busy.py").write_text(BUSY.format(file=str(file)))
    (folder / "busy.toml").write_text('kind = "busy.py:f"\n')
    process = start("run", folder / "busy.toml", "--quiet", *options)
    wait_for(lambda: file.exists() and file.read_text())
    everyone = family(process)
    assert int(file.read_text()) in [each.pid for each in everyone]
    process.kill()
    process.communicate()
    wait_for(lambda: ended(everyone))


def test_an_interruption_while_the_kind_loads_is_quiet(folder):
    file = folder / "loading"
    text = f"open({str(file)!r}, 'w').close()\nimport time\ntime.sleep(3600)\n"
    (folder / "slow.py").write_text(text)
    (folder / "slow.toml").write_text('kind = "slow.py:f"\n')
    process = start("run", folder / "slow.toml")
    wait_for(file.exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert (process.returncode, out, err.count("\n")) == (130, "", 1)


def test_loading_has_a_limit_too(folder, monkeypatch):
    monkeypatch.setattr("finetti.studies.executors.child_process.LOAD_SECONDS", 0.5)
    text = f"import os, time\nif os.getpid() != {os.getpid()}: time.sleep(3600)\n"
    (folder / "slow.py").write_text(text + "def f(seed): return {'x': 1}\n")
    study = Study("slow.py:f", store=folder / "s.sqlite", directory=folder)
    with pytest.raises(FinettiError, match=r"did not load within 0\.5 s"):
        study.run(time_limit=0.1, quiet=True)


def test_a_copy_of_the_process_has_no_say(folder):
    text = "import os\ndef f(seed, n):\n    return {'x': n, 'copy': os.fork() == 0}\n"
    (folder / "forks.py").write_text(text)
    place = {"store": folder / "s.sqlite", "directory": folder}
    study = Study("forks.py:f", grid={"n": [1, 2, 3]}, **place)
    assert study.run(quiet=True).done == 3
    assert not study.table()["copy"].any()


def python(text, folder, stdin=False):
    file = folder / "script.py"
    file.write_text(text)
    arguments = ["-"] if stdin else [str(file)]
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        input=text if stdin else None,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=MAX_WAIT_SECONDS,
        check=False,
    )


OWN = """
from finetti.studies import Study
print("once")
def f(seed, n): return {"x": n}
"""
GUARD = "if __name__ == '__main__':\n    "
RUN = "print(Study({kind}, store='s.sqlite', grid={{'n': [1, 2]}}).run(quiet=True{options}).done)\n"


@pytest.mark.parametrize("options", ["", ", executor='inline'", ", workers=1"])
def test_a_script_is_not_run_again_by_its_workers(folder, options):
    text = OWN + GUARD + RUN.format(kind="f", options=options)
    done = python(text, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "2"
    # What its children print is theirs; in this process the file runs twice at most (inline).
    assert done.stdout.count("once") == (2 if "inline" in options else 1)


def test_a_script_without_a_guard_is_told(folder):
    done = python(OWN + RUN.format(kind="f", options=""), folder)
    assert "if __name__ == '__main__'" in done.stderr
    assert not list(folder.glob("s.sqlite?*"))  # neither a journal nor a lock is left


def test_kinds_of_modules_need_no_guard(folder):
    kind = repr("learner.py:good")
    for stdin in (True, False):
        (folder / "s.sqlite").unlink(missing_ok=True)
        text = "from finetti.studies import Study\n" + RUN.format(kind=kind, options="")
        done = python(text, folder, stdin)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_what_was_typed_in_has_no_file(folder):
    done = python(OWN + RUN.format(kind="f", options=""), folder, stdin=True)
    assert "has no source file" in done.stderr


def test_a_worker_has_its_thread_budget(folder):
    (folder / "threads.py").write_text(
        "import os\n"
        "def f(seed): return {'threads': os.environ['OMP_NUM_THREADS'], 'in': os.environ['MINE']}\n"
    )
    study = Study("threads.py:f", store=folder / "t.sqlite", directory=folder)
    environment = {**os.environ, "MINE": "kept"}
    environment.pop("OMP_NUM_THREADS", None)
    (folder / "t.toml").write_text('kind = "threads.py:f"\n')
    code, _, err = finish("run", folder / "t.toml", "--workers", "2", "-q", env=environment)
    assert code == 0, err
    threads = str(max(1, usable_cores() // 2))
    assert study.table()[["threads", "in"]].values.tolist() == [[threads, "kept"]]

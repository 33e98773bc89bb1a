"""What every executor and every store promises, member by member."""

import shutil
import socket
from collections import Counter
from time import monotonic
from types import SimpleNamespace

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from finetti.studies import Study
from finetti.studies.executors.child_process import ChildProcess
from finetti.studies.executors.executor import Executor, Failure, FailureReason, Report
from finetti.studies.executors.local_executor import open_executor
from finetti.studies.store.store_reader import open_store
from finetti.studies.trials import outcome_of

from .conftest import MATERIAL

EXECUTORS = ["inline", "local", "dask"]
GUARDED = ["local", "dask"]  # those that can end a trial


@pytest.fixture
def run(request):
    """Run a study with an executor, by its name."""

    def run(study, executor, **options):
        options.setdefault("quiet", True)
        if executor == "dask":
            return study.run(cluster=request.getfixturevalue("address"), **options)
        return study.run(executor, **options)

    return run


@pytest.fixture
def expected(make_study):
    """The table that every executor and store must give."""

    def expected(kind, **fields):
        study = make_study(kind, store=f"reference-{kind}.sqlite", **fields)
        study.run("inline", quiet=True)
        return study.table()

    return expected


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", ["good", "Together"])
def test_tables_do_not_depend_on_executor_or_cohort(make_study, run, expected, kind, executor):
    study = make_study(kind, cohort=5)
    summary = run(study, executor)
    assert (summary.trials, summary.done, summary.ran) == (12, 12, 12)
    assert_frame_equal(study.table(), expected(kind), check_exact=True)
    again = run(study, executor)
    assert (again.done, again.ran) == (12, 0)


MOODS = {
    "raises": "RuntimeError: no luck",
    "nan": "`loss` is not a number",
    "exit": "SystemExit: 3",
    "list": "returned list",
    "half": "must be Unicode text",
    "half-raised": r"RuntimeError: half \\udfff",
    "digits": "at most 4000 digits",
    "nothing": "no metrics",
    "talk": "more than 64000 characters",
    "late": "RuntimeError: too late",
    "number": "has the name 1, which is of type int.*write '1'",
}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_trial_that_goes_wrong_fails_alone(make_study, run, executor):
    study = make_study("moody", grid={"mood": list(MOODS), "n": [1, 2, 3]}, trials=2)
    summary = run(study, executor)
    assert (summary.done, summary.failed) == (4 * len(MOODS), 2 * len(MOODS))
    for mood, table in study.table().groupby("mood"):
        assert (table[table["n"] == 2]["state"] == "failed").all()
        assert table[table["n"] == 2]["failure"].str.contains(MOODS[mood]).all()
        assert table[table["n"] == 2]["loss"].isna().all()
        assert table[table["n"] != 2]["loss"].notna().all()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_trials_get_what_they_annotate_and_share_nothing(make_study, run, executor):
    study = make_study("annotated", fixed={"layer": {"widths": [7]}}, trials=2)
    assert run(study, executor).done == 6
    table = study.table()
    assert set(table["types"]) == {"Color tuple Path Decimal frozenset Layer Color NoneType"}
    assert table["widths"].tolist() == [f"[7, {n}]" for n in (1, 1, 2, 2, 3, 3)]
    assert set(table["metric.rate"]) == {0.1}
    fixed = {"options": {"a": [5]}, "layer": {"widths": []}}
    together = make_study("Spoiling", fixed=fixed, trials=2)
    assert run(together, executor).done == 6
    assert together.table()["a"].tolist() == [f"[5, {n}]" for n in (1, 1, 2, 2, 3, 3)]
    assert set(together.table()["b"]) == {1}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_cohort_that_leaves_the_process_is_split(make_study, run, executor):
    fixed = {"poison": 2, "how": "exit"}
    study = make_study("Together", fixed=fixed, trials=1)
    summary = run(study, executor)
    assert (summary.done, summary.failed) == (2, 1)
    assert study.table()["failure"].tolist()[1] == "SystemExit: 3"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_modules_that_the_ids_do_not_know_fail_the_trial(folder, run, executor):
    (folder / "hidden.py").write_text("VALUE = 1\n")
    (folder / "sly.py").write_text(
        "import importlib\n"
        "def f(seed, n):\n"
        "    name = 'hid' + 'den' if n == 2 else 'json'\n"
        "    return {'x': len(importlib.import_module(name).__name__)}\n"
    )
    place = {"directory": folder, "grid": {"n": [1, 2, 3]}, "trials": 2}
    study = Study("sly.py:f", store=folder / "sly.sqlite", **place)
    summary = run(study, executor)
    assert (summary.done, summary.failed) == (4, 2)
    failures = study.table().query("n == 2")["failure"]
    assert failures.str.contains("imported hidden by a computed name.*`code_version`").all()
    named = Study("sly.py:f", store=folder / "sly.sqlite", code_version="1", **place)
    assert run(named, executor).done == 6


@pytest.fixture
def clock(folder, monkeypatch):
    """Time passes when an endless trial has begun, so that nobody waits for its limit.

    In this process only: a Dask worker has the clock of the machine.
    """
    flag, poll = folder / "begun", ChildProcess.over_limit
    passed = 0.0

    def jump(child):
        nonlocal passed
        if child.tasks and flag.exists() and not child.connection.poll():
            flag.unlink()
            passed += 3600.0
        return poll(child)

    now = SimpleNamespace(monotonic=lambda: monotonic() + passed)
    monkeypatch.setattr("finetti.studies.executors.child_process.time", now)
    monkeypatch.setattr(ChildProcess, "over_limit", jump)
    return {"time_limit": 600}


@pytest.mark.parametrize("executor", GUARDED)
@pytest.mark.parametrize(
    ("mood", "reason", "limits"),
    [
        ("endless", "did not end within {time_limit} s", {"time_limit": 4}),
        ("greedy", "more than 0.40 GB", {"memory_limit": 0.4}),
        ("crash", "SIGABRT", {}),
    ],
)
def test_a_trial_that_takes_too_much_is_ended(
    make_study, run, clock, mood, reason, limits, executor
):
    study = make_study("moody", fixed={"mood": mood}, trials=1)
    limits = clock if (mood, executor) == ("endless", "local") else limits
    summary = run(study, executor, **limits)
    assert (summary.done, summary.failed) == (2, 1)
    done, ended, _ = study.table(details=True).to_dict("records")
    assert (done["state"], ended["state"]) == ("done", "failed")
    assert reason.format(**limits) in ended["failure"]
    # It may have loaded what it liked since the trial before it.
    assert (ended["host"], ended["finetti"]) == (done["host"], done["finetti"])
    assert done["device"] == "cpu"
    assert pd.isna(ended["device"])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_poisoned_cohort_is_split_until_the_culprit_stands_alone(make_study, run, executor):
    study = make_study("Together", grid={"n": list(range(1, 12))}, fixed={"poison": 4}, trials=1)
    summary = run(study, executor)
    assert (summary.done, summary.failed) == (10, 1)
    assert study.table().query("state == 'failed'")["n"].tolist() == [4]
    with open_store(study.store) as records:
        (row,) = [row for row in records.rows() if row.outcome.state == "failed"]
    assert "in run_cohort" in row.outcome.traceback
    assert 'raise RuntimeError("no luck")' in row.outcome.traceback


@pytest.mark.parametrize(
    ("how", "limits"), [("endless", {}), ("greedy", {"memory_limit": 0.4}), ("crash", {})]
)
def test_a_cohort_that_takes_too_much_is_split_as_well(make_study, run, clock, how, limits):
    study = make_study("Together", fixed={"poison": 2, "how": how}, trials=1)
    summary = run(study, "local", **clock, **limits)
    assert (summary.done, summary.failed) == (2, 1)
    assert study.table().query("state == 'failed'")["n"].tolist() == [2]


def test_the_time_limit_of_a_cohort_is_that_of_all_its_trials(make_study, run, clock):
    """An hour is less than three trials may take, and more than two."""
    study = make_study("Together", fixed={"poison": 1, "how": "long"}, trials=1)
    summary = run(study, "local", time_limit=1500)
    assert (summary.done, summary.failed) == (3, 0)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_failed_trials_are_tried_again_when_asked(make_study, run, folder, executor):
    study = make_study("flaky", fixed={"flag": str(folder / "flag")}, trials=2)
    assert run(study, executor).failed == 2
    assert run(study, executor).ran == 0
    first = study.table(details=True).query("n != 2")
    (folder / "flag").touch()
    summary = run(study, executor, retry_failed=True)
    assert (summary.ran, summary.failed, summary.done) == (2, 0, 6)
    table = study.table(details=True)
    assert table["attempts"].tolist() == [1, 1, 2, 2, 1, 1]
    assert_frame_equal(table.query("n != 2")[["loss", "finished"]], first[["loss", "finished"]])


@pytest.mark.parametrize("executor", GUARDED)
def test_provenance_says_where_and_with_what(make_study, run, executor):
    study = make_study(trials=1)
    run(study, executor)
    (row,) = study.table(details=True).drop_duplicates("host").to_dict("records")
    assert row["host"]
    assert row["device"] == "cpu"
    assert row["finetti"]
    assert row["jax"]
    assert row["commit"] is None  # the folder of the test is not under git


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_cohort_that_raised_says_where_it_ran(make_study, run, executor):
    study = make_study("Together", fixed={"poison": 2}, trials=1)
    run(study, executor)
    done, failed, _ = study.table(details=True)[["host", "device"]].values.tolist()
    assert done == failed == [socket.gethostname(), "cpu"]


def test_the_device_of_jax_is_that_of_all_trials_of_a_process(folder, run, clock):
    (folder / "loads.py").write_text(
        "import jax\nfrom learner import never_ends\n"
        "def f(seed, n): return never_ends() if n == 2 else {'x': n}\n"
    )
    fields = {"directory": folder, "grid": {"n": [1, 2]}, "trials": 1}
    study = Study("loads.py:f", store=folder / "loads.sqlite", **fields)
    assert run(study, "local", **clock).failed == 1
    assert study.table(details=True)["device"].tolist() == ["cpu", "cpu"]


def test_workers_on_this_machine(make_study, expected):
    study = make_study(cohort=2)
    summary = study.run(workers=2, quiet=True)
    assert summary.done == 12
    assert_frame_equal(study.table(), expected("good"), check_exact=True)


def test_compiled_kinds_agree_bit_by_bit(folder, run):
    shutil.copy(MATERIAL / "compiled.py", folder)
    tables = []
    for executor, cohort in (("local", 8), ("dask", 5)):
        store = folder / f"{executor}.sqlite"
        study = Study("compiled.py:Norm", store=store, directory=folder, trials=10, cohort=cohort)
        assert run(study, executor).done == 10
        tables.append(study.table())
        assert study.table(details=True)["device"].tolist() == ["cpu"] * 10
    assert_frame_equal(*tables, check_exact=True)


class Scripted(Executor):
    """Takes all tasks that it may have; what becomes of them, the test says."""

    def __init__(self, workers, react):
        super().__init__()
        self.workers, self.react = workers, react

    def use(self, source, limits):
        pass

    def reports(self, timeout):
        tasks = list(self.queue)
        self.queue.clear()
        return self.react(self, tasks)


def done(task):
    return Report(task, tuple(outcome_of(each.id, {"x": 1}, 0.0) for each in task.trials))


def test_trials_that_take_all_workers_along_fail_alone(make_study):
    """Those beside them get another chance, and the last one is never in such company."""
    alone = []

    def sink(executor, tasks):
        trials = [trial for task in tasks for trial in task.trials]
        if any(trial.params["n"] == 2 for trial in trials):
            alone.append(len(trials) == 1)
            return [Report(each, (), Failure(FailureReason.LOST, "sunk")) for each in tasks]
        return list(map(done, tasks))

    study = make_study()
    summary = study.run(Scripted(2, sink), quiet=True)
    assert (summary.done, summary.failed) == (8, 4)
    assert set(study.table().query("state == 'failed'")["n"]) == {2}
    assert sum(alone) == 4


@pytest.mark.parametrize(
    ("reason", "retries"),
    [(FailureReason.DIED, 1), (FailureReason.MEMORY, 1), (FailureReason.LOST, 2)],
)
def test_a_trial_whose_process_ends_is_tried_again_before_it_fails(make_study, reason, retries):
    for ends, failed in ((retries, 0), (retries + 1, 12)):
        tries = Counter()

        def react(executor, tasks, tries=tries, ends=ends):
            tries.update(trial.id for task in tasks for trial in task.trials)
            return [
                done(task)
                if tries[task.trials[0].id] > ends
                else Report(task, (), Failure(reason, "ended"))
                for task in tasks
            ]

        summary = make_study(store=f"{ends}.sqlite").run(Scripted(2, react), quiet=True)
        assert (summary.done, summary.failed) == (12 - failed, failed)
        assert set(tries.values()) == {retries + 1}


def test_cohorts_follow_the_workers_that_are_there(make_study):
    """Those of a cluster may come late: until there are some, nothing is sent to the first."""
    counts, sizes = iter([0, 0, 1, 4, 4, 4]), []

    def grow(executor, tasks):
        executor.workers = next(counts, 4)
        sizes.extend(len(task.trials) for task in tasks)
        return list(map(done, tasks))

    study = make_study("Together", grid={"n": [1]}, trials=64, cohort=64)
    assert study.run(Scripted(0, grow), quiet=True).done == 64
    assert sizes == [64]
    sizes.clear()
    counts = iter([0, 4])
    study = make_study("Together", grid={"n": [1]}, trials=64, cohort=64)
    assert study.run(Scripted(0, grow), quiet=True).done == 64
    assert sizes == [16] * 4


def test_an_executor_is_opened_once_for_many_studies(make_study, folder, monkeypatch):
    """Limits are the parent's business: only another source needs other processes."""
    starts, start = [], ChildProcess._start
    monkeypatch.setattr(
        ChildProcess, "_start", lambda child: (starts.append(child.source), start(child))
    )
    with open_executor(workers=1) as executor:
        assert make_study(store="a.sqlite", trials=1).run(executor, quiet=True).ran == 3
        grown = make_study(store="a.sqlite", trials=2)
        assert grown.run(executor, time_limit=60, memory_limit=3, quiet=True).ran == 3
        assert len(starts) == 1
        (folder / "learner.py").write_text((folder / "learner.py").read_text() + "\n# edited\n")
        assert make_study(store="a.sqlite", trials=2).run(executor, quiet=True).ran == 6
    assert len(starts) == len({each.fingerprint for each in starts}) == 2

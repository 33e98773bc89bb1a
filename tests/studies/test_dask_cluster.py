"""A real cluster on the loopback: a scheduler and two workers, as processes of their own."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import distributed
import psutil
import pytest
from pandas.testing import assert_frame_equal

from finetti.core.errors import FinettiError, InputError
from finetti.studies import Study
from finetti.studies.coordinator import WaitingTrials
from finetti.studies.executors import dask_executor
from finetti.studies.executors.dask_executor import DaskExecutor
from finetti.studies.executors.executor import Task
from finetti.studies.executors.resource_limits import Limits

from .commands import MAX_WAIT_SECONDS, count, ended, family, start, wait_for
from .conftest import CALM


@contextlib.contextmanager
def dask_processes(folder, workers, *options, **environment):
    """``dask scheduler`` and ``dask worker``; gives the scheduler file and the processes."""
    file = folder / "scheduler.json"
    processes = []

    def dask(*arguments):
        command = [sys.executable, "-m", "dask", *map(str, arguments)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        calm = {f"DASK_{k.replace('.', '__').replace('-', '_')}": str(v) for k, v in CALM.items()}
        quiet["env"] = {**os.environ, **calm, **environment}
        processes.append(subprocess.Popen(command, cwd=folder, **quiet))

    try:
        place = ["--host", "127.0.0.1", "--no-dashboard"]
        ports = ["--port", "0", "--dashboard-address", ":0"]
        dask("scheduler", *place, *ports, "--scheduler-file", file)
        wait_for(file.exists)
        for _ in range(workers):
            dask("worker", "--scheduler-file", file, "--nthreads", "1", *place, *options)
        with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=MAX_WAIT_SECONDS)
        yield file, processes
    finally:
        below = [each for process in processes for each in family(process)]  # of nannies
        for process in (*processes, *below):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for process in processes:
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers."""
    with dask_processes(tmp_path, 2, "--no-nanny") as made:
        yield made


WE_COUNT = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}  # the losses, not Dask
FATAL = """
import os, signal, time
def f(seed, n, pause: float = 0.0):
    if n == 2:
        time.sleep(pause)
        os.kill(os.getppid(), signal.SIGKILL)  # the Dask worker
    time.sleep(3600 * (n >= 2))
    return {"x": n}
"""


def test_what_a_task_raises_is_not_the_loss_of_its_worker():
    executor = DaskExecutor("tcp://nowhere:1")
    full, gone = OSError("disk full"), CancelledError("gone")
    task, cases = Task("", ()), ((full, True), (full, False), (gone, True))
    failures = [executor._failed(task, *each).failure for each in cases]
    assert [each.reason for each in failures] == ["broken", "lost", "lost"]
    assert "disk full" in failures[0].message


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trial_that_takes_its_worker_along_fails_alone(folder, workers):
    (folder / "fatal.py").write_text(FATAL)
    place = {"store": folder / "s.sqlite", "directory": folder}
    study = Study("fatal.py:f", grid={"n": [0, 2, 1]}, **place)
    # Those that wait at the worker are not to blame, and results that it holds are made again.
    with dask_processes(folder, workers, **WE_COUNT) as (file, _):
        summary = study.run(cluster=str(file), quiet=True)
    assert (summary.done, summary.failed) == (2, 1)
    table = study.table(details=True)
    assert set(table.query("state == 'failed'")["n"]) == {2}
    assert set(table["host"]) == {socket.gethostname()}


def test_failures_say_on_which_machine_they_happened(folder):
    (folder / "fatal.py").write_text(FATAL)
    # A worker that believes to be on another machine.
    text = "import socket\nsocket.gethostname = lambda: 'elsewhere'\n"
    (folder / "machine").mkdir()
    (folder / "machine" / "sitecustomize.py").write_text(text)
    environment = {
        "PYTHONPATH": f"{folder / 'machine'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        **WE_COUNT,
    }
    # A pause, so that the results before it are here and need not be made again.
    fields = {"grid": {"n": [1, 2, 3]}, "fixed": {"pause": 0.5}}
    study = Study("fatal.py:f", store=folder / "s.sqlite", directory=folder, **fields)
    with dask_processes(folder, 1, **environment) as (file, _):
        summary = study.run(cluster=str(file), time_limit=5, quiet=True)
    assert (summary.done, summary.failed) == (1, 2)
    table = study.table(details=True)
    assert table["failure"].tolist()[1:] == [
        "The Dask workers that ran it were lost, the last one on elsewhere.",
        "The trial did not end within 5 s (time limit).",
    ]
    assert table["host"].tolist() == ["elsewhere"] * 3
    assert table["device"].isna().tolist() == [False, True, True]
    assert table["finetti"].isna().tolist() == [False, True, False]


def test_losing_a_worker_loses_nothing(cluster, folder):
    file, (_, *workers) = cluster
    spec, gate = folder / "study.toml", folder / "gate"
    spec.write_text(
        'kind = "learner.py:gated"\ntrials = 25\ncohort = 1\n'
        f'[grid]\nn = [1, 2, 3, 4]\n[fixed]\ngate = "{gate}"\n'
    )
    run = start("run", spec, "--cluster", file, "--quiet")
    # Both workers come to wait at the gate, with something stored before.
    wait_for(lambda: count(spec.with_suffix(".sqlite")) >= 2)
    children = [child for worker in workers for child in psutil.Process(worker.pid).children()]
    assert len(children) == 2
    workers[0].kill()
    gate.touch()
    out, err = run.communicate(timeout=MAX_WAIT_SECONDS)
    assert run.returncode == 0, out + err
    assert "100 of 100 trials done" in out
    # The children of a worker do not outlive it, nor the study.
    wait_for(lambda: ended(children))
    reference = Study.from_toml(spec, store=spec.with_name("reference.sqlite"))
    reference.run("inline", quiet=True)
    assert_frame_equal(Study.from_toml(spec).table(), reference.table(), check_exact=True)


def test_a_cluster_does_not_work_for_a_coordinator_that_is_gone(address, make_study, folder):
    (folder / "s.toml").write_text(
        'kind = "learner.py:moody"\n[grid]\nn = [2]\n[fixed]\nmood = "endless"\n'
    )
    before = family()
    process = start("run", folder / "s.toml", "--cluster", address)
    wait_for((folder / "begun").exists)
    children = [each for each in family() if each not in before and each.pid != process.pid]
    assert children
    process.kill()
    process.communicate()
    wait_for(lambda: ended(children))
    # The workers themselves stay, and work for others.
    assert make_study(trials=1).run(cluster=address, quiet=True).done == 3


def test_a_worker_keeps_nothing_of_a_coordinator_that_is_gone(make_study, monkeypatch):
    """A child that was idle for long leaves by itself, and nothing of it stays, not even a pipe."""
    monkeypatch.setattr(dask_executor, "REAP_SECONDS", 0.1)
    fields = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": ":0",
    }
    before = {each.pid for each in family()}
    with distributed.LocalCluster(**fields) as cluster:
        executor = DaskExecutor(cluster.scheduler_address)
        assert make_study(trials=1).run(executor, quiet=True).done == 3
        (child,) = [each for each in family() if each.pid not in before]
        child.terminate()  # as if nobody had come for ten minutes; its coordinator closes nothing
        wait_for(lambda: not dask_executor._children)
        assert not psutil.pid_exists(child.pid)
        executor.close()


def test_losing_the_scheduler_loses_nothing(cluster, make_study, folder):
    file, (scheduler, *_) = cluster
    gate = folder / "gate"
    study = make_study("gated", trials=60, fixed={"gate": str(gate)}, cohort=5)

    executor = DaskExecutor(str(file))

    def kill_in_the_middle():
        wait_for(lambda: count(study.store))
        executor.client._timeout = 0.5  # connected as it is, it need not be patient any more
        scheduler.kill()

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    with pytest.raises(FinettiError, match=r"scheduler is gone.*safe"):
        study.run(executor, quiet=True)
    killer.join()
    gate.touch()
    status = study.status().studies[0]
    assert (status.failed, status.pending > 0) == (0, True)
    assert study.run("inline", quiet=True).done == 180


def test_a_lost_scheduler_is_no_lost_worker(cluster, make_study, folder):
    """Three lost workers are held against a trial; that the way to its result is gone is not."""
    file, (scheduler, *_) = cluster
    plan = make_study("gated", trials=2, fixed={"gate": str(folder / "gate")}).plan
    executor = DaskExecutor(str(file))
    executor.use(plan.source, Limits())
    waiting = WaitingTrials(plan, plan.trial_positions)
    while task := waiting.take(2):
        executor.submit(task)
    executor.client._timeout = 0.5
    scheduler.kill()
    with pytest.raises(FinettiError, match="scheduler is gone"):
        wait_for(lambda: executor.reports(timeout=1.0))
    executor.close()


def test_a_cluster_that_is_not_there_is_named(make_study, folder, monkeypatch):
    monkeypatch.setattr("finetti.studies.executors.dask_executor.CONNECT_SECONDS", 1)
    study = make_study()
    with pytest.raises(FinettiError, match="No Dask scheduler answers at tcp://127"):
        study.run(cluster="tcp://127.0.0.1:1", quiet=True)
    with pytest.raises(FinettiError, match="no scheduler file"):
        study.run(cluster=str(folder / "scheduler.json"), quiet=True)
    for nonsense in ("nonsense", "foo://127.0.0.1:1", "tcp://", "127.0.0.1", ""):
        with pytest.raises(FinettiError, match=r"`cluster` argument .* must be tcp://host:port"):
            study.run(cluster=nonsense, quiet=True)
    # The store is free again.
    assert study.run("inline", quiet=True).done == 12


def test_workers_or_cluster(make_study):
    with pytest.raises(InputError, match="Give one"):
        make_study().run(workers=2, cluster="tcp://a:1")
    with pytest.raises(InputError, match="must be at least 1"):
        make_study().run(workers=0)

"""A real cluster on the loopback: a scheduler and two workers, as processes of their own."""

import subprocess
import sys
import threading

import distributed
import psutil
import pytest
from pandas.testing import assert_frame_equal

from finetti.core.errors import FinettiError
from finetti.studies import Study

from .commands import ended, finish, start, stored, wait_for


@pytest.fixture
def cluster(tmp_path):
    """``dask scheduler`` and two ``dask worker``; gives the scheduler file and the processes."""
    file = tmp_path / "scheduler.json"
    processes = []

    def dask(*arguments):
        command = [sys.executable, "-m", "dask", *map(str, arguments)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.append(subprocess.Popen(command, cwd=tmp_path, **quiet))
        return processes[-1]

    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--dashboard-address", ":0"]
    dask("scheduler", *options, "--scheduler-file", file)
    wait_for(file.exists)
    options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
    for _ in range(2):
        dask("worker", "--scheduler-file", file, *options)
    with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
    yield file, processes
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


@pytest.fixture
def spec(folder):
    path = folder / "study.toml"
    path.write_text(
        'kind = "learner.py:good"\ntrials = 25\ncohort = 5\n'
        "[grid]\nn = [1, 2, 3, 4]\n[fixed]\npause = 0.02\n"
    )
    return path


def test_losing_a_worker_loses_nothing(cluster, spec):
    file, (_, *workers) = cluster
    run = start("run", spec, "--cluster", file, "--quiet")
    wait_for(lambda: len(stored(spec.with_suffix(".sqlite"))) >= 10)
    children = [child for worker in workers for child in psutil.Process(worker.pid).children()]
    assert len(children) == 2
    workers[0].kill()
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    assert "100 of 100 trials done" in out
    # The children of a worker do not outlive it, nor the study.
    wait_for(lambda: ended(children), 10)
    reference = Study.from_toml(spec, store=spec.with_name("reference.sqlite"))
    reference.run("inline", quiet=True)
    assert_frame_equal(Study.from_toml(spec).table(), reference.table(), check_exact=True)


def test_losing_the_scheduler_loses_nothing(cluster, make_study, monkeypatch):
    monkeypatch.setattr("finetti.studies.executors.dask.CONNECT_SECONDS", 2)
    file, (scheduler, *_) = cluster
    study = make_study(trials=60, fixed={"pause": 0.02}, cohort=5)

    def kill_in_the_middle():
        wait_for(lambda: stored(study.store))
        scheduler.kill()

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    with pytest.raises(FinettiError, match=r"scheduler is gone.*safe"):
        study.run(cluster=str(file), quiet=True)
    killer.join()
    status = study.status().studies[0]
    assert (status.failed, status.pending > 0) == (0, True)
    assert study.run("inline", quiet=True).done == 180


def test_a_cluster_that_is_not_there_is_named(make_study, folder, monkeypatch):
    monkeypatch.setattr("finetti.studies.executors.dask.CONNECT_SECONDS", 1)
    study = make_study()
    with pytest.raises(FinettiError, match="No Dask scheduler answers at tcp://127"):
        study.run(cluster="tcp://127.0.0.1:1", quiet=True)
    with pytest.raises(FinettiError, match="no scheduler file"):
        study.run(cluster=str(folder / "scheduler.json"), quiet=True)
    # The store is free again.
    assert study.run("inline", quiet=True).done == 12


def test_workers_or_cluster(folder):
    (folder / "s.toml").write_text('kind = "learner.py:good"\n[grid]\nn = [1]\n')
    code, _, err = finish("run", folder / "s.toml", "--workers", "2", "--cluster", "tcp://a:1")
    assert (code, "Give one" in err, err.count("\n")) == (2, True, 1)

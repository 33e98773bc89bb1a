"""What a worker may take: cores, memory, and how that is measured."""

import logging
import os
from types import SimpleNamespace

import pytest

from finetti.core.errors import FinettiError
from finetti.studies import Study
from finetti.studies.executors import child_process, dask_executor
from finetti.studies.executors.resource_limits import cgroup_memory, usable_cores

GIB = 2**30


def test_a_memory_limit_that_loading_exceeds_ends_the_run_with_one_sentence(
    make_study, monkeypatch
):
    starts, start = [], child_process.ChildProcess._start
    monkeypatch.setattr(
        child_process.ChildProcess, "_start", lambda child: (starts.append(child), start(child))
    )
    study = make_study(trials=2)
    with pytest.raises(FinettiError, match=r"it used more than 0\.01 GB .* while it was loaded"):
        study.run(memory_limit=0.01, quiet=True)
    assert len(starts) == 1
    assert len(study.table()) == 0


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/job/step\n", {"job/memory.max": 3 * GIB, "job/step/memory.max": "max"}, 3 * GIB),
        ("0::/job/step\n", {"job/memory.max": 3 * GIB, "job/step/memory.max": GIB}, GIB),
        ("9:cpu:/a\n4:memory:/job\n", {"memory/job/memory.limit_in_bytes": 2 * GIB}, 2 * GIB),
        # In a container the path is that of the host, and the limit stands at the root.
        ("0::/docker/1\n", {"memory.max": GIB}, GIB),
        ("0::/\n", {}, None),
        ("", {"memory.max": "max"}, None),
    ],
)
def test_the_memory_limit_is_that_of_the_jobs_own_cgroup(tmp_path, membership, limits, expected):
    (tmp_path / "self").write_text(membership)
    root = tmp_path / "root"
    for name, limit in limits.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{limit}\n")
    assert cgroup_memory(root, tmp_path / "self") == expected


def test_cores_are_those_of_the_quota_and_of_the_affinity(monkeypatch):
    cores = os.sched_getaffinity(0)
    assert 1 <= usable_cores() <= len(cores)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, cores)
    # As `docker --cpus 1`, of which the affinity says nothing.
    monkeypatch.setattr("joblib.externals.loky.backend.context._cpu_count_cgroup", lambda _: 1)
    assert usable_cores() == 1


def test_workers_on_one_node_share_its_memory():
    """Two workers of two threads on a node of 64 GiB, as Dask divides it."""
    worker = SimpleNamespace(
        state=SimpleNamespace(nthreads=2), memory_manager=SimpleNamespace(memory_limit=32 * GIB)
    )
    share = dask_executor.memory_share(worker)
    assert 4 * share <= 0.8 * 64 * GIB
    unlimited = SimpleNamespace(
        state=worker.state, memory_manager=SimpleNamespace(memory_limit=None)
    )
    assert dask_executor.memory_share(unlimited) is None


SHARED = """
import os, time
def f(seed):
    data = bytearray(os.urandom(1)) * 250_000_000  # pages that the copies of this process share
    for _ in range(3):
        if os.fork() == 0:
            time.sleep(3600)
    time.sleep(0.6)
    return {"x": len(data)}
"""


def test_pages_that_processes_share_count_once(folder, monkeypatch):
    monkeypatch.setattr("finetti.studies.executors.child_process.FAMILY_POLL_SECONDS", 0.05)
    (folder / "shares.py").write_text(SHARED)
    study = Study("shares.py:f", store=folder / "s.sqlite", directory=folder)
    summary = study.run(memory_limit=0.6, quiet=True)
    assert (summary.done, summary.failed) == (1, 0)


def test_loggers_of_the_user_are_as_they_were(make_study, address):
    logger = logging.getLogger("distributed.worker")
    logger.setLevel(logging.WARNING)
    assert make_study(trials=1).run(cluster=address, quiet=True).done == 3
    assert logger.level == logging.WARNING

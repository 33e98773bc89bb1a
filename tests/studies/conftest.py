"""Folders with a user's kinds in them, and studies of these."""

import logging
import shutil
from pathlib import Path

import dask
import distributed
import pytest

from finetti.studies import Study

from .commands import end_started

MATERIAL = Path(__file__).parent / "material"
# Dask looks at itself a hundred times a second; a cluster that waits for tests need not.
CALM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}


@pytest.fixture(autouse=True)
def _nothing_is_left_running():
    yield
    end_started()


@pytest.fixture(scope="session")
def address():
    """Where the scheduler of two Dask workers is, for all tests that need some."""
    fields = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 0}
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with dask.config.set(CALM), distributed.LocalCluster(**fields, **quiet) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def folder(tmp_path):
    """A user's folder: learner.py, and the helper.py that it imports."""
    for name in ("learner.py", "helper.py"):
        shutil.copy(MATERIAL / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def make_study(folder):
    """Studies of the kinds in the folder, each with a store of its own unless named."""
    made = []

    def make(kind="good", store=None, **fields):
        made.append(kind)
        fields.setdefault("grid", {"n": [1, 2, 3]})
        fields.setdefault("trials", 4)
        path = folder / (store or f"store-{len(made)}.sqlite")
        return Study(f"learner.py:{kind}", store=path, directory=folder, **fields)

    return make

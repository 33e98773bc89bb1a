"""A store loses nothing: not to disks, not to other versions, not to a second writer."""

import resource
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from finetti.core.errors import FinettiError, InputError
from finetti.studies import store_table
from finetti.studies.disk import file_system, on_network
from finetti.studies.lock import StoreBusyError, read_holder
from finetti.studies.outcome import Outcome, failed, outcome_of
from finetti.studies.plan import WorkPlan
from finetti.studies.records import Row, open_records
from finetti.studies.schema import CURRENT_LAYOUT, migrate, schema_version
from finetti.studies.store import Store
from finetti.studies.trial import Cell

OLD = Path(__file__).parent / "material" / "layout-1.sqlite"
CELL = Cell("m:f", "1", "", {"n": 3}, 0)


def rows(count, first=0, loss=0.5):
    outcomes = {
        r: outcome_of(CELL.trial_id(r), {"loss": loss}, 0.25) for r in range(first, first + count)
    }
    return [Row(CELL, r, replace(each, provenance={"host": "a"})) for r, each in outcomes.items()]


@pytest.fixture(params=["wal", "rollback"])
def store(tmp_path, request):
    with Store(tmp_path / "s.sqlite", request.param) as store:
        yield store


def ids(count):
    return {CELL.trial_id(replicate) for replicate in range(count)}


def states(path):
    with open_records(path) as records:
        return records.states()


def test_what_is_added_is_read_back(store):
    trace = {"loss": [1.0, float("inf")], "step": [1, 2]}
    full = Outcome(CELL.trial_id(0), "done", {"a": 0.1, "b": 2, "c": "x", "d": True}, trace)
    store.add([Row(CELL, 0, full), Row(CELL, 1, failed(CELL.trial_id(1), "why", "where"))])
    first, second = store.records.rows()
    assert (first.cell, first.replicate, first.outcome) == (CELL, 0, full)
    assert (second.outcome.state, second.outcome.error) == ("failed", "why")
    assert second.outcome.traceback == "where"


def test_a_finished_trial_is_never_changed(store):
    store.add(rows(1, loss=0.5))
    store.add(rows(1, loss=0.7))
    store.add([Row(CELL, 0, failed(CELL.trial_id(0), "later"))])
    (row,) = store.records.rows()
    assert row.outcome.metrics == {"loss": 0.5}
    for statement in ("UPDATE trials SET metrics = '{}'", "DELETE FROM trials"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            store.connection.execute(statement)


def test_a_batch_is_stored_whole_or_not_at_all(store):
    bad = Row(CELL, None, outcome_of(CELL.trial_id(9), {"loss": 1.0}, 0.0))
    with pytest.raises(FinettiError):
        store.add([*rows(3), bad])
    assert store.records.states() == {}
    store.add(rows(3))
    assert len(store.records.states()) == 3


def test_a_full_disk_is_said_and_loses_nothing(store):
    store.add(rows(10))
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(FinettiError, match=r"disk of .* is full.*safe.*start again"):
        store.add(rows(5000, first=10))
    assert len(store.records.states()) == 10
    store.connection.execute("PRAGMA max_page_count = 1000000")
    store.add(rows(5000, first=10))
    assert len(store.records.states()) == 5010


def test_reading_goes_on_beside_writing(tmp_path):
    with Store(tmp_path / "s.sqlite", "wal") as store:
        store.add(rows(2))
        with open_records(store.path) as records:
            assert len(records.states()) == 2
            store.add(rows(2, first=2))
            assert len(records.states()) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["s.sqlite"]
    assert len(states(tmp_path / "s.sqlite")) == 4


def test_a_rollback_store_is_exclusive_and_says_so(tmp_path):
    with Store(tmp_path / "s.sqlite", "rollback") as store:
        store.add(rows(2))
        assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        with pytest.raises(FinettiError, match="being written"):
            states(store.path)
    assert len(states(tmp_path / "s.sqlite")) == 2


# Writes more than its cache holds, hence into the file, and is gone before it can commit.
KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN EXCLUSIVE")
for number in range(200):
    row = (number + 10_000, str(number) * 1000)
    connection.execute("INSERT INTO cells VALUES (?, ?)", row)
os._exit(9)
"""


def test_what_a_killed_process_left_half_written_is_undone_for_readers(tmp_path):
    path = tmp_path / "store.sqlite"
    with Store(path, "rollback") as store:
        store.add(rows(2))
    size = path.stat().st_size
    subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert path.stat().st_size > size
    assert (tmp_path / "store.sqlite-journal").exists()
    with open_records(path) as records:
        assert len(list(records.rows())) == 2
        (count,) = records.connection.execute("SELECT count(*) FROM cells").fetchone()
    assert count < 200


def test_a_second_writer_is_told_who_the_first_is(tmp_path):
    with Store(tmp_path / "s.sqlite"):
        holder = read_holder(tmp_path / "s.sqlite")
        (tmp_path / "link.sqlite").symlink_to(tmp_path / "s.sqlite")
        for name in ("s.sqlite", "link.sqlite"):
            assert read_holder(tmp_path / name) == holder
            with pytest.raises(
                StoreBusyError, match=f"process {holder['pid']} on {holder['host']}"
            ):
                Store(tmp_path / name)
    assert read_holder(tmp_path / "s.sqlite") is None
    Store(tmp_path / "s.sqlite").close()


def test_files_of_the_first_layout_open(tmp_path):
    path = tmp_path / "old.sqlite"
    shutil.copy(OLD, path)
    before = path.read_bytes()
    table = store_table(path, details=True)
    assert table["loss"].tolist()[:2] == [0.5, 0.25]
    assert table["state"].tolist() == ["done", "done", "failed"]
    assert table["failure"].tolist()[2] == "RuntimeError: no luck"
    assert table["attempts"].tolist() == [1, 1, 1]
    # Reading leaves the file alone; writing brings it up to date, with all that was in it.
    assert path.read_bytes() == before
    with Store(path) as store:
        store.add(rows(1))
        assert store.connection.execute("PRAGMA user_version").fetchone() == (CURRENT_LAYOUT,)
    assert len(store_table(path)) == 4
    assert store_table(path)["loss"].tolist().count(0.25) == 1


@pytest.mark.parametrize("old", [b"", OLD.read_bytes()], ids=["empty", "first layout"])
def test_a_file_that_is_brought_up_to_date_while_it_is_opened_is_read(tmp_path, monkeypatch, old):
    path = tmp_path / "s.sqlite"
    path.write_bytes(old)

    def version_then_writer(connection, name):
        found = schema_version(connection, name)
        if Path(name) == path and found < CURRENT_LAYOUT:  # between two steps of the reader
            with Store(path) as store:
                store.add(rows(4))
        return found

    monkeypatch.setattr("finetti.studies.records.schema_version", version_then_writer)
    with open_records(path) as found:
        assert ids(4) <= set(found.states())


def test_the_old_file_is_of_the_first_layout():
    connection = sqlite3.connect(f"file:{OLD}?mode=ro&immutable=1", uri=True)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert not connection.execute("SELECT * FROM sqlite_master WHERE name = 'plans'").fetchall()
    connection.close()


def test_every_step_of_the_layout_can_be_taken_alone():
    whole, stepwise = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    migrate(whole, 0)
    for version in range(CURRENT_LAYOUT):
        migrate(stepwise, version, version + 1)
    layouts = [
        connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        for connection in (whole, stepwise)
    ]
    assert layouts[0] == layouts[1]
    whole.close()
    stepwise.close()


def test_a_newer_layout_is_left_alone(tmp_path):
    path = tmp_path / "s.sqlite"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {CURRENT_LAYOUT + 1}")
    connection.close()
    before = path.read_bytes()
    for opening in (Store, store_table):
        with pytest.raises(FinettiError, match="newer Finetti"):
            opening(path)
    assert path.read_bytes() == before
    assert read_holder(path) is None


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be one" * 50])
def test_a_file_that_is_no_database_is_left_alone(tmp_path, content):
    path = tmp_path / "s.sqlite"
    path.write_bytes(content)
    for opening in (Store, store_table):
        with pytest.raises(FinettiError, match="damaged or is not a store"):
            opening(path)
    assert path.read_bytes() == content


def test_a_damaged_store_is_left_alone(tmp_path):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.add(rows(500))
    content = bytearray(path.read_bytes())
    size = 4096
    for page in range(3, len(content) // size):
        content[page * size : page * size + 200] = b"\xff" * 200
    path.write_bytes(content)
    with pytest.raises(FinettiError, match="damaged"):
        Store(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE cells SET content = '{'",
        "UPDATE cells SET content = '{\"kind\":1}'",
        "UPDATE cells SET content = '5'",
        "UPDATE provenances SET content = 'x'",
        "UPDATE trials SET metrics = '[1]'",
    ],
)
def test_content_that_no_store_holds_is_damage(tmp_path, change):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.add(rows(2))
        store.add_plan(WorkPlan(b"digest", "name", 2, True, 64, (CELL,), ("3",)))
        store.connection.execute("DROP TRIGGER done_is_done")
        store.connection.execute(change)
    with pytest.raises(FinettiError, match="damaged"):
        store_table(path)
    if "cells" in change:
        with pytest.raises(FinettiError, match="damaged"), open_records(path) as records:
            records.plans()


def test_databases_of_other_programs_are_left_alone(tmp_path):
    path = tmp_path / "s.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    for opening in (Store, store_table):
        with pytest.raises(FinettiError, match="another program"):
            opening(path)


def test_places_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "s.sqlite", tmp_path / "missing" / "s.sqlite"):
        with pytest.raises(FinettiError, match="Choose another path for the store"):
            Store(path)
    (tmp_path / "folder.sqlite").mkdir()
    for opening in (Store, store_table):
        with pytest.raises(FinettiError, match="cannot be opened: it is a folder"):
            opening(tmp_path / "folder.sqlite")
    with pytest.raises(InputError, match="no store"):
        store_table(tmp_path / "nothing.sqlite")


def test_a_lock_that_cannot_be_written_is_not_left_behind(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # as on a disk without any space
    try:
        with pytest.raises(FinettiError, match="Cannot write next to"):
            Store(tmp_path / "s.sqlite")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    Store(tmp_path / "s.sqlite").close()


def test_a_read_only_store_says_so(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        store.add(rows(2))
        store.connection.execute("PRAGMA query_only = on")
        with pytest.raises(FinettiError, match=r"read-only.*safe"):
            store.add(rows(2, first=2))
        store.connection.execute("PRAGMA query_only = off")
    assert len(states(tmp_path / "s.sqlite")) == 2


def test_plans_are_remembered_once(store):
    plan = WorkPlan(b"digest", "name", 2, True, 64, (CELL,), ("3",))
    store.add_plan(plan)
    store.add_plan(plan)
    assert store.records.plans() == [plan]
    assert store.records.plan(b"digest") == plan
    assert store.records.plan(b"other") is None


def test_a_trial_costs_little(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        store.add(rows(2000))
    assert (tmp_path / "s.sqlite").stat().st_size / 2000 < 300


def test_network_disks_are_recognized(tmp_path, monkeypatch):
    import psutil

    assert file_system(tmp_path)
    mounts = [
        SimpleNamespace(mountpoint="/", fstype="ext4"),
        SimpleNamespace(mountpoint=str(tmp_path / "nfs"), fstype="nfs4"),
        SimpleNamespace(mountpoint=str(tmp_path / "ssh"), fstype="fuse.sshfs"),
    ]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)
    for name, network in (("nfs", True), ("ssh", True), ("local", False)):
        (tmp_path / name).mkdir()
        assert on_network(tmp_path / name / "s.sqlite") is network
        with Store(tmp_path / name / "s.sqlite") as store:
            assert store.journal == ("rollback" if network else "wal")

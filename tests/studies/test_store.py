"""A store loses nothing: not to disks, not to other versions, not to a second writer."""

import resource
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from finetti.core.errors import FinettiError, InputError
from finetti.studies import store_table
from finetti.studies.store.store_reader import Row, connect, open_store
from finetti.studies.store.trial_store import Store
from finetti.studies.store.writer_lock import StoreBusyError, read_holder
from finetti.studies.trials import Cell, Outcome, failed, outcome_of

CELL = Cell("m:f", "1", "", {"n": 3}, 0)


def rows(count, first=0, loss=0.5):
    outcomes = {
        r: outcome_of(CELL.trial_id(r), {"loss": loss}, 0.25) for r in range(first, first + count)
    }
    return [Row(CELL, r, replace(each, provenance={"host": "a"})) for r, each in outcomes.items()]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        yield store


def ids(count):
    return {CELL.trial_id(replicate) for replicate in range(count)}


def states(path):
    with open_store(path) as reader:
        return reader.states()


def test_what_is_added_is_read_back(store):
    trace = {"loss": [1.0, float("inf")], "step": [1, 2]}
    metrics = {"a": 0.1, "b": 2, "c": "x", "d": True}
    record = [{"names": ["x", None], "numbers": {"1": 0.5}}, "text"]
    full = Outcome(CELL.trial_id(0), "done", metrics, trace, record)
    store.add([Row(CELL, 0, full), Row(CELL, 1, failed(CELL.trial_id(1), "why", "where"))])
    first, second = store.reader.rows()
    assert (first.cell, first.replicate, first.outcome) == (CELL, 0, full)
    assert (second.outcome.state, second.outcome.error) == ("failed", "why")
    assert second.outcome.traceback == "where"


def test_a_finished_trial_is_never_changed(store):
    store.add(rows(1, loss=0.5))
    store.add(rows(1, loss=0.7))
    store.add([Row(CELL, 0, failed(CELL.trial_id(0), "later"))])
    (row,) = store.reader.rows()
    assert row.outcome.metrics == {"loss": 0.5}
    for statement in ("UPDATE trials SET metrics = '{}'", "DELETE FROM trials"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            store.connection.execute(statement)


def test_a_batch_is_stored_whole_or_not_at_all(store):
    bad = Row(CELL, None, outcome_of(CELL.trial_id(9), {"loss": 1.0}, 0.0))
    with pytest.raises(FinettiError):
        store.add([*rows(3), bad])
    assert store.reader.states() == {}
    store.add(rows(3))
    assert len(store.reader.states()) == 3


def test_a_full_disk_is_said_and_loses_nothing(store):
    store.add(rows(10))
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(FinettiError, match=r"disk of .* is full.*safe.*start again"):
        store.add(rows(5000, first=10))
    assert len(store.reader.states()) == 10
    store.connection.execute("PRAGMA max_page_count = 1000000")
    store.add(rows(5000, first=10))
    assert len(store.reader.states()) == 5010


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
    with Store(path) as store:
        store.add(rows(2))
    size = path.stat().st_size
    subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert path.stat().st_size > size
    assert (tmp_path / "store.sqlite-journal").exists()
    with open_store(path) as reader:
        assert len(list(reader.rows())) == 2
        (count,) = reader.connection.execute("SELECT count(*) FROM cells").fetchone()
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


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be one" * 50])
def test_a_file_that_is_no_database_is_left_alone(tmp_path, content):
    path = tmp_path / "s.sqlite"
    path.write_bytes(content)
    for opening in (Store, store_table):
        with pytest.raises(FinettiError, match="damaged or is not a store"):
            opening(path)
    assert path.read_bytes() == content


def test_a_trial_costs_little(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        store.add(rows(2000))
    assert (tmp_path / "s.sqlite").stat().st_size / 2000 < 300


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


def test_a_store_of_another_layout_is_left_alone(tmp_path):
    path = tmp_path / "s.sqlite"
    Store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 3")
    before = path.read_bytes()
    for opening in (Store, store_table):
        with pytest.raises(FinettiError, match="written by another version of Finetti"):
            opening(path)
    assert path.read_bytes() == before
    assert read_holder(path) is None


@pytest.mark.parametrize("made", [False, True])
def test_a_store_that_is_just_being_made_is_read(tmp_path, made):
    path = tmp_path / "s.sqlite"
    path.touch()
    with open_store(path) as reader:
        if made:
            with Store(path) as store:
                store.add(rows(4))
        assert reader.states() == {}
    assert len(states(path)) == 4 * made


def test_readers_and_the_writer_wait_for_each_other(tmp_path):
    """As on a slow disk, where a commit, or the reading of a large store, takes seconds."""
    path = tmp_path / "s.sqlite"
    with Store(path) as store, ThreadPoolExecutor(5) as pool:
        store.add(rows(20))
        store.connection.execute("BEGIN EXCLUSIVE")  # as at the moment of a commit
        readers = [pool.submit(states, path) for _ in range(4)]
        time.sleep(1.5)
        assert not any(reader.done() for reader in readers)
        store.connection.execute("COMMIT")
        assert [len(reader.result()) for reader in readers] == [20] * 4
        with closing(sqlite3.connect(path, isolation_level=None)) as slow:
            slow.execute("BEGIN")
            slow.execute("SELECT * FROM trials").fetchone()  # reads, and has not ended
            written = pool.submit(_add_elsewhere, path)
            time.sleep(1.5)
            assert not written.done()
            slow.execute("COMMIT")
        written.result()
        # One after another reads all the time, and the writer gets its turn.
        until = time.monotonic() + 2.0
        readers = [pool.submit(_read_until, path, until) for _ in range(4)]
        turns = 0
        while time.monotonic() < until:
            store.add(rows(5, first=100 + 5 * turns))
            turns += 1
        assert min(reader.result() for reader in readers) >= 1
        assert turns >= 3
    assert [each.name for each in tmp_path.iterdir()] == ["s.sqlite"]
    assert len(states(path)) == 20 + 5 * turns


def _add_elsewhere(path):
    """Another connection of the one writer, which stays in its thread."""
    own = connect(path.as_uri())
    try:
        own.execute("BEGIN IMMEDIATE")
        own.execute("UPDATE totals SET trials = trials")
        own.execute("COMMIT")
    finally:
        own.close()


def _read_until(path, end):
    reads = 0
    while time.monotonic() < end:
        reads += len(states(path)) >= 20
    return reads

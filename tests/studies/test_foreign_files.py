"""Locks and stores that are no files of ours are neither written nor waited for."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from finetti.core.errors import FinettiError
from finetti.studies import store_table
from finetti.studies.executors.dask_executor import DaskExecutor
from finetti.studies.executors.resource_limits import Limits
from finetti.studies.source_code import find_source
from finetti.studies.store.merging import merge_stores
from finetti.studies.store.store_errors import sqlite_errors_as_sentences
from finetti.studies.store.trial_store import Store
from finetti.studies.store.writer_lock import StoreBusyError, WriterLock, lock_path, read_holder
from finetti.studies.study_status import store_status

from .test_store import rows, states


def test_a_lock_follows_no_link_and_overwrites_no_file(tmp_path):
    path, precious = tmp_path / "all.sqlite", tmp_path / "precious.txt"
    lock, beside = lock_path(path), path.with_name("all.sqlite-wal")
    for make in (
        lambda: lock.symlink_to(precious),
        lambda: lock.hardlink_to(precious),
        lambda: lock.symlink_to(tmp_path / "new.txt"),
        lambda: lock.symlink_to(lock),
        lambda: os.mkfifo(lock),
        lock.mkdir,
        lambda: lock.write_text('{"pid": '),
        lambda: beside.symlink_to(precious),
    ):
        precious.write_text("precious")
        make()
        placed = sorted(os.listdir(tmp_path))
        with pytest.raises(FinettiError, match="Move it away"):
            Store(path)
        assert read_holder(path) is None
        assert precious.read_text() == "precious"
        assert sorted(os.listdir(tmp_path)) == placed
        for each in (lock, beside):
            if each.is_dir():
                each.rmdir()
            elif os.path.lexists(each):
                each.unlink()


def test_a_lock_that_is_released_in_this_moment_is_no_error(tmp_path):
    """Between two looks at a lock its holder may remove it."""
    store, left = tmp_path / "s.sqlite", [400]

    def take_and_release():
        while left[0] > 0:
            left[0] -= 1
            with suppress(StoreBusyError):
                WriterLock(store).release()

    with ThreadPoolExecutor(4) as pool:
        for job in [pool.submit(take_and_release) for _ in range(4)]:
            job.result()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    path = tmp_path / "all.sqlite"
    for left in ("", '{"pid": 1, "host": "there", "since": "2026-01-01"}'):
        lock_path(path).write_text(left)
        Store(path).close()
        assert not lock_path(path).exists()


@pytest.mark.parametrize(
    "content", ["", "{}", '{"pid": [}', "[" * 999 + "}", "5}", "\0}", '["pid"}']
)
def test_a_damaged_lock_that_is_held_names_nobody(tmp_path, content):
    path = tmp_path / "all.sqlite"
    with Store(path):
        lock_path(path).write_text(content)
        assert read_holder(path) == {}
        with pytest.raises(StoreBusyError, match="another process"):
            Store(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not readable as JSON"),
        ("[1]", "must be a JSON object"),
        ("[" * 100_000, "not readable as JSON"),
        ("{}", "names no address"),
        ('{"address": 5}', "names no address"),
        ('{"address": "nowhere"}', "must be tcp://host:port"),
    ],
)
def test_a_damaged_scheduler_file_is_refused_at_once(tmp_path, monkeypatch, content, why):
    distributed = pytest.importorskip("distributed")
    # Whoever waits for a scheduler asks for a client.
    monkeypatch.setattr(distributed, "Client", lambda **_: pytest.fail("waits for a scheduler"))
    path = tmp_path / "scheduler.json"
    path.write_text(content)
    executor = DaskExecutor(str(path))
    with pytest.raises(FinettiError, match=why):
        executor.use(find_source("finetti.studies.examples:pi", tmp_path), Limits())
    assert executor.client is None


def refused_everywhere(path, why):
    """Reading, writing and merging all end at once, and change nothing."""
    Store(path.with_name("other.sqlite")).close()
    for refused in (
        Store,
        store_table,
        store_status,
        lambda path: merge_stores(path, [path.with_name("other.sqlite")]),
        lambda path: merge_stores(path.with_name("all.sqlite"), [path]),
    ):
        with pytest.raises(FinettiError, match=why):
            refused(path)
    assert not lock_path(path).exists()


def test_pipes_loops_and_large_files_of_zeros_are_no_stores(tmp_path):
    path = tmp_path / "s.sqlite"
    os.mkfifo(path)
    refused_everywhere(path, "not a regular file")
    path.unlink()
    path.symlink_to(path)
    refused_everywhere(path, "symbolic links")
    path.unlink()
    with path.open("wb") as file:
        file.truncate(10**10)
    refused_everywhere(path, "does not begin like a database")


@pytest.mark.parametrize(
    "changes",
    [
        """ALTER TABLE trials RENAME TO hidden; CREATE VIEW trials AS WITH RECURSIVE
        n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n;""",
        "CREATE VIEW more AS SELECT 1;",
        "CREATE TRIGGER more BEFORE INSERT ON trials BEGIN SELECT 1; END;",
        """DROP TRIGGER done_stays;
        CREATE TRIGGER done_stays BEFORE INSERT ON trials BEGIN SELECT 1; END;""",
        "DROP TABLE cells; CREATE VIRTUAL TABLE cells USING fts5(content);",
        "DROP TABLE cells;",
        "DROP INDEX trials_by_id;",
    ],
)
def test_a_store_of_other_parts_is_refused(tmp_path, changes):
    path = tmp_path / "s.sqlite"
    Store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(changes)
    refused_everywhere(path, "is damaged or is not a store")


def test_a_table_of_the_users_own_does_no_harm(tmp_path):
    path = tmp_path / "s.sqlite"
    Store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE notes (text); CREATE INDEX by_text ON notes (text);")
    Store(path).close()
    assert store_status(path).trials == 0


def test_a_journal_that_cannot_be_undone_is_told_by_its_name(tmp_path):
    """On a read-only disk nobody can undo what a killed process left half written."""
    path = tmp_path / "s.sqlite"
    path.touch()
    refused = sqlite3.OperationalError("attempt to write a readonly database")
    refused.sqlite_errorcode = sqlite3.SQLITE_READONLY_ROLLBACK
    with pytest.raises(FinettiError, match="is read-only"), sqlite_errors_as_sentences(path):
        raise refused
    path.with_name("s.sqlite-journal").touch()
    wanted = r"undoing that takes writing.* Copy it and s\.sqlite-journal to a folder"
    with pytest.raises(FinettiError, match=wanted), sqlite_errors_as_sentences(path):
        raise refused


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced", "folder moved"])
def test_a_store_that_lost_its_place_is_noticed_at_the_next_commit(tmp_path, how):
    folder = tmp_path / "results"
    folder.mkdir()
    path, away = folder / "s.sqlite", folder / "away.sqlite"
    store = Store(path)
    store.add(rows(2))
    if how == "deleted":
        path.unlink()
    elif how == "folder moved":
        folder.rename(tmp_path / "elsewhere")
        away = tmp_path / "elsewhere" / "s.sqlite"
    else:
        path.rename(away)
    if how == "replaced":
        path.touch()
    with pytest.raises(FinettiError, match="bring it back to its place"):
        store.add(rows(2, first=2))
    with suppress(FinettiError):
        store.close()
    if how != "deleted":  # all that was stored is where the file is now
        assert len(states(away)) >= 2
        away.rename(tmp_path / "again.sqlite")
        with Store(tmp_path / "again.sqlite") as store:
            store.add(rows(4))
        assert len(states(tmp_path / "again.sqlite")) == 4

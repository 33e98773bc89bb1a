"""A store that is not what was written says so, and gives what is whole."""

import random
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing, suppress

import pytest

from finetti.core.errors import FinettiError
from finetti.studies import DamagedStoreError, merge_stores, store_table
from finetti.studies.store.store_reader import Row, open_store
from finetti.studies.store.trial_store import Store
from finetti.studies.trial_table import Format, export_table, make_table
from finetti.studies.trials import Cell, failed, outcome_of

PAGE = 4096


def fill(path, trials, cells=2):
    """A store of as many trials, some of them failed, in two transactions."""
    rows = []
    for number in range(trials):
        cell = Cell("mine:f", "1", "2f0c", {"n": number % cells, "name": "words"}, 0)
        trial_id = cell.trial_id(number)
        metrics = {"loss": random.Random(number).random(), "steps": number, "ok": number % 3 > 0}
        outcome = outcome_of(trial_id, metrics, 0.25)
        if number % 7 == 3:
            outcome = failed(trial_id, "RuntimeError: no luck", "Traceback …")
        rows.append(Row(cell, number, outcome))
    with Store(path) as store:
        store.add(rows[: trials // 2])
        store.add(rows[trials // 2 :])
    return path


@pytest.fixture
def store(tmp_path):
    return fill(tmp_path / "s.sqlite", 40)


def export(path, salvage=False):
    with open_store(path, salvage=salvage) as reader:
        return export_table(make_table(reader.rows(), details=True), Format.CSV), reader.damaged


def change(path, statement, *values):
    """Change what is stored behind the back of the store, as a disk may."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("DROP TRIGGER done_is_done; DROP TRIGGER done_stays;")
        connection.execute(statement, values)
        connection.executescript(TRIGGERS)


TRIGGERS = """
CREATE TRIGGER done_is_done BEFORE UPDATE ON trials WHEN OLD.state = 'done'
BEGIN SELECT RAISE(ABORT, 'a finished trial is never changed'); END;
CREATE TRIGGER done_stays BEFORE DELETE ON trials WHEN OLD.state = 'done'
BEGIN SELECT RAISE(ABORT, 'a finished trial is never deleted'); END;
"""


@pytest.mark.parametrize(
    ("statement", "named", "left"),
    [
        ("""UPDATE trials SET metrics = '{"loss":0.5}' WHERE rowid = 6""", "row 6 (n=1", 39),
        ("UPDATE trials SET finished = 0 WHERE rowid = 6", "row 6 (n=1", 39),
        ("UPDATE trials SET state = 'failed' WHERE rowid = 6", "row 6 (n=1", 39),
        ("UPDATE trials SET error = 'other' WHERE rowid = 4", "row 4 (n=1", 39),
        ("UPDATE trials SET trace = '[' WHERE rowid = 6", "row 6 (n=1", 39),
        ("UPDATE trials SET record = '{}' WHERE rowid = 6", "row 6 (n=1", 39),
        ("UPDATE trials SET metrics = x'00' WHERE rowid = 6", "row 6 (n=1", 39),
        ("UPDATE trials SET replicate = 77 WHERE rowid = 6", "row 6 (n=1, name=words, repl", 39),
        ("UPDATE trials SET cell = 1 WHERE rowid = 6", "row 6 (n=0", 39),
        ("UPDATE trials SET attempts = 2 WHERE rowid = 6", "row 6 (n=1", 39),
        ("UPDATE trials SET id = x'00' WHERE rowid = 6", "row 6 (n=1", 39),
        ("DELETE FROM trials WHERE rowid IN (6, 7)", "2 trials are missing", 38),
        (
            "UPDATE cells SET content = replace(content, 'words', 'sword') WHERE cell = 1",
            "row 1",
            20,
        ),
        ("UPDATE cells SET content = '5' WHERE cell = 1", "row 1", 20),
        ("UPDATE provenances SET content = 'x'", "row 1", 0),
        ("UPDATE totals SET trials = 41", "1 trials are missing", 40),
        ("UPDATE totals SET checksum = x'0000000000000000'", "the totals", 40),
        ("DELETE FROM totals", "damaged", 40),
    ],
)
def test_a_row_that_is_not_what_was_written_is_named_and_the_others_stay(
    store, statement, named, left
):
    change(store, statement)
    before = store.read_bytes()
    for refused in (export, store_table, Store, lambda path: merge_stores(path, [])):
        with pytest.raises(DamagedStoreError, match="--salvage") as caught:
            refused(store)
        assert named in str(caught.value)
    assert store.read_bytes() == before
    _, damaged = export(store, salvage=True)
    with open_store(store, salvage=True) as reader:
        assert len(reader.rows()) == left
    target = store.with_name("new.sqlite")
    merged = merge_stores(target, [store])
    assert (merged.added, len(merged.damaged)) == (left, len(damaged))
    with open_store(target) as reader:
        assert len(reader.rows()) == left


def flipped(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    damaged = path.with_name("flipped.sqlite")
    damaged.write_bytes(content)
    return damaged


def rows_of(path, salvage=False):
    """All that an export is made of."""
    with open_store(path, salvage=salvage) as reader:
        return [repr(row) for row in reader.rows()]


def silent_changes(path, flips):
    """Flip as many random bits, one at a time: those that change an export silently, how many are
    noticed, and how many rows are salvaged then, on average."""
    whole, draw = rows_of(path), random.Random(0)
    silent, noticed, salvaged = [], 0, 0
    for _ in range(flips):
        bit = draw.randrange(8 * path.stat().st_size)
        damaged = flipped(path, bit)
        try:
            silent += [bit] * (rows_of(damaged) != whole)
        except FinettiError:
            noticed += 1
            with suppress(FinettiError):  # the first page, without which SQLite finds nothing
                saved = rows_of(damaged, salvage=True)
                salvaged += len(saved)
                target = path.with_name(f"merged-{bit}.sqlite")
                merge_stores(target, [damaged])
                # What is saved, or taken over, is right.
                silent += [bit] * (not set(saved) == set(rows_of(target)) <= set(whole))
    return silent, noticed, salvaged / max(1, noticed)


def test_of_two_hundred_flipped_bits_none_changes_an_export_silently(store):
    silent, noticed, salvaged = silent_changes(store, 200)
    assert silent == []
    assert noticed > 20
    assert salvaged > 20  # of 40


@pytest.mark.slow
def test_of_many_flipped_bits_of_a_larger_store_none_changes_an_export_silently(tmp_path):
    silent, noticed, salvaged = silent_changes(fill(tmp_path / "s.sqlite", 600, 20), 500)
    assert silent == []
    assert noticed > 200
    assert salvaged > 400


def root_page(path, name):
    with closing(sqlite3.connect(path)) as connection:
        ask = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        return connection.execute(ask, (name,)).fetchone()[0]


def damage_index(path):
    """Exchange two entries of the index by id: every row is whole, and two are not found."""
    content = bytearray(path.read_bytes())
    start = (root_page(path, "trials_by_id") - 1) * PAGE
    first, second = struct.unpack_from(">HH", content, start + 8)
    struct.pack_into(">HH", content, start + 8, second, first)
    path.write_bytes(content)


def test_a_damaged_index_hides_nothing_and_is_made_again(store):
    whole, _ = export(store)
    damage_index(store)
    assert export(store)[0] == whole  # which asks no index
    told = []
    with Store(store, on_wait=told.append) as opened:
        assert opened.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert len(told) == 1
    assert "made again from the rows" in told[0]
    assert export(store)[0] == whole


@pytest.mark.parametrize("how", ["killed", "merge"])
def test_a_large_store_is_checked_after_an_unclean_end_and_before_a_merge(store, monkeypatch, how):
    monkeypatch.setattr("finetti.studies.store.trial_store.MAX_CHECKED_BYTES", 0)
    damage_index(store)
    told = []
    Store(store, on_wait=told.append).close()
    assert told == []  # a large file whose writer has closed it
    if how == "killed":
        text = "import os, sys; from finetti.studies.store.trial_store import Store; "
        text += "Store(sys.argv[1]); os._exit(9)"
        subprocess.run([sys.executable, "-c", text, store], check=False)
        Store(store, on_wait=told.append).close()
    else:
        merge_stores(store, [fill(store.with_name("more.sqlite"), 60)])
        assert len(store_table(store)) == 60
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_page_that_is_lost_takes_only_its_rows_along(tmp_path):
    path = fill(tmp_path / "s.sqlite", 300)
    whole, _ = export(path)
    content = bytearray(path.read_bytes())
    rows = [i for i in range(0, len(content), PAGE) if b'"steps":151,' in content[i : i + PAGE]]
    content[rows[0] : rows[0] + PAGE] = b"\xff" * PAGE
    path.write_bytes(content)
    with pytest.raises(DamagedStoreError, match="--salvage"):
        export(path)
    with pytest.raises(DamagedStoreError):
        Store(path)
    saved, damaged = export(path, salvage=True)
    assert set(saved.splitlines()) <= set(whole.splitlines())
    assert 200 < len(saved.splitlines()) < 300
    assert damaged == [f"{301 - len(saved.splitlines())} trials are missing"]

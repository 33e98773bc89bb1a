"""Files are whole or not there, and as readable as other files."""

import os

import pytest

from finetti.core.errors import InputError
from finetti.core.files import check_writable, from_cache, write_file


def test_a_file_is_written_whole_and_readable(tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    written = write_file(b"x", tmp_path / "a.csv")
    assert written.read_bytes() == b"x"
    assert written.stat().st_mode == plain.stat().st_mode
    write_file(b"yy", written)
    assert written.read_bytes() == b"yy"
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "plain"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_file(b"x", tmp_path / "missing" / "a.csv")


@pytest.mark.parametrize(
    ("name", "why"), [("missing/a.csv", "no folder"), ("", "a folder"), ("file/a.csv", "no folder")]
)
def test_a_place_is_refused_before_there_is_anything_to_write(tmp_path, name, why):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=why):
        check_writable(tmp_path / name)


def test_asking_whether_a_place_can_be_written_changes_nothing(tmp_path):
    kept = write_file(b"x", tmp_path / "kept")
    check_writable(kept)
    check_writable(tmp_path / "new")
    assert kept.read_bytes() == b"x"
    assert os.listdir(tmp_path) == ["kept"]


def test_what_is_kept_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert from_cache("name", lambda: b"made") == b"made"
    assert from_cache("name", lambda: b"made again") == b"made"
    assert from_cache("another name", lambda: b"made again") == b"made again"


@pytest.mark.parametrize("damage", [lambda stored: b"", lambda stored: stored[:-1]])
def test_what_is_not_whole_is_made_again(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    from_cache("name", lambda: b"made")
    path = tmp_path / "finetti" / "name"
    path.write_bytes(damage(path.read_bytes()))
    assert from_cache("name", lambda: b"made again") == b"made again"
    assert from_cache("name", lambda: b"a third time") == b"made again"


def test_where_nothing_can_be_kept_it_is_made_every_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert from_cache("name", lambda: b"made") == b"made"
    assert from_cache("name", lambda: b"made again") == b"made again"

"""Files are whole or not there, and as readable as other files."""

import os
import signal
import stat

import pytest

from finetti.core.errors import InputError
from finetti.core.files import (
    check_writable,
    from_cache,
    parse_json,
    parse_toml,
    read_file,
    write_file,
)


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


def test_a_link_is_followed_and_stays(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to("target")
    write_file(b"new", link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    (tmp_path / "later").symlink_to(tmp_path / "made")  # whose target is not there yet
    write_file(b"x", tmp_path / "later")
    assert (tmp_path / "made").read_bytes() == b"x"
    assert sorted(os.listdir(tmp_path)) == ["later", "link", "made", "target"]


def test_a_pipe_is_written_in_place(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        check_writable(path)
        write_file(b"some text", path)
        assert os.read(reader, 100) == b"some text"
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)


@pytest.mark.parametrize(
    ("kind", "number", "kept"),
    [(stat.S_IFCHR, os.makedev(1, 3), True), (stat.S_IFBLK, os.makedev(7, 250), False)],
)
def test_a_device_stays_a_device(tmp_path, kind, number, kept):
    node = tmp_path / "node"  # of our own: a node like /dev/null, and a disk that is not there
    try:
        os.mknod(node, kind | 0o600, number)
        os.close(os.open(node, os.O_WRONLY)) if kept else None
    except OSError:
        pytest.skip("only an administrator makes devices, and not in every container")
    if kept:
        check_writable(node)
        write_file(b"x", node)
    else:
        for refused in (check_writable, lambda path: write_file(b"x", path)):
            with pytest.raises(InputError, match="is a disk"):
                refused(node)
    assert stat.S_IFMT(node.stat().st_mode) == kind
    assert os.listdir(tmp_path) == ["node"]


def test_an_open_file_of_the_process_is_written_where_it_is(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"before ")
    with log.open("ab") as file:
        write_file(b"and after", f"/dev/fd/{file.fileno()}")
    assert log.read_bytes() == b"before and after"


def test_a_loop_of_links_is_refused_in_a_sentence(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for refused in (check_writable, lambda path: write_file(b"x", path), read_file):
        with pytest.raises(InputError, match="symbolic links"):
            refused(loop)


def test_only_files_of_a_stated_size_are_read(tmp_path):
    file, pipe, sparse = tmp_path / "file", tmp_path / "pipe", tmp_path / "sparse"
    file.write_bytes(b"content")
    os.mkfifo(pipe)
    with sparse.open("wb") as big:
        big.truncate(10**10)
    assert read_file(file) == b"content"
    assert read_file(file, 7) == b"content"
    for path, why in ((pipe, "regular file"), (tmp_path, "regular file"), (sparse, "at most")):
        with pytest.raises(InputError, match=why):
            read_file(path)
    with pytest.raises(InputError, match="at most 6"):
        read_file(file, 6)
    with pytest.raises(InputError, match="null"):
        read_file(tmp_path / "a\0b")


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_json, b"[" * 100_000),
        (parse_json, b'{"a": ' * 100_000),
        (parse_json, b'{"a": ' + b"1" * 5000 + b"}"),
        (parse_json, b"\xff"),
        (parse_json, b"[1]"),
        (parse_json, b'{"a": 1, "a": 2}'),
        (parse_toml, b"a = " + b"[" * 100_000),
        (parse_toml, b"a = " + b"1" * 5000),
        (parse_toml, b"\xff"),
        (parse_toml, b"a ="),
        (parse_toml, b"[" + b"a." * 50_000 + b"a]"),  # which would take minutes
    ],
)
def test_what_cannot_be_parsed_is_told_in_a_sentence(parse, text):
    with pytest.raises(InputError, match=r"^the file .{1,200}$"):
        parse(text, "the file")


def test_a_cache_that_is_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "finetti").mkdir()
    os.mkfifo(tmp_path / "finetti" / "name")
    # A writer is there, so that a reader that waits would wait for its end.
    writer = os.open(tmp_path / "finetti" / "name", os.O_RDWR)
    os.write(writer, b"x" * 100)
    signal.alarm(20)
    try:
        assert from_cache("name", lambda: b"made") == b"made"
    finally:
        signal.alarm(0)
        os.close(writer)

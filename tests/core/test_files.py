"""Files are whole or not there, and as readable as other files."""

import os

import pytest

from finetti.core.errors import InputError
from finetti.core.files import write_file


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

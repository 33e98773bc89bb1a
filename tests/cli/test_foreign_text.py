"""Text from files of others reaches the terminal as text: nothing in it steers the terminal."""

import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.text import Text

import checkpoints as make
from finetti.core.plain_data import clean_text
from finetti.display import Card, Displayable, Table
from finetti.display.clean_console import CleanConsole

CLEAR, CLIPBOARD = "\x1b[2J", "\x1b]52;c;ZWNobw==\x07"
HOSTILE = f"a{CLEAR}b{CLIPBOARD}c\x9b2Jd\u202ee\u2066f\rg\x08h\x7fi"
STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Hostile(Displayable):
    """An object whose every text is hostile."""

    def __card__(self):
        table = Table(HOSTILE, (HOSTILE, "n"), ((HOSTILE, 1),))
        return Card(HOSTILE, ((HOSTILE, HOSTILE),), (table,), (HOSTILE,))


def test_only_what_steers_is_replaced():
    assert clean_text(HOSTILE).isprintable()
    assert clean_text("λ ≤ 2\n\té 漢 👩‍🔬 עברית") == "λ ≤ 2\n\té 漢 👩‍🔬 עברית"
    assert clean_text(os.fsdecode(b"\xff")).encode()


def test_objects_show_themselves_without_escapes():
    assert not STEERING.search(str(Hostile()))
    assert "\x1b" not in str(Hostile())
    console = CleanConsole(force_terminal=True, width=80, color_system="standard")
    with console.capture() as capture:
        console.print(Hostile())
        console.print(HOSTILE, style="bold")
        console.print(Text(HOSTILE))
    assert not STEERING.search(capture.get())
    # All that is left are Rich's own colors.
    assert set(re.findall("\x1b(.)", capture.get())) == {"["}
    assert CLEAR not in capture.get()


def on_terminal(*arguments, cwd):
    """What ``finetti`` writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "finetti", *map(os.fsencode, arguments)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd)
    os.close(theirs)
    found = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how Linux says that all of the other side is closed
            part = b""
        if not part:
            break
        found += part
    os.close(ours)
    process.wait()
    return found.decode(errors="replace").replace("\r\n", "\n")


@pytest.mark.parametrize("where", ["name of a tensor", "folder", "map", "study", "--against"])
def test_hostile_files_do_not_reach_the_terminal(tmp_path, where):
    arguments = ["audit", "model"]
    arrays, config, _ = make.synthetic("bert")
    if where == "name of a tensor":
        prefix = next(name for name in arrays if "layer.0" in name).split("layer.0")[0]
        arrays[f"{prefix}layer.0.{HOSTILE}"] = np.ones((3, 3))
    make.write(tmp_path / "model", arrays, config)
    if where == "folder":
        (tmp_path / "model").rename(tmp_path / HOSTILE)
        arguments = ["audit", HOSTILE, "-q"]
    elif where == "map":
        (tmp_path / "map.toml").write_text(f'["{HOSTILE}"]\n'.encode("unicode_escape").decode())
        arguments += ["--map", "map.toml"]
    elif where == "study":
        (tmp_path / f"{HOSTILE}.toml").write_text(r'"\u001b[2J" = 3')
        arguments = ["status", f"{HOSTILE}.toml"]
    elif where == "--against":
        arguments = ["reproduce", "--against", HOSTILE]
    shown = on_terminal(*arguments, cwd=tmp_path)
    assert not STEERING.search(shown)
    assert CLEAR not in shown
    assert "\x1b]" not in shown

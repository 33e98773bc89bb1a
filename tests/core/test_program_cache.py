"""Compiled programs are kept on disk, and read by the next process."""

import os
import subprocess
import sys

import pytest

from finetti.core.errors import InputError
from finetti.core.program_cache import enable_cache, processor_name

CALL = """
import sys
{before}
import finetti
{after}
assert ("jax" in sys.modules) == {has_jax}
import numpy as np
from finetti.attention import cme_attention
from jax._src import monitoring
hits = []
monitoring.register_event_listener(lambda name, **_: hits.append(name))
tokens = np.linspace(0, 1, 8, dtype=np.float32).reshape(1, 4, 1, 2)
print(cme_attention(tokens, tokens, tokens).sum())
print(sum(name.endswith("cache_hits") for name in hits))
"""


def run(code, **environment):
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    options = {"env": kept | environment, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([sys.executable, "-c", code], **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_next_process_reads_what_was_compiled(tmp_path):
    quiet = CALL.format(before="", after="", has_jax=False)
    answer, hits = run(quiet, FINETTI_CACHE=str(tmp_path))
    assert hits == "0"
    (folder,) = tmp_path.iterdir()
    assert processor_name() in folder.name
    programs = len(list(folder.iterdir()))
    assert programs > 0
    enable = f"finetti.enable_cache({str(tmp_path)!r})"
    same, hits = run(CALL.format(before="import jax", after=enable, has_jax=True))
    assert same == answer
    assert int(hits) > 0
    assert len(list(folder.iterdir())) == programs


def test_without_it_nothing_is_kept(tmp_path):
    run(CALL.format(before="", after="", has_jax=False), HOME=str(tmp_path))
    assert list(tmp_path.rglob("*-cache")) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="`folder` argument of enable_cache"):
        enable_cache(file)

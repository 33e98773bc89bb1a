"""Where a result comes from is asked without running anything of the folder's owner."""

import shutil
import subprocess

import pytest

from finetti.core.provenance import commit_of


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")
def test_the_commit_is_found_without_running_the_folders_programs(tmp_path):
    def git(*arguments):
        name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *name, *arguments], cwd=tmp_path, check=True, capture_output=True)

    program, trace = tmp_path / "monitor.sh", tmp_path / "trace"
    program.write_text(f"#!/bin/sh\ntouch {trace}\n")
    program.chmod(0o755)
    (tmp_path / "file").write_text("a")
    git("init")
    git("add", "file")
    git("commit", "-m", "a")
    git("config", "core.fsmonitor", str(program))
    git("status")
    assert trace.exists()  # git itself runs it
    trace.unlink()
    commit = commit_of(tmp_path)
    assert commit is not None
    assert not commit.endswith("+")
    (tmp_path / "file").write_text("b")
    assert commit_of(tmp_path) == f"{commit}+"
    assert not trace.exists()

"""How something long gets on."""

import re
import time

from finetti.display.progress import Progress, late_progress, progress_bar


def test_progress_says_what_is_going_on(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("study", 10, shown=True) as on_change:
        on_change(Progress(0, 0, "compiling…"))
        on_change(Progress(5, 1, "running"))
    shown = capsys.readouterr().err
    assert "running, 1 failed" in shown
    assert "5/10" in shown
    with progress_bar("study", 10, shown=False) as on_change:
        on_change(Progress(5, 1, "running"))
    assert capsys.readouterr().err == ""


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    with progress_bar("study", 100, shown=True) as on_change:
        on_change(Progress(50, 1, "running"))
        assert capsys.readouterr().err == ""  # a short run is silent
        monkeypatch.setattr("finetti.display.progress.MIN_SILENCE_SECONDS", 0.0)
        for stored in (51, 52, 60, 61, 69, 70):
            on_change(Progress(stored, 1, "running"))
        monkeypatch.setattr("finetti.display.progress.MAX_SILENCE_SECONDS", 0.0)
        on_change(Progress(70, 0, "running"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["51", "60", "70", "70"]
    assert re.fullmatch("study: 51 of 100 trials, 1 failed, about .* left, running", lines[0])
    assert re.fullmatch("study: 70 of 100 trials, about .* left, running", lines[-1])
    with progress_bar("study", 100, shown=True) as on_change:
        on_change(Progress(100, 1, "running"))
    assert capsys.readouterr().err == "study: 100 of 100 trials, 1 failed, running\n"


def test_only_long_work_shows_its_progress(monkeypatch, capsys):
    """Also within a call that reports nothing; what is over in time leaves no line."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    with late_progress("fit", 3, "steps") as report:
        report(Progress(1, 0, "short"))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("finetti.display.progress.SHORT_SECONDS", 0.05)
    with late_progress("fit", 3, "steps") as report:
        report(Progress(1, 0, "one long call"))
        deadline, shown = time.monotonic() + 30, ""
        while not shown and time.monotonic() < deadline:
            time.sleep(0.05)
            shown = capsys.readouterr().err
    assert re.fullmatch("fit: 1 of 3 steps, about .* left, one long call\n", shown)

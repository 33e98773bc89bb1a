"""What a plan may be remembered by: never by less than what it depends on."""

import json
import sys
from dataclasses import asdict

import pytest

from finetti.core.errors import FinettiError, InputError
from finetti.studies import Study
from finetti.studies.plan import plan_digest
from finetti.studies.sources import find_source, installed_versions

from .commands import finish


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study of ``mine.py`` in a folder, with another folder of modules on the path."""
    library = tmp_path / "library"
    library.mkdir()
    monkeypatch.syspath_prepend(library)
    place = tmp_path / "place"
    place.mkdir()

    def study(text, **fields):
        (place / "mine.py").write_text(text)
        return Study("mine.py:f", store=tmp_path / "s.sqlite", directory=place, **fields)

    study.library, study.place = library, place
    return study


def key(study):
    return plan_digest(study.spec, study.source, study.name)


def test_defaults_from_outside_of_the_snapshot_are_not_stale(study, monkeypatch):
    text = "from settings_elsewhere import N\ndef f(seed, n=N): return {'n': n}\n"
    mine = study(text)
    for value in (1, 2):
        (study.library / "settings_elsewhere.py").write_text(f"N = {value}\n" + "#" * value)
        for name in ("settings_elsewhere", "mine"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        assert mine.run("inline", quiet=True).ran == 1
        assert mine.table()["n"].tolist() == [value]


@pytest.mark.parametrize(
    ("text", "remembered"),
    [
        ("import math, json", True),
        ("import numpy as np", True),
        ("from yaml import safe_load", True),
        ("import nowhere_to_be_found", True),
        ("import library_of_mine", False),
        ("import importlib; importlib.import_module('library_of_mine')", False),
        ("import importlib; importlib.import_module('li' + 'brary')", False),
        ("__import__('math')", True),
        ("from finetti.core import seed_of", True),
    ],
)
def test_plans_are_remembered_if_all_imports_are_known(study, text, remembered):
    (study.library / "library_of_mine.py").write_text("")
    assert (key(study(f"{text}\ndef f(seed): return {{'x': 1}}\n")) is not None) is remembered


def test_an_upgraded_package_makes_another_key(study, monkeypatch):
    mine = study("import numpy\ndef f(seed): return {'x': 1}\n")
    before = key(mine)
    monkeypatch.setattr("finetti.studies.sources.metadata.version", lambda name: "99")
    assert key(mine) != before
    assert installed_versions(["numpy"]) == [["numpy", "99"]]


def test_names_that_are_written_down_are_in_the_snapshot(study):
    (study.place / "aside.py").write_text("x = 1\n")
    mine = study("import importlib\nimportlib.import_module('aside')\ndef f(seed): return {}\n")
    assert list(mine.source.files) == ["aside", "mine"]


def test_a_file_that_loads_what_the_ids_do_not_know_is_refused(study, monkeypatch):
    (study.place / "unseen_aside.py").write_text("x = 1\n")
    text = "import importlib\nimportlib.import_module('unseen_' + 'aside')\ndef f(seed): pass\n"
    with pytest.raises(InputError, match="imported unseen_aside by a computed name"):
        study(text).run("inline", quiet=True)
    assert "unseen_aside" not in sys.modules
    assert study(text, code_version="1").plan.places


def test_modules_of_older_snapshots_are_never_used(study):
    modules = []
    for value in (1, 2, 3):
        mine = study(f"def f(seed): return {{'x': {value}}}\n")
        if modules:
            sys.modules["mine"] = modules[0]  # as whoever keeps modules and puts them back
        mine.run("inline", quiet=True)
        assert mine.table()["x"].tolist() == [value]
        modules.append(sys.modules["mine"])


def test_links_hide_nothing(study, monkeypatch):
    (study.place / "unseen_aside.py").write_text("x = 1\n")
    text = "import importlib\nimportlib.import_module('unseen_' + 'aside')\ndef f(seed): pass\n"
    study(text)
    link = study.place.with_name("link")
    link.symlink_to(study.place)
    monkeypatch.syspath_prepend(study.place)
    mine = Study("mine.py:f", store=link / "s.sqlite", directory=link)
    with pytest.raises(InputError, match="imported unseen_aside by a computed name"):
        mine.run("inline", quiet=True)


@pytest.mark.parametrize("text", ["raise SystemExit(0)", "import sys\nsys.exit()"])
def test_a_file_that_ends_the_process_is_an_error(study, text):
    with pytest.raises(FinettiError, match="cannot be loaded: SystemExit"):
        study(text).run("inline", quiet=True)


def test_a_command_is_not_ended_by_a_file(study):
    study("raise SystemExit(0)")
    (study.place / "s.toml").write_text('kind = "mine.py:f"\n')
    code, out, err = finish("run", study.place / "s.toml")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "SystemExit" in err


def test_sources_travel(tmp_path):
    (tmp_path / "a.py").write_text("def f(seed): return {}\n")
    source = find_source("a.py:f", tmp_path, "7")
    again = type(source)(**json.loads(json.dumps(asdict(source))))
    assert (again.versioned, again.fingerprint, again.folder) == (True, "7", source.folder)
    assert list(map(tuple, again.files.values())) == list(source.files.values())


def test_what_is_no_source_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "mine.py"
    with path.open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(InputError, match="at most"):
        find_source("mine.py:f", tmp_path)
    for content in (b"-" * 100_000 + b"1", b"\0", b"\xff", b"def"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is not Python"):
            find_source("mine.py:f", tmp_path)


def test_line_ends_do_not_change_the_source(tmp_path):
    found = []
    for ends in (b"\n", b"\r\n", b"\r"):
        (tmp_path / "mine.py").write_bytes(ends.join((b"def f(seed):", b"    return {}", b"")))
        found.append(find_source("mine.py:f", tmp_path))
    assert found[0] == found[1] == found[2]

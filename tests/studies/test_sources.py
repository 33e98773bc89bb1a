"""The source of a kind: what is hashed, what travels, and that nothing else runs."""

import json
import sys
from dataclasses import asdict

import pytest

from finetti.core.errors import FinettiError, InputError
from finetti.studies import Study
from finetti.studies.source_code import find_source

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


def test_defaults_from_outside_of_the_snapshot_are_not_stale(study, monkeypatch):
    text = "from settings_elsewhere import N\ndef f(seed, n=N): return {'n': n}\n"
    mine = study(text)
    for value in (1, 2):
        (study.library / "settings_elsewhere.py").write_text(f"N = {value}\n" + "#" * value)
        for name in ("settings_elsewhere", "mine"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        assert mine.run("inline", quiet=True).ran == 1
        assert mine.table()["n"].tolist() == [value]


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
    assert study(text, code_version="1").plan.trial_positions


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


@pytest.mark.parametrize("executor", ["inline", "local", "dask"])
def test_files_that_parameters_name_travel_as_they_were_hashed(
    study, executor, request, monkeypatch
):
    """Workers see neither the folder nor what is edited during the run."""
    monkeypatch.chdir(study.place)
    (study.place / "factor.py").write_text("WORD = 'planned'\n")
    (study.place / "net.py").write_text("from factor import WORD\ndef net(): return WORD\n")
    fixed = {"network": "./net.py:net", "edited": str(study.place / "net.py")}
    mine = Study(
        "tests.studies.material.naming:Naming",
        store=study.place / "s.sqlite",
        grid={"n": [1, 2, 3]},
        fixed=fixed,
    )
    where = {"executor": executor}
    if executor == "dask":
        where = {"cluster": request.getfixturevalue("address")}
    plan = mine.plan
    assert mine.run(quiet=True, plan=plan, **where).done == 3
    table = mine.table(plan=plan)
    assert set(table["answer"]) == {"planned"}
    assert set(table["metric.code"]) == set(table["code"])
    # Planned again, the edited file is another one.
    assert len(mine.table()) == 0

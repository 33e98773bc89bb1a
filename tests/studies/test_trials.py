"""An id is the hash of all that a result depends on, and of nothing else."""

import sys

import numpy as np
import pytest

from finetti.core.errors import FinettiError, InputError, UnsupportedError
from finetti.core.numerics.random_keys import seed_of
from finetti.studies import Study
from finetti.studies.coordinator import WaitingTrials
from finetti.studies.source_code import find_source
from finetti.studies.trials import Cell


def planned(study):
    plan = study.plan
    waiting = WaitingTrials(plan, plan.trial_positions)
    return [trial for task in iter(lambda: waiting.take(1), None) for trial in task.trials]


def ids(study):
    return list(study.plan.trial_positions)


def test_every_part_of_the_content_changes_the_id():
    base = {"kind": "m:f", "version": "1", "fingerprint": "", "params": {"n": 3}, "seed": 0}
    changes = [
        {"kind": "m:g"},
        {"version": "2"},
        {"fingerprint": "a"},
        {"params": {"n": 4}},
        {"params": {"n": 3, "width": 8}},
        {"params": {"n": "3"}},
        {"params": {"n": True}},
        {"seed": 1},
    ]
    all_ids = {Cell(**{**base, **change}).trial_id(0) for change in [{}, *changes]}
    assert len(all_ids) == len(changes) + 1
    assert Cell(**base).trial_id(1) not in all_ids


def test_the_order_of_parameters_does_not_matter():
    first, second = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    cells = [Cell("m:f", "1", "", params, 0) for params in (first, second)]
    assert cells[0].trial_id(0) == cells[1].trial_id(0)


def test_the_seed_of_a_trial_depends_on_its_id_only(make_study):
    one, other = make_study(trials=2), make_study(trials=5, cohort=1)
    seeds = [{trial.id: trial.seed for trial in planned(study)} for study in (one, other)]
    assert len(set(seeds[1].values())) == 15
    assert all(seed == seed_of(trial_id) for trial_id, seed in seeds[1].items())
    # More trials per cell keep the first ones, so that nothing is computed twice.
    assert seeds[0].items() <= seeds[1].items()


def test_trials_seeded_by_replicate_share_their_random_numbers(make_study):
    own, shared = make_study(), make_study(seed_by="replicate")
    assert not set(ids(own)) & set(ids(shared))
    seeds = {}
    for trial in planned(shared):
        seeds.setdefault(trial.params["n"], []).append(trial.seed)
    assert len(set(seeds[1])) == 4
    assert seeds[1] == seeds[2] == seeds[3]
    shared.run("inline", quiet=True)
    scaled = shared.table().eval("loss * n").round(12)
    assert scaled.nunique() == 4  # learner.py:good divides one draw by n
    assert make_study(seed_by="replicate", seed=1).plan.cells[0].trial("", 0).seed not in seeds[1]


def test_defaults_of_the_kind_enter_the_ids(make_study):
    assert ids(make_study()) == ids(make_study(fixed={"width": 8}))
    assert not set(ids(make_study())) & set(ids(make_study(fixed={"width": 9})))
    assert make_study().plan.cells[0].params == {"n": 1, "width": 8, "pause": 0.0}


def test_toml_and_python_make_the_same_trials(make_study, folder):
    path = folder / "s.toml"
    path.write_text('kind = "learner.py:good"\ntrials = 4\n[grid]\nn = {range = [1, 3, 1]}\n')
    assert ids(Study.from_toml(path)) == ids(make_study(grid={"n": np.arange(1, 4).tolist()}))
    assert ids(Study.from_toml(path)) == ids(make_study(grid={"n": tuple(np.arange(1, 4))}))
    assert not set(ids(Study.from_toml(path, seed=1))) & set(ids(make_study()))


def test_editing_the_file_changes_the_ids(make_study, folder):
    before = ids(make_study())
    text = (folder / "learner.py").read_text()
    (folder / "learner.py").write_text(text.replace("/ n", "/ (n + 1)"))
    assert not set(before) & set(ids(make_study()))
    (folder / "learner.py").write_text(text)
    assert ids(make_study()) == before


def test_editing_what_the_file_imports_changes_the_ids_and_the_results(make_study, folder):
    study = make_study()
    study.run("inline", quiet=True)
    before, losses = ids(study), study.table()["loss"]
    (folder / "helper.py").write_text("FACTOR = 4.0\n")
    edited = make_study()
    edited.run("inline", quiet=True)
    assert not set(before) & set(ids(edited))
    assert not set(losses) & set(edited.table()["loss"])
    (folder / "unrelated.py").write_text("x = 1\n")
    assert ids(make_study()) == ids(edited)
    # A study that was there before the edit sees it, too.
    assert study.run("inline", quiet=True).ran == 12
    assert ids(study) == ids(edited)
    assert study.table()["loss"].tolist() == edited.table()["loss"].tolist()


def test_the_folder_does_not_matter(make_study, folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("learner.py", "helper.py"):
        (elsewhere / name).write_text((folder / name).read_text())
    moved = Study(
        "learner.py:good",
        store=elsewhere / "s.sqlite",
        directory=elsewhere,
        grid={"n": [1, 2, 3]},
        trials=4,
    )
    assert ids(moved) == ids(make_study())


def test_a_code_version_takes_the_place_of_the_hash(make_study, folder):
    before = ids(make_study(code_version="1"))
    with open(folder / "learner.py", "a") as file:
        file.write("# a remark\n")
    assert ids(make_study(code_version="1")) == before
    assert not set(before) & set(ids(make_study(code_version="2")))


def test_imports_are_followed_below_the_folder_only(tmp_path):
    package = tmp_path / "mine" / "deep"
    package.mkdir(parents=True)
    (tmp_path / "mine" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from . import leaf\n")
    (package / "leaf.py").write_text("from ..other import x\nimport numpy\n")
    (tmp_path / "mine" / "other.py").write_text("x = 1\n")
    (tmp_path / "mine" / "unused.py").write_text("x = 1\n")
    (tmp_path / "a.py").write_text("def f(seed):\n    import mine.deep\n    return {}\n")
    source = find_source("a.py:f", tmp_path)
    assert list(source.files) == ["a", "mine", "mine.deep", "mine.deep.leaf", "mine.other"]


def test_modules_of_the_users_own_have_a_fingerprint(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "users_own_module.py").write_text("def f(seed): return {}\n")
    first = find_source("users_own_module:f", tmp_path).fingerprint
    (tmp_path / "users_own_module.py").write_text("def f(seed): return {'a': 1}\n")
    assert find_source("users_own_module:f", tmp_path).fingerprint != first
    assert "users_own_module" not in sys.modules


@pytest.mark.parametrize(
    "kind", ["learner.py", "learner.py:", ":good", "no-module:x", "missing_module:f", "absent.py:f"]
)
def test_kinds_that_cannot_be_found_are_refused(folder, kind):
    with pytest.raises(InputError, match=f"The kind {kind!r} (cannot be read|was not found)"):
        find_source(kind, folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grid": {"m": [1]}}, r"`grid\.m` is not a parameter"),
        ({"grid": {"n": [1]}, "fixed": {"withd": 3}}, r"`fixed\.withd` is not a parameter"),
        ({"grid": {"width": [1]}}, r"`fixed\.n` is missing"),
        ({"grid": {"n": ["one"]}}, r"`grid\.n` should be a valid integer"),
        ({"grid": {"n": [1.5]}}, r"`grid\.n` should be a valid integer"),
        ({"kind": "nothing"}, r"The kind .*: learner\.py has no 'nothing'. It defines good"),
    ],
)
def test_parameters_that_the_kind_refuses_are_named(make_study, fields, message):
    with pytest.raises(InputError, match=message):
        ids(make_study(**fields))


def test_parameters_may_have_any_name(make_study):
    study = make_study("named", grid={"copy": [1, 2]}, fixed={"extra": "x"}, trials=1)
    assert study.plan.cells[0].params == {"copy": 1, "json": 3, "_hidden": 4, "extra": "x"}
    study.run("inline", quiet=True)
    assert study.table()["sum"].tolist() == [9, 10]
    assert study.table()["large"].all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(): pass", r"takes no `seed` by name.*Write def f\(seed\), and"),
        ("def f(n, width=8): pass", r"takes no `seed` by name.*Write def f\(seed, n, width\)"),
        ("def f(seed, /, n): pass", r"takes no `seed` by name.*Write def f\(seed, n\)"),
        ("def f(n, /, seed): pass", "must take 'n' by name"),
        ("def f(seed, *n): pass", "must take 'n' by name"),
        ("f = print", "takes no `seed`"),
    ],
)
def test_functions_that_take_no_seed_or_parameters_are_refused(tmp_path, text, message):
    (tmp_path / "odd.py").write_text(text)
    study = Study("odd.py:f", store=tmp_path / "s.sqlite", directory=tmp_path)
    with pytest.raises(FinettiError, match=message):
        ids(study)


def test_a_file_that_does_not_load_is_named(tmp_path):
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found\ndef f(seed): pass\n")
    study = Study("broken.py:f", store=tmp_path / "s.sqlite", directory=tmp_path)
    with pytest.raises(InputError, match=r"broken\.py:f cannot be loaded: ModuleNotFoundError"):
        ids(study)


def test_what_is_not_a_kind_is_refused(make_study):
    with pytest.raises(UnsupportedError, match="neither a function"):
        ids(make_study("MOODS"))


def test_kinds_given_as_objects_are_found_by_name(tmp_path):
    from finetti.studies import examples

    study = Study(examples.estimate_pi, store=tmp_path / "a.sqlite", grid={"n_points": [3]})
    assert study.spec.kind == "finetti.studies.examples:estimate_pi"
    with pytest.raises(InputError, match="found by name"):
        Study(lambda seed: {}, store=tmp_path / "a.sqlite")

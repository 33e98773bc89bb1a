"""Several stores become one, and nothing is lost or counted twice."""

import shutil

import pytest
from pandas.testing import assert_frame_equal

from finetti.core.errors import InputError
from finetti.studies import merge_stores, store_table


def test_merging_halves_gives_the_whole(make_study, folder):
    whole = make_study(trials=6)
    whole.run("inline", quiet=True)
    left, right = make_study(trials=4), make_study(trials=6, grid={"n": [3]})
    right.store, left.store = folder / "right.sqlite", folder / "left.sqlite"
    third = make_study(trials=6, grid={"n": [1, 2]}, store="third.sqlite")
    for study in (left, right, third):
        study.run("inline", quiet=True)
    target = folder / "all.sqlite"
    merged = merge_stores(target, [left.store, right.store, third.store])
    assert (merged.added, merged.present, merged.different) == (18, 12, 0)
    assert_frame_equal(store_table(target), store_table(whole.store), check_exact=True)
    # Again: nothing to do. In another order: the same.
    before = store_table(target, details=True)
    again = merge_stores(target, [left.store, right.store, third.store])
    assert (again.added, again.repaired, again.different) == (0, 0, 0)
    assert_frame_equal(store_table(target, details=True), before, check_exact=True)
    merge_stores(folder / "other.sqlite", [third.store, right.store, left.store])
    assert_frame_equal(store_table(folder / "other.sqlite"), store_table(target), check_exact=True)
    # The merged store is that of the whole study: nothing is left to run.
    whole.store = target
    assert whole.run("inline", quiet=True).ran == 0


def test_merging_repairs_failures_and_keeps_results(make_study, folder):
    study = make_study("flaky", fixed={"flag": str(folder / "flag")}, trials=2)
    study.run("inline", quiet=True)
    broken = folder / "broken.sqlite"
    shutil.copy(study.store, broken)
    (folder / "flag").touch()
    study.run("inline", retry_failed=True, quiet=True)
    merged = merge_stores(broken, [study.store])
    assert (merged.added, merged.repaired, merged.present) == (0, 2, 4)
    assert_frame_equal(store_table(broken), study.table(), check_exact=True)
    assert merge_stores(study.store, [broken]).repaired == 0
    # Attempts are part of the story; merging again does not add to them.
    for path in (broken, folder / "new.sqlite"):
        for _ in range(2):
            merge_stores(path, [study.store])
            assert store_table(path, details=True)["attempts"].tolist() == [1, 1, 2, 2, 1, 1]


def test_a_store_is_not_merged_into_itself(make_study):
    study = make_study()
    study.run("inline", quiet=True)
    with pytest.raises(InputError, match="itself"):
        merge_stores(study.store, [study.store])
    with pytest.raises(InputError, match="no store"):
        merge_stores(study.store, [study.store.with_name("missing.sqlite")])

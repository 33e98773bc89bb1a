"""Threads of BLAS and OpenMP, limited for a while."""

import numpy as np  # the BLAS whose threads are counted
import pytest
import threadpoolctl

from finetti.core import process_tuning as threads
from finetti.core.process_tuning import limit_threads


def blas_threads():
    assert np.linalg
    return [
        each["num_threads"]
        for each in threadpoolctl.threadpool_info()
        if each["user_api"] == "blas"
    ]


@pytest.mark.parametrize("limit", [1, None])
def test_threads_are_limited_and_given_back(limit):
    before = blas_threads()
    assert before
    with limit_threads(2, "blas"), limit_threads(limit, "blas"):
        assert set(blas_threads()) == {limit or 2}
    assert blas_threads() == before


def test_libraries_are_looked_for_again_only_after_an_import(monkeypatch):
    looks = []

    class Counted(threadpoolctl.ThreadpoolController):
        def __init__(self):
            looks.append(1)
            super().__init__()

    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", Counted)
    threads._controller.cache_clear()
    for _ in range(3):
        with limit_threads(1, "openmp"):
            pass
    assert len(looks) == 1
    monkeypatch.setitem(threads.sys.modules, "a_module_that_was_imported_just_now", threads)
    with limit_threads(1, "openmp"):
        pass
    assert len(looks) == 2

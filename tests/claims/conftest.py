import pytest

import finetti.claims
from finetti.claims import Ledger, run_claims
from sample_claims import MEASURED


@pytest.fixture
def reproduce(monkeypatch, tmp_path):
    """Runs claims in one store, of a ledger that has only these; `MEASURED` is of the last run."""

    def run(*claims, ledger=(), **options):
        monkeypatch.setattr(finetti.claims, "load_ledger", lambda: Ledger(ledger or claims))
        MEASURED.clear()
        return run_claims(claims, store=tmp_path / "evidence.sqlite", **options)

    return run

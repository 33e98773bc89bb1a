"""Search the critical sample size at eleven context lengths, and keep the trials.

AND of 3 hidden bits, the paper's Transformer with its dropouts (Figures 2 and 4, edelman2022).

    python results/and/search.py run STORE         # goes on where the store ends
    python results/and/search.py export STORE      # writes trials.parquet beside this file
    python results/and/search.py restore STORE     # a new store from trials.parquet

The ids of trials depend on the names of modules: use the commit that results/README.md names.
"""

import json
import sqlite3
import sys
from pathlib import Path

import pandas as pd

from finetti.probe import SearchDesign, search_critical
from finetti.studies.store import Store

LENGTHS = [100, 150, 200, 250, 300, 350, 400, 500, 600, 700, 800]
TRIALS = Path(__file__).parent / "trials.parquet"
COLUMNS = (
    "id", "cell", "replicate", "state", "metrics", "trace", "error", "traceback", "seconds",
    "finished", "provenance", "attempts", "repeats",
)  # fmt: skip


def run(store: str) -> None:
    """Run rounds of trials until every length has 300 of them."""
    search_critical(
        "finetti.probe.trial:ProbeTrial",
        LENGTHS,
        store=store,
        # The interval never gets this narrow: every length has its 300 trials, most of them where
        # success is neither rare nor nearly sure.
        design=SearchDesign(
            minimum=10, maximum=2000, start=64, ratio=1.001, max_trials=300, batch=24
        ),
        fixed={"function": "and", "sparsity": 3, "options": {"dropout": "paper"}},
        run={"workers": 1, "quiet": True},
        on_round=lambda report: print(report, flush=True),
    )


def export(store: str) -> None:
    """Write all trials of the store, with what identifies them, as one table."""
    query = (
        "SELECT t.*, c.content AS cell_content, p.content AS provenance_content FROM trials t "
        "JOIN cells c USING (cell) JOIN provenances p USING (provenance) ORDER BY finished"
    )
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        table = pd.read_sql_query(query, connection)
    params = [json.loads(content)["params"] for content in table["cell_content"]]
    for name in ("context_length", "n_samples"):
        table[name] = [each[name] for each in params]
    table["success"] = [json.loads(text)["success"] if text else None for text in table["metrics"]]
    table.to_parquet(TRIALS, compression="zstd")
    minutes = table["seconds"].sum() / 60
    print(f"{len(table)} trials, {minutes:.0f} min in trials, {TRIALS.stat().st_size / 1e3:.0f} kB")


def restore(store: str) -> None:
    """Make a store of the trials in the table."""
    table = pd.read_parquet(TRIALS).astype(object)
    table = table.where(table.notna(), None)
    with Store(store):
        pass  # makes the tables
    with sqlite3.connect(store) as connection:
        for kind in ("cell", "provenance"):
            pairs = table[[kind, f"{kind}_content"]].drop_duplicates()
            connection.executemany(
                f"INSERT INTO {kind}s VALUES (?, ?)", pairs.itertuples(index=False, name=None)
            )
        rows = table[list(COLUMNS)].itertuples(index=False, name=None)
        names, marks = ", ".join(COLUMNS), ", ".join("?" * len(COLUMNS))
        connection.executemany(f"INSERT INTO trials ({names}) VALUES ({marks})", rows)
    print(f"{len(table)} trials in {store}")


if __name__ == "__main__":
    commands = {"run": run, "export": export, "restore": restore}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](sys.argv[2])

"""The figure of a study of `learn_targets`: error against samples, heads, keys or dimension."""

from typing import Any

from finetti.core.errors import bad_argument
from finetti.display.charts.line_charts import Chart, line_chart

AXES = {
    "n_samples": "samples n",
    "n_heads": "heads M",
    "n_keys": "keys N",
    "dimension": "dimension d",
}


def learning_chart(table: Any, target: str, against: str = "n_samples") -> Chart:
    """Mean test error of every model, with a band of one standard error over the replicates.

    Args:
        table: of a study, trial by trial: ``study.table()`` or ``store_table(file)``.
        target: the column with its errors, as "key_power_2".
        against: the parameter on the horizontal axis: n_samples, n_heads, n_keys or dimension.

    >>> import pandas as pd
    >>> trials = {"model": ["RFA"] * 4, "n_samples": [16, 16, 32, 32], "f": [0.9, 1.1, 0.4, 0.6]}
    >>> learning_chart(pd.DataFrame(trials), "f").save("f.svg").unlink()
    """
    owner = "learning_chart"
    if against not in AXES:
        raise bad_argument("against", owner, f"one of {', '.join(AXES)}", repr(against))
    missing = [name for name in (target, against, "model") if name not in table]
    if missing:
        wanted = f"a table of a study of learn_targets, with a column {missing[0]}"
        raise bad_argument("table", owner, wanted, f"the columns {', '.join(table)}")
    groups = table.dropna(subset=[target]).groupby(["model", against])[target]
    summary = groups.agg(["mean", "sem"]).reset_index()
    records = [
        {
            against: int(row[against]),
            "model": row["model"],
            "error": row["mean"],
            "low": row["mean"] - row["sem"],
            "high": row["mean"] + row["sem"],
        }
        for _, row in summary.iterrows()
    ]
    return line_chart(
        records,
        against,
        "error",
        color="model",
        low="low",
        high="high",
        reference=1.0,
        log_x=True,
        log_y=True,
        title=f"{target} (band: one standard error, dashed: the mean)",
        x_title=AXES[against],
        y_title="test error / variance",
    )

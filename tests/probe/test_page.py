"""The page of a probe, and what it is made of: from tables of trials that nobody had to run."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from browser import load_page, needs_browser
from finetti.probe.experiment import Experiment
from finetti.probe.findings import REASONS, Findings
from finetti.probe.page import probe_page

EVIL = "./<b>mine</b>.py:Net"
RUN = {
    "command": "finetti probe --function 'x0 & x1'",
    "seconds": 75.0,
    "finished": "2026-01-02T03:04:05+00:00",
    "provenance": {
        **dict.fromkeys(("finetti", "jax", "numpy", "python", "platform"), "1"),
        "device": ["cpu"],
        "commit": ["abc"],
    },
}


def make(learners=("paper", EVIL), online=False, traced=False):
    """A probe whose trials follow a known curve; learners differ by a factor of two."""
    sizes = () if online else (20, 40, 80)
    experiment = Experiment("and", 2, (10, 20, 40), sizes, 6, "trials.sqlite", learners)
    rng = np.random.default_rng(0)
    rows = []
    for number, learner in enumerate(learners):
        for length in experiment.context_lengths:
            for size in sizes or (None,):
                for replicate in range(experiment.trials):
                    middle = 12 * (1 + number) * np.log(length)
                    success = online or rng.random() < 1 / (1 + (middle / size) ** 6)
                    solved_at = 10 * length + replicate
                    trace = {
                        "step": [10, solved_at],
                        "loss": [0.7, 0.01],
                        "accuracy": [0.5, 1.0 if success else 0.9],
                    }
                    rows.append(
                        {
                            "learner": learner,
                            "context_length": length,
                            "n_samples": size,
                            "replicate": replicate,
                            "seed": replicate,
                            "state": "done",
                            "success": int(success),
                            "reason": "solved" if success else REASONS[1 + replicate % 3],
                            "trace": trace if online or traced else None,
                        }
                    )
    return Findings(experiment, pd.DataFrame(rows))


def page_of(findings):
    return probe_page(findings, {**findings.to_dict(), **RUN}).render()


@pytest.fixture(scope="module")
def findings():
    return make(traced=True)


@pytest.fixture(scope="module")
def page(findings):
    return page_of(findings)


def test_what_became_of_the_trials_adds_up(findings):
    counts = [sum(row[reason] for reason in REASONS) for row in findings.reasons]
    assert counts == [6] * 18
    solved = sum(row["solved"] for row in findings.reasons)
    assert solved == findings.trials["success"].sum()


def test_the_document_is_plain_data_and_holds_the_analysis(findings):
    document = json.loads(json.dumps(findings.to_dict(), allow_nan=False))
    assert document["trials"] == {"all": 108, "done": 108, "failed": 0}
    assert len(document["analysis"]["critical"]) == 6
    assert [each["context_length"] for each in document["information"]] == [10, 20, 40]
    assert len(document["comparisons"]) == 1


def test_every_part_is_on_the_page(page):
    titles = re.findall(r"<h2 id[^>]*>(.*?)</h2>", page)
    assert titles == [
        "Success against the number of samples",
        "Critical sample size against the context length",
        "Training curves",
        "What became of the trials",
        "Learners compared",
    ]
    assert "finetti probe --function &#39;x0 &amp; x1&#39;" in page
    assert "m = a + b·log T" in page
    assert "1 min 15 s" in page


def test_names_are_shown_and_not_run(page):
    body = re.sub(r"<script.*?</script>", "", page[page.index("<body") :], flags=re.DOTALL)
    assert "<b>mine" not in body
    assert "&lt;b&gt;mine" in body


def test_the_page_asks_the_network_for_nothing(page):
    assert "default-src 'none'" in page
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(src|srcset)="(?!data:)', markup)


def test_what_is_missing_is_said(findings):
    some = findings.trials.assign(state=["failed"] * 5 + ["done"] * 103).iloc[:100]
    text = page_of(Findings(findings.experiment, some))
    assert "8 of 108 trials have not run" in text
    assert "5 trials ended with an error" in text


def test_nothing_done_is_a_page_too(findings):
    text = page_of(Findings(findings.experiment, findings.trials.iloc[:0]))
    assert "AND of 2 hidden bits: no trial is done" in text


def test_online_runs_have_curves_and_times_and_no_sample_sizes():
    found = make(("paper",), online=True)
    assert found.headline == (
        "AND of 2 hidden bits, learned online: 6 of 6 runs of paper at T = 10, 6 of 6 runs of "
        "paper at T = 20, 6 of 6 runs of paper at T = 40"
    )
    (table,) = found.tables()
    assert len(table.rows) == 3
    text = page_of(found)
    assert "Training curves" in text
    assert "Critical sample size" not in text


@needs_browser
def test_the_page_draws_its_charts_in_a_browser(page, tmp_path):
    document, console = load_page(page, tmp_path)
    assert console == []
    charts = document.count("<figure")
    assert document.count('<figure class="drawn">') == charts == 10

"""Section 5: what a Transformer learns about hidden rules, and from how many samples."""

import json
from functools import cache
from statistics import median
from typing import Any

from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.random_keys import seed_of
from finetti.display.card import Table
from finetti.studies.trials import Trial, TrialResult, canonical_json

QUICK: dict[str, Any] = {"options": {"dropout": "none", "clip_norm": None}, "iterations": 600}


@cache
def _outcomes(seed: int, content: str) -> list[TrialResult]:
    """The trials of one cell that have been run: claims and controls look at the same ones."""
    return []


def run_trials(context: Context, trials: int, **params: Any) -> list[TrialResult]:
    """What became of the first ``trials`` of one cell."""
    from finetti.probe.probe_trial import ProbeTrial

    content = canonical_json({"sparsity": 3, "ambiguous": "keep", **params})
    known, kind = _outcomes(context.seed, content), ProbeTrial()
    resolved = kind.resolve(json.loads(content))
    seeds = [seed_of("S-learn", context.seed, index) for index in range(len(known), trials)]
    missing = [Trial(str(seed), resolved, seed) for seed in seeds]
    for each in kind.run_cohort(missing) if missing else ():
        if isinstance(each, Exception):
            raise each
        known.append(each)
    return known[:trials]


@claim(
    id="S-fig-2",
    title="the samples that a hidden AND takes grow more slowly than the context",
    statement="A one-layer Transformer finds an AND of 3 hidden bits at T = 400 from 6 times as "
    "many samples as are too few at T = 50; a linear law would ask for 8 times as many.",
    formula="m^*(T=400) < 8 m^*(T=50)",
    label="Figure 2 (Section 5)",
    # 112 of 640 trials succeed at (50, 40), and 281 of 320 at (400, 240): 2.3e-4 for both limits.
    false_alarm=3e-4,
    controls=(
        Control(
            "few samples are as good as many",
            changes={"few": (50, 240), "many": (50, 240), "trials": (2, 2)},
        ),
        Control(
            "a network that is not trained",
            changes={"few": (50, 240), "many": (50, 240), "trials": (2, 2), "iterations": 10},
        ),
    ),
)
def s_fig_2(
    context: Context,
    few: tuple[int, int] = (50, 40),
    many: tuple[int, int] = (400, 240),
    trials: tuple[int, int] = (24, 12),
    iterations: int = 600,
) -> Evidence:
    """Success on 10⁴ fresh samples within the training, of independent trials.

    Quick: without dropout and clip, in a fraction of the time. Paper: with the paper's settings.
    """
    settings = context.pick(quick={**QUICK, "iterations": iterations}, paper={})
    rows, rates = [], []
    for (length, n_samples), count in zip((few, many), trials, strict=True):
        found = run_trials(context, count, context_length=length, n_samples=n_samples, **settings)
        steps = [each.metrics["solved_at"] for each in found if each.metrics["success"]]
        successes = len(steps)
        rows.append((length, n_samples, f"{successes} of {count}", max(steps, default=None)))
        rates.append(successes / count)
    columns = ("T", "samples m", "found", "within steps")
    return Evidence(
        at_most("share of trials that succeed with few samples", rates[0], 0.5),
        at_least("share of trials that succeed with many samples", rates[1], 0.5),
        tables=(Table("AND of 3 hidden bits", columns, tuple(rows)),),
    )


@claim(
    id="S-fig-2-curves",
    title="too few samples are fitted without being understood",
    statement="At T = 400 networks fit all of few training samples of a hidden AND and stay wrong "
    "on fresh ones; from more samples they find the rule.",
    formula=r"T = 400: \text{training accuracy} = 1,  \text{accuracy} < 0.99",
    label="Figure 2, right (Section 5)",
    # 281 of 320 trials succeed at (400, 240); without dropout 100 samples come to .96.
    false_alarm=1e-5,
    controls=(
        Control("a network that is not trained", changes={"trials": 1, "iterations": 10}),
        Control("enough samples", changes={"few": 240, "trials": 1}),
    ),
)
def s_fig_2_curves(
    context: Context, few: int | None = None, trials: int = 4, iterations: int = 600
) -> Evidence:
    """Accuracy on the training samples and on 10⁴ fresh ones, in the median of the trials with few
    samples; how many of twice as many trials find the rule with more.

    Quick: 50 and 240 samples, without dropout. Paper: 100 and 200, with the paper's settings.
    """
    few = few or context.pick(quick=50, paper=100)
    settings = context.pick(quick={**QUICK, "iterations": iterations}, paper={})
    more = context.pick(quick=240, paper=200)
    cells = tuple(
        (m, run_trials(context, count, context_length=400, n_samples=m, **settings))
        for m, count in ((few, trials), (more, 2 * trials))
    )
    fitted, fresh = (
        median(each.metrics[name] for each in cells[0][1])
        for name in ("train_accuracy", "best_accuracy")
    )
    found_rule = sum(each.metrics["best_accuracy"] >= 0.99 for each in cells[1][1])
    rows = tuple(
        (m, number, each.metrics["train_accuracy"], each.metrics["best_accuracy"])
        for m, found in cells
        for number, each in enumerate(found)
    )
    columns = ("samples m", "run", "training accuracy", "accuracy")
    return Evidence(
        at_least("few samples: training accuracy", fitted, 1.0),
        at_most("few samples: accuracy on fresh ones", fresh, 0.97),
        at_least("more samples: share of runs that reach 0.99", found_rule / (2 * trials), 0.25),
        tables=(Table("AND of 3 hidden bits, T = 400", columns, rows),),
    )


@claim(
    id="S-fig-4",
    title="success comes with samples, from never to nearly always",
    statement="At every context length the share of trials that find a hidden AND rises with the "
    "number of samples, from nearly none to nearly all.",
    formula="P(success | m, T) ↑ m",
    label="Figure 4 (Section 5)",
    # 119 of 120 trials succeed at (50, 200), 1 of 120 at (50, 20); with 96 and 4 % it were 4e-5.
    false_alarm=1e-4,
    controls=(
        Control("the same samples everywhere", changes={"samples": (200, 200), "trials": 2}),
    ),
)
def s_fig_4(context: Context, samples: tuple[int, int] = (20, 200), trials: int = 6) -> Evidence:
    """The share of successful trials at the ends of the curves; paper: the printed lengths."""
    lengths = context.pick(quick=(50,), paper=(100, 200, 400, 800))
    trials, settings = context.pick(quick=(trials, QUICK), paper=(50, {}))
    rows, ends = [], []
    for length in lengths:
        shares = []
        for m in context.pick(quick=samples, paper=(50, 80, 110, 140, 170, 200)):
            found = run_trials(context, trials, context_length=length, n_samples=m, **settings)
            shares.append(sum(each.metrics["success"] for each in found) / trials)
            rows.append((length, m, shares[-1]))
        ends.append((length, shares[0], shares[-1]))
    # At T = 800 the paper's largest m is not enough for nearly all.
    return Evidence(
        *(at_most(f"T = {t}: share with few samples", low, 0.5) for t, low, _ in ends),
        *(
            at_least(f"T = {t}: share with many, minus that with few", high - low, 0.3)
            for t, low, high in ends
        ),
        tables=(Table("AND of 3 hidden bits", ("T", "samples m", "found"), tuple(rows)),),
    )


@claim(
    id="S-fig-3",
    title="a hidden parity is learned online, all at once",
    statement="On fresh batches of 2048 samples a one-layer Transformer learns a parity of 3 of "
    "T = 10 bits. Most of the time nothing shows; then accuracy goes from chance to 1.",
    formula="y = b_i ⊕ b_j ⊕ b_k,  T = 10",
    label="Figure 3 (Section 5)",
    # 7 of 8 runs ended within 720 steps, so that none of 4 does with probability 2.4e-4; the last 3
    # to 22 % of them were above 60 % accuracy.
    false_alarm=3e-4,
    controls=(Control("too little time", changes={"runs": 1, "iterations": 20}),),
)
def s_fig_3(context: Context, runs: int = 4, iterations: int = 1000) -> Evidence:
    """Steps until accuracy on 10⁴ fresh samples is above 0.6, and above 0.99.

    Quick: without dropout. Paper: with the paper's settings, 10 runs of up to 10 000 steps.
    """
    settings: dict[str, Any] = context.pick(
        quick={"options": {"dropout": "none"}, "iterations": iterations},
        paper={"iterations": 10_000},
    )
    task = {"function": "parity", "context_length": 10, "online": True, "trace": ["accuracy"]}
    found = run_trials(context, context.pick(quick=runs, paper=10), **task, **settings)
    rows, shares, largest = [], [], 0.0
    for number, each in enumerate(found):
        solved = each.metrics.get("solved_at")
        assert each.trace is not None
        steps, accuracies = each.trace["step"], each.trace["accuracy"]
        shows = next((s for s, a in zip(steps, accuracies, strict=True) if a > 0.6), None)
        largest = largest_of(largest, *accuracies)
        rows.append((number, shows, solved))
        if solved is not None:
            # Step 0 is a step; a run that never showed anything before has no time in between.
            shares.append((solved - (solved if shows is None else shows)) / solved)
    columns = ("run", "above 0.6 at step", "above 0.99 at step")
    return Evidence(
        at_least("runs that learn it", len(shares), 1),
        at_most("share of the time from 0.6 to 0.99, in the median", median(shares or [1.0]), 0.4),
        at_most("largest accuracy", largest, 1.0),
        tables=(Table("parity of 3 of 10 bits", columns, tuple(rows)),),
    )

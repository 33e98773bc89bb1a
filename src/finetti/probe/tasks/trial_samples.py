"""The data of a trial: they follow from its seed and its task, so that learners share them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from finetti.core.errors import FinettiError
from finetti.core.numerics.random_keys import generator
from finetti.probe.tasks.consistent_sets import ConsistentSets, ambiguous_sets
from finetti.probe.tasks.hidden_rule import Bits, HiddenRule, HiddenTask, make_rule
from finetti.probe.tasks.validation import BLOCK

MAX_DRAWS = 1000  # of training sets until one is not ambiguous


def rule_from_params(params: Mapping[str, Any], seed: int = 0) -> HiddenRule:
    """The hidden rule that the parameters of a trial name; ``seed`` draws a random truth table."""
    chances = {name: params[name] for name in ("bit_probability", "label_noise")}
    return make_rule(
        params["function"], params["sparsity"], params["context_length"], **chances, seed=seed
    )


@dataclass
class TrialSamples:
    """A hidden task and the samples of one trial.

    Training and validation are drawn by generators of their own, named by the trial's seed, the
    context length and the number of samples: trials of one seed see the same data whatever learns
    from them, and sample sizes are independent of each other.

    Args:
        task: the hidden rule at its positions.
        bits, labels: the training set, (m, T) and (m,); empty if batches are drawn online.
        name: what the generators are named by.
        consistent: the functions that explain the training set; None if not searched for.
        blocks: of validation samples that were drawn so far.
    """

    task: HiddenTask
    bits: Bits
    labels: Bits
    name: tuple[Any, ...]
    consistent: ConsistentSets | None = None
    blocks: dict[int, tuple[Bits, Bits]] = field(default_factory=dict)

    def validation(self, number: int) -> tuple[Bits, Bits]:
        """A block of clean samples that no learner has seen: always the same ones."""
        if number not in self.blocks:
            rng = generator(*self.name, "validation", number)
            self.blocks[number] = self.task.sample(rng, BLOCK, noisy=False)
        return self.blocks[number]


def draw_samples(params: Mapping[str, Any], seed: int) -> TrialSamples:
    """The samples of the trial with these parameters and this seed."""
    length, n_samples = params["context_length"], params["n_samples"]
    name = ("task", seed, length, n_samples)
    task = rule_from_params(params, seed).draw(generator(*name, "hidden set"))
    if params["online"]:
        return TrialSamples(task, np.zeros((0, length), np.uint8), np.zeros(0, np.uint8), name)
    if params["ambiguous"] == "keep":
        return TrialSamples(task, *task.sample(generator(*name, "training", 0), n_samples), name)
    for draw in range(MAX_DRAWS if params["ambiguous"] == "reject" else 1):
        bits, labels = task.sample(generator(*name, "training", draw), n_samples)
        found = ambiguous_sets(task, bits, labels)
        if params["ambiguous"] == "report" or found.identified:
            return TrialSamples(task, bits, labels, name, found)
        if found.identified is None:
            raise FinettiError(
                f"Whether the {n_samples} samples identify the hidden set is {found.reason}, so "
                "that ambiguous ones cannot be rejected. Use ambiguous = 'report'."
            )
    raise FinettiError(
        f"None of {MAX_DRAWS} training sets of {n_samples} samples identifies the hidden set. "
        "Use more samples, or ambiguous = 'report'."
    )

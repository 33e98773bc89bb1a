"""Runs a network of gates against a rule, and bounds its error on all inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.check import EXACT, LOOSE, Check, Counterexample
from finetti.boolean.compose.composed import Composed
from finetti.boolean.compose.forward import Mixture, run
from finetti.boolean.compose.proof import ReadErrors, network_bound, read_errors
from finetti.boolean.compose.same import same_rule
from finetti.boolean.compose.trials import network_settings
from finetti.boolean.domain import refuse_values
from finetti.boolean.functions.base import BooleanFunction, all_bits
from finetti.boolean.verification import ALL_INPUTS, BUDGET, WORK, value_scales
from finetti.core.keys import generator

N_RANDOM = 64
PER_INPUT = 2000  # what an input costs beside its multiplications, in multiplications
ROWS = 2**16  # inputs that are run together


@dataclass(eq=False)
class _Judge:
    """Keeps the worst error in one precision, and the first input that is wrong."""

    composed: Composed
    mixture: Mixture
    worst: float = 0.0
    found: Counterexample | None = None

    def look(
        self,
        sums: NDArray[Any],
        values: NDArray[np.float64],
        scales: NDArray[np.float64],
        bits_of: Callable[[int], NDArray[np.uint8]],
    ) -> None:
        outputs = run(self.composed.blocks, self.mixture, sums).astype(np.float64)
        errors = np.abs(outputs - values) / scales
        errors = np.where(np.isnan(errors), np.inf, errors)  # of float32 that overflows
        self.worst = max(self.worst, float(errors.max(initial=0.0)))
        wrong = np.flatnonzero(errors > EXACT)
        if self.found is None and len(wrong):
            row = int(wrong[0])
            self.found = Counterexample(bits_of(row), float(outputs[row]), float(values[row]))


@np.errstate(all="ignore")  # float32 may fail, which is reported
def check_network(
    composed: Composed,
    function: BooleanFunction | None = None,
    measured: ReadErrors | None = None,
) -> Check:
    """Run the network against a rule, its own by default, and bound its error on all inputs.

    Up to 20 bits: all 2^T inputs. Beyond: settings of the relevant bits (`network_settings`), each
    with the others all 0, all 1 and 64 times random. What a gate reads is a sum of signs whose
    weights no bit changes and are never negative, so that all 0 and all 1 are the worst for it.
    """
    function = composed.function if function is None else function
    refuse_values(function)
    length = composed.context_length
    double, single = (
        _Judge(composed, composed.mixture),
        _Judge(composed, composed.mixture32),
    )
    cost = composed.work + PER_INPUT
    if length <= ALL_INPUTS and cost << length <= WORK:
        bits = all_bits(length)
        values = function(bits)
        scales = value_scales(function, values)
        for judge, own in zip((double, single), scales, strict=True):
            for start in range(0, len(bits), ROWS):
                here = slice(start, start + ROWS)
                rows = bits[here]
                judge.look(
                    judge.mixture.sums(rows), values[here], own[here], lambda k, r=rows: r[k]
                )
        method, n_inputs, complete = f"all 2^{length} = {2**length} inputs", len(bits), True
    else:
        method, n_inputs = _run_settings(composed, function, (double, single), cost)
        complete = False
    bound, rounding, reason = (
        None,
        0.0,
        "the rule is not known to be the one that the gates were built for",
    )
    if same_rule(composed, function):
        measured = read_errors(composed) if measured is None else measured
        bound, rounding, reason = network_bound(composed, measured)
    worst, tolerance = (double.worst, single.worst), EXACT + min(rounding, LOOSE)
    outcome = double.found, bound, tolerance, reason, rounding
    return Check(method, n_inputs, complete, *worst, *outcome)


def _run_settings(
    composed: Composed, function: BooleanFunction, judges: tuple[_Judge, ...], cost: int
) -> tuple[str, int]:
    length = composed.context_length
    # What the network says that it reads is tried as well, if the rule leaves it out.
    indices = sorted({*function.indices, *composed.function.indices})
    rng = generator("network of gates", length, len(indices))
    limit = max(64, BUDGET // (8 * cost * (N_RANDOM + 2)))
    settings, described = network_settings(composed, indices, limit, rng)
    values = function.evaluate(settings[:, [indices.index(each) for each in function.indices]])
    scales = value_scales(function, values)
    patterns = rng.integers(0, 2, size=(N_RANDOM + 2, length), dtype=np.uint8)
    patterns[0], patterns[1] = 0, 1
    patterns = patterns if length > len(indices) else patterns[:1]  # else there is no outside
    inside = np.array(indices, dtype=np.int64)
    aside = np.delete(np.arange(length), inside)
    for judge, relative in zip(judges, scales, strict=True):
        own = judge.mixture.sums(settings, inside)
        for row, sums in zip(patterns, judge.mixture.sums(patterns[:, aside], aside), strict=True):

            def bits_of(which: int, row: Any = row) -> NDArray[np.uint8]:
                bits = row.copy()
                bits[inside] = settings[which]
                return bits

            judge.look(own + sums, values, relative, bits_of)
    outside = f" × (all-0 and all-1, the worst for the attention, and {N_RANDOM} random)"
    method = described + (outside if len(aside) else "")
    return method, len(settings) * len(patterns)

"""Runs a network against a rule: on all inputs where they can be counted, else on the worst."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.check import EXACT_RTOL, MAX_ROUNDING_RTOL, Check, Counterexample
from finetti.boolean.domain import all_values, value_sizes, values_reason
from finetti.boolean.language.expression import ExpressionRule
from finetti.boolean.language.rule import BooleanFunction, all_bits
from finetti.boolean.language.simplify import simplify
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.network.runner import Runner, Trials
from finetti.boolean.verify.cls_proof import input_bound
from finetti.boolean.verify.gate_proof import make_trials, work_per_input
from finetti.core.errors import InputError, bad_argument
from finetti.core.numerics.extremes import largest_of, smallest_of

MAX_RUN_BITS = 20  # of a context whose inputs are all run
MAX_RUN_WORK = 5 * 10**10  # multiplications that running all inputs may cost
OnProgress = Callable[[float], None]  # is told the share of the inputs that have been run
MIN_WORSE_RATIO = 1.01  # of a new counterexample to the last: the first ones are the simplest


@np.errstate(all="ignore")  # float32 may fail, which is reported
def verify(
    network: Network,
    own: BooleanFunction,
    function: BooleanFunction,
    tolerance: float = EXACT_RTOL,
    on_progress: OnProgress = lambda share: None,
) -> Check:
    """Compare the network with ``function``, up to ``tolerance`` of its largest value.

    Up to 20 bits: all 2^T inputs. Beyond: settings of the relevant bits, with the worst choices of
    the others that there are (`trials`); and a bound on all inputs (`all_inputs`). Its ``own``
    rule, which it was built for, says which bits to try, and what its gates should do.
    """
    if not 0 < tolerance < 0.5:
        requirement = "between 0 and 1/2, beyond which 0 and 1 cannot be told apart"
        raise bad_argument("tolerance", "verify", requirement, tolerance)
    reason = values_reason(function)
    if reason:
        raise InputError(f"The rule cannot be compared with a network: {reason}.")
    function = comparable(network, function)
    smallest, largest = value_sizes(function)
    judges = tuple(
        _Judge(runner, smallest, tolerance, searching)
        for runner, searching in ((network.double, True), (network.single, False))
    )
    length = network.context_length
    complete = length <= MAX_RUN_BITS and work_per_input(network) << length <= MAX_RUN_WORK
    if complete:
        method, n_inputs, tried = f"all 2^{length} = {2**length} inputs", 2**length, None
        _run_all(judges, function, length, on_progress)
    else:
        trials = make_trials(network, own, function)
        method, tried = trials.method, trials.tried
        n_inputs = _run_trials(judges, function, trials, on_progress)
    bound = input_bound(network, own, function, tried)
    binary = isinstance(function, ExpressionRule) or np.isin(all_values(function), (0, 1)).all()
    # What is proven holds however sums are taken; what that does beyond "exact" is said apart.
    order = judges[0].most_rounding if judges[0].most_rounding <= EXACT_RTOL * smallest else 0.0
    return Check(
        method=method,
        n_inputs=n_inputs,
        complete=complete,
        error64=judges[0].worst,
        error32=judges[1].worst,
        counterexample=judges[0].found,
        error_bound=None if bound.error is None else bound.error + order / largest,
        tolerance=tolerance + smallest_of(bound.rounding, MAX_ROUNDING_RTOL) + order / largest,
        reason=bound.reason,
        rounding=largest_of(judges[0].rounding, bound.rounding),
        binary=bool(binary),
    )


def comparable(network: Network, function: BooleanFunction) -> BooleanFunction:
    """A rule in the form that a network is compared with: on the bits that matter; beside gates as
    it is, whose table may be too long."""
    return function if network.gates else simplify(function)


def _value_scales(
    function: BooleanFunction, values: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What errors are relative to, in float64: the largest value, so that no verdict depends on
    rounding; and in float32: the value itself, and where it is 0 the smallest that is not."""
    smallest, largest = value_sizes(function)
    return np.full(np.shape(values), largest), np.where(values == 0, smallest, np.abs(values))


@dataclass(eq=False)
class _Judge:
    """Keeps the worst error, and the worst input that is wrong by more than rounding."""

    runner: Runner
    smallest: float  # value of the rule
    tolerance: float
    searching: bool  # for counterexamples: in float64 only
    worst: float = 0.0
    found_error: float = 0.0
    found: Counterexample | None = None
    rounding: float = 0.0

    @cached_property
    def most_rounding(self) -> float:
        return self.runner.most_rounding()

    def look(
        self,
        sums: NDArray[Any],
        values: NDArray[Any],
        scales: NDArray[Any],
        bits_of: Callable[[int], NDArray[np.uint8]],
    ) -> None:
        """Judge a batch of inputs by their sums; ``bits_of`` gives the input of a row."""
        runner, exact = self.runner, self.tolerance
        errors = np.abs(runner.outputs(sums).astype(np.float64) - values) / scales
        errors = np.where(np.isnan(errors), np.inf, errors)  # of float32 that overflows
        peak = int(errors.argmax())
        self.worst = largest_of(self.worst, float(errors[peak]))
        if not self.searching:
            return
        if self.found is None and self.most_rounding > EXACT_RTOL * self.smallest:
            self.rounding = largest_of(self.rounding, runner.largest_rounding(sums) / self.smallest)
        if errors[peak] <= largest_of(exact, MIN_WORSE_RATIO * self.found_error):
            return
        if errors[peak] <= exact + self.most_rounding / scales[peak]:  # perhaps no more than that
            rows = np.flatnonzero(errors > exact)
            rows = rows[errors[rows] > exact + runner.rounding(sums[rows]) / scales[rows]]
            if not len(rows):
                return
            peak = int(rows[errors[rows].argmax()])
        bits = bits_of(peak)
        output = float(runner.outputs(runner.tables.sums(bits[None]))[0])
        if not abs(output - values[peak]) / scales[peak] <= exact:  # the input itself shows it
            self.found_error = float(errors[peak])
            self.found = Counterexample(bits, output, float(values[peak]))


def _run_all(
    judges: tuple[_Judge, ...], function: BooleanFunction, length: int, on_progress: OnProgress
) -> None:
    bits = all_bits(length)
    values = function(bits)
    scales = _value_scales(function, values)
    for turn, (judge, own) in enumerate(zip(judges, scales, strict=True)):
        for first, sums in judge.runner.tables.enumerate_sums():
            here = slice(first, first + len(sums))
            judge.look(sums, values[here], own[here], lambda row, at=first: bits[at + row])
            on_progress((turn + here.stop / len(bits)) / len(judges))


def _run_trials(
    judges: tuple[_Judge, ...], function: BooleanFunction, trials: Trials, on_progress: OnProgress
) -> int:
    """How many inputs were run, in each precision."""
    settings, tried = trials.settings, list(trials.tried)
    values = function.evaluate(settings[:, [tried.index(each) for each in function.indices]])
    n_run, n_batches = 0, judges[0].runner.n_batches(trials)
    for judge, own in zip(judges, _value_scales(function, values), strict=True):
        for sums, outside in judge.runner.batches(trials):

            def bits_of(row: int, outside: Any = outside) -> NDArray[np.uint8]:
                bits = np.array(outside(row), dtype=np.uint8)
                bits[tried] = settings[row]
                return bits

            judge.look(sums, values, own, bits_of)
            n_run += 1
            on_progress(n_run / (len(judges) * n_batches))
    return n_batches * len(settings)

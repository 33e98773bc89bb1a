"""Runs a network against a rule: on all inputs where they can be counted, else on the worst."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.certificate import (
    EXACT_RTOL,
    MAX_ROUNDING_RTOL,
    Check,
    Counterexample,
)
from finetti.boolean.language.rule import BooleanFunction, all_bits, value_sizes, values_reason
from finetti.boolean.network.cls_network import ClsNetwork
from finetti.boolean.network.gate_network import GateNetwork
from finetti.boolean.network.sum_tables import SumTables
from finetti.boolean.verify.cls_proof import ClsVerifier
from finetti.boolean.verify.family_proof import ChosenInputs
from finetti.boolean.verify.gate_proof import GateVerifier
from finetti.core.errors import InputError, bad_argument
from finetti.core.numerics.extremes import largest_of, smallest_of

MAX_RUN_BITS = 20  # of a context whose inputs are all run
MAX_RUN_WORK = 5 * 10**10  # multiplications that running all inputs may cost
OnProgress = Callable[[float], None]  # is told the share of the inputs that have been run
Verifier = ClsVerifier | GateVerifier
MIN_WORSE_RATIO = 1.01  # of a new counterexample to the last: the first ones are the simplest


def make_verifier(network: ClsNetwork | GateNetwork, text: str = "") -> Verifier:
    """The verifier of the network's family; ``text`` is its rule as it was written."""
    match network:
        case ClsNetwork():
            return ClsVerifier(network, text)
        case GateNetwork():
            return GateVerifier(network)


@np.errstate(all="ignore")  # float32 may fail, which is reported
def verify(
    verifier: Verifier,
    function: BooleanFunction,
    tolerance: float = EXACT_RTOL,
    on_progress: OnProgress = lambda share: None,
) -> Check:
    """Compare a network with ``function``, up to ``tolerance`` of its largest value.

    Up to 20 bits: all 2^T inputs. Beyond: settings of the relevant bits, with the worst choices of
    the others that there are; and a bound on all inputs. The rule that the network was built for
    says which bits to try, and what its gates should do.
    """
    if not 0 < tolerance < 0.5:
        requirement = "between 0 and 1/2, beyond which 0 and 1 cannot be told apart"
        raise bad_argument("tolerance", "verify", requirement, tolerance)
    function, network = verifier.comparable(function), verifier.network
    reason = values_reason(function)
    if reason:
        raise InputError(f"The rule cannot be compared with a network: {reason}.")
    smallest, largest = value_sizes(function)
    judges = tuple(
        _Judge(tables, smallest, tolerance, searching)
        for tables, searching in ((network.float64, True), (network.float32, False))
    )
    length = network.context_length
    complete = length <= MAX_RUN_BITS and verifier.work_per_input << length <= MAX_RUN_WORK
    if complete:
        method, n_inputs, tried = f"all 2^{length} = {2**length} inputs", 2**length, None
        _run_all(judges, function, length, on_progress)
    else:
        inputs = verifier.choose_inputs(function)
        method, tried = inputs.method, inputs.tried
        n_inputs = _run_inputs(verifier, judges, function, inputs, on_progress)
    bound = verifier.bound_all_inputs(function, tried)
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
    )


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

    tables: SumTables
    smallest: float  # value of the rule
    tolerance: float
    searching: bool  # for counterexamples: in float64 only
    worst: float = 0.0
    found_error: float = 0.0
    found: Counterexample | None = None
    rounding: float = 0.0

    @cached_property
    def most_rounding(self) -> float:
        return self.tables.most_rounding()

    def look(
        self,
        sums: NDArray[Any],
        values: NDArray[Any],
        scales: NDArray[Any],
        bits_of: Callable[[int], NDArray[np.uint8]],
    ) -> None:
        """Judge a batch of inputs by their sums; ``bits_of`` gives the input of a row."""
        tables, exact = self.tables, self.tolerance
        errors = np.abs(tables.outputs(sums).astype(np.float64) - values) / scales
        errors = np.where(np.isnan(errors), np.inf, errors)  # of float32 that overflows
        peak = int(errors.argmax())
        self.worst = largest_of(self.worst, float(errors[peak]))
        if not self.searching:
            return
        if self.found is None and self.most_rounding > EXACT_RTOL * self.smallest:
            found = tables.largest_rounding(sums) / self.smallest
            self.rounding = largest_of(self.rounding, found)
        if errors[peak] <= largest_of(exact, MIN_WORSE_RATIO * self.found_error):
            return
        if errors[peak] <= exact + self.most_rounding / scales[peak]:  # perhaps no more than that
            rows = np.flatnonzero(errors > exact)
            rounding = tables.rounding(sums[rows])
            rows = rows[errors[rows] > exact + rounding / scales[rows]]
            if not len(rows):
                return
            peak = int(rows[errors[rows].argmax()])
        bits = bits_of(peak)
        output = float(tables.outputs(tables.sums(bits[None]))[0])
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
        for first, sums in judge.tables.enumerate_sums():
            here = slice(first, first + len(sums))
            judge.look(sums, values[here], own[here], lambda row, at=first: bits[at + row])
            on_progress((turn + here.stop / len(bits)) / len(judges))


def _run_inputs(
    verifier: Verifier,
    judges: tuple[_Judge, ...],
    function: BooleanFunction,
    inputs: ChosenInputs,
    on_progress: OnProgress,
) -> int:
    """How many inputs were run, in each precision."""
    settings, tried = inputs.settings, list(inputs.tried)
    values = function.evaluate(settings[:, [tried.index(each) for each in function.indices]])
    n_run, n_batches = 0, verifier.n_batches(verifier.network.float64, inputs)
    for judge, own in zip(judges, _value_scales(function, values), strict=True):
        for sums, outside in verifier.batches(judge.tables, inputs):

            def bits_of(row: int, outside: Any = outside) -> NDArray[np.uint8]:
                bits = np.array(outside(row), dtype=np.uint8)
                bits[tried] = settings[row]
                return bits

            judge.look(sums, values, own, bits_of)
            n_run += 1
            on_progress(n_run / (len(judges) * n_batches))
    return n_batches * len(settings)

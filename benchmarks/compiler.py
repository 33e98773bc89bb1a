"""What a compiled rule costs: norms, parameters and seconds for the AND of three bits.

    python benchmarks/compiler.py                # T = 8 … 10⁵
    python benchmarks/compiler.py --lengths 1000 1000000
    python benchmarks/compiler.py --clock cpu --rounds 3     # where others use the machine, too

Beside it the figures of Tracr (Lindner et al. 2023), the compiler from RASP programs that people
know. It is not installable from the package index, so its figures are quoted: the same rule,
measured in November 2026, not re-run here.
"""

import argparse
import resource
from functools import partial

import numpy as np
from harness import CLOCKS, least_seconds

LENGTHS = (8, 16, 32, 10**2, 10**3, 10**4, 10**5)
TRACR = {8: 492, 16: 695, 32: 981}  # ‖W_Q‖_F; two layers, batches of one input
ROWS = 1000
GATES = ((10, 20, 10**4), (300, 10, 2 * 10**4), (20, 50, 10**5))


def timed(options, call):
    """The least time of a call, and what it gives."""
    found = []
    seconds = least_seconds(
        lambda: found.append(call()), rounds=options.rounds, clock=options.clock
    )
    return seconds, found[-1]


def measure(length, basis, time_of):
    from finetti.boolean import And, compile_rule

    indices = (1, length // 2, length - 1)
    make = lambda: certified(compile_rule(And(indices), length, basis=basis, quiet=True))  # noqa: E731
    compiled_in, compiled = time_of(make)
    certificate = compiled.certificate
    assert certificate.holds
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, size=(ROWS, length), dtype=np.uint8)
    predicted_in, outputs = time_of(lambda: compiled.predict(bits))
    assert np.abs(outputs - compiled.function(bits)).max() < 1e-9
    norm = certificate.norms[0].value
    return norm, certificate, compiled_in, ROWS / predicted_in


def certified(network):
    """With its certificate, which is made when it is asked for."""
    return network.certificate and network


def measure_gates(n_gates, n_inputs, length, basis, time_of):
    """An AND of ORs over disjoint bits, one block for each level."""
    from finetti.boolean import compile_rule

    stride = length // (n_gates * n_inputs)
    names = [f"x{stride * k}" for k in range(n_gates * n_inputs)]
    groups = [names[g : g + n_inputs] for g in range(0, len(names), n_inputs)]
    rule = " & ".join(f"({' | '.join(group)})" for group in groups)
    seconds, network = time_of(
        lambda: certified(compile_rule(rule, length, basis=basis, gates=True, quiet=True))
    )
    assert network.certificate.holds
    rng = np.random.default_rng(0)
    bits = (rng.random((ROWS, length), dtype=np.float32) < 1 / n_inputs).astype(np.uint8)
    predicted_in, outputs = time_of(lambda: network.predict(bits))
    assert np.abs(outputs - network.function(bits)).max() < 1e-9
    return network.certificate, seconds, ROWS / predicted_in


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--bases", nargs="+", default=("orthonormal", "random"))
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--rounds", type=int, default=1, help="the least time of these counts")
    arguments = parser.parse_args()
    time_of = partial(timed, arguments)
    from finetti.boolean import compile_rule

    compile_rule("x0", 4)  # imports
    print("AND of 3 bits: one layer, one head, verified; times include the verification")
    print(
        f"{'T':>8} {'basis':>12} {'‖W_Q‖_F':>8} {'Tracr':>6} {'width':>7} {'parameters':>12} "
        f"{'compile':>9} {'inputs/s':>10}  verified on"
    )
    for basis in arguments.bases:
        for length in arguments.lengths:
            norm, certificate, seconds, rate = measure(length, basis, time_of)
            print(
                f"{length:>8} {basis:>12} {norm:>8.2f} {TRACR.get(length, '–'):>6} "
                f"{certificate.width:>7} {certificate.n_parameters:>12} {seconds:>7.2f} s "
                f"{rate:>10.0f}  {'all inputs' if certificate.check.complete else 'worst cases'}"
            )
    print("AND of ORs: two blocks, one token per gate, proven; times include the proof")
    print(f"{'T':>8} {'basis':>12} {'ORs × bits':>11} {'width':>7} {'compile':>9} {'inputs/s':>10}")
    for basis in arguments.bases:
        for n_gates, n_inputs, length in GATES:
            certificate, seconds, rate = measure_gates(n_gates, n_inputs, length, basis, time_of)
            print(
                f"{length:>8} {basis:>12} {f'{n_gates} × {n_inputs}':>11} {certificate.width:>7} "
                f"{seconds:>7.2f} s {rate:>10.0f}"
            )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")
    print(
        "Tracr (not re-run, November 2026): ‖W_Q‖_F = 492, 695, 981 at T = 8, 16, 32; two layers; "
        "parameters grow like T²; batch size 1; silent mis-compilations in its tracker."
    )


if __name__ == "__main__":
    main()

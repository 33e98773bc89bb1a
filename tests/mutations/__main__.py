"""Measure how strong the tests are: make each mutation in a copy of the tree, and run the tests.

``make mutations`` runs a sample, ``make mutations SAMPLE=0`` all. The nearest tests are run until
one fails. A mutant is killed when it does, and when it also passes without the mutation; a test
that takes too long has failed. Where all pass, they are run once more with an error in place of the
mutated line: if they pass again, the line was not reached. Results are kept in ``.mutations``, so
that a run goes on where another one stopped, until the file of the mutant or its tests change.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from .forked import Outcome, copy_tree, import_libraries, run_tests
from .mutant import PACKAGE, ROOT, Mutant, load_mutants
from .nearest import nearest_tests

FOLDER = ROOT / ".mutations"
RESULTS = FOLDER / "results.jsonl"


def main() -> int:
    """Run the mutants that are asked for and print the survivors."""
    parser = argparse.ArgumentParser(prog="make mutations", description=__doc__)
    parser.add_argument("--sample", type=int, default=40, help="how many at random; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--only", default="", help="those whose file or function has this text")
    parser.add_argument("--files", type=int, default=10, help="of tests per mutant, at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the processor per mutant")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a test; more fails")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="the survivors, with these limits")
    options = parser.parse_args()
    everything = load_mutants()
    mutants = [each for each in everything if options.only in f"{each.file}:{each.function}"]
    random.Random(options.seed).shuffle(mutants)
    mutants = mutants[: options.sample or None]
    waiting = [each for each in mutants if not each.survives]
    known = load_results()
    missing = [each for each in waiting if not is_known(each, known, options.again)]
    FOLDER.mkdir(exist_ok=True)
    import_libraries()
    fork_workers(missing, options)
    rows = [row for each in waiting if (row := load_results().get(key(each)))]
    explained = [{**vars(each), "outcome": "explained"} for each in mutants if each.survives]
    return report(rows + explained, len(mutants))


def report(rows: list[dict], number: int) -> int:
    """Print how many mutants came to which end, and those that nothing explains."""
    print(f"\n{len(rows)} of {number} mutants were measured:")
    for outcome, count in Counter(row["outcome"] for row in rows).most_common():
        operators = Counter(row["operator"] for row in rows if row["outcome"] == outcome)
        print(f"{count:4} {outcome} ({', '.join(f'{n} {o}' for o, n in operators.most_common())})")
    unexplained = [row for row in rows if row["outcome"] not in ("killed", "explained")]
    for row in unexplained:
        print(f"- {describe(row)}\n    {row['old']}\n    {row['new']}")
    print(f"{len(unexplained)} survivors are unexplained." if unexplained else "All is explained.")
    return 1 if unexplained or len(rows) < number else 0


def describe(row: dict) -> str:
    """One line on what became of a mutant."""
    name = f"{row['file']}, {row['function']} ({row['operator']})"
    by = f" by {row['killer']}" if row["killer"] else ""
    cut = ", with tests left" if row["stopped"] else ""
    return f"{row['outcome']}{by}: {name}, {row['ran']} tests{cut}, {row['seconds']:.0f} s"


def fork_workers(mutants: list[Mutant], options: argparse.Namespace) -> None:
    """Share the mutants between processes, and wait for them."""
    children = []
    for number in range(min(options.workers, len(mutants))):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(number, mutants[number :: options.workers], options)
                status = 0
            finally:
                sys.stdout.flush()
                os._exit(status)
        children.append(child)
    for child in children:
        if os.waitpid(child, 0)[1]:
            raise RuntimeError("A worker has failed; see its message above.")


def work(number: int, mutants: list[Mutant], options: argparse.Namespace) -> None:
    """Run mutants one after the other in a tree of this process, and write down what happens."""
    tree = copy_tree(FOLDER / f"tree-{number}")
    passing = {r["killer"] for r in load_results().values() if r["outcome"] == "killed"}
    for mutant in mutants:
        tests = nearest_tests(mutant, options.files)
        row = run_mutant(mutant, tree, tests, passing, options.seconds, options.limit)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(describe(row), flush=True)


def run_mutant(
    mutant: Mutant, tree: Path, tests: list[str], passing: set[str], seconds: float, limit: float
) -> dict:
    """Make the mutation in the tree, run the tests, and undo it.

    ``passing`` are tests that are known to pass on the right code.
    """
    path, begin = tree / PACKAGE / mutant.file, time.monotonic()
    text = path.read_text("utf-8")

    def run(changed: str, chosen: list[str], *flags: str) -> Outcome:
        _write(path, changed)
        try:
            return run_tests(tree, chosen, mutant.file, seconds, limit, *flags)
        finally:
            _write(path, text)

    found = run(mutant.mutate(text), tests, "-x")
    killer, outcome = "", "survived"
    if found.fault:
        outcome = f"undecided: {found.fault}"
    elif found.failed:
        killer, outcome = found.failed[0], "killed"
        flags = () if "::" in killer else ("--collect-only",)
        right = None if killer in passing else run(text, [killer], *flags)
        if right and (right.failed or right.fault):
            outcome = "undecided, since this test fails without the mutation"
        else:
            passing.add(killer)
    elif not run(mutant.interrupt(text), tests, "-x").failed:
        outcome = "not reached"
    return {
        **vars(mutant), "outcome": outcome, "killer": killer, "ran": found.ran, "tests": tests,
        "stopped": found.stopped, "seconds": time.monotonic() - begin,
        "digest": digest(mutant, killer, tests),
    }  # fmt: skip


def _write(path: Path, text: str) -> None:
    """Write a source file, and forget what Python has compiled: its time may be the same."""
    path.write_text(text, "utf-8")
    for old in path.parent.glob(f"__pycache__/{path.stem}.*"):
        old.unlink()


def digest(mutant: Mutant, killer: str, tests: list[str]) -> str:
    """A hash of the file of the mutant and of the test that kills it, or of all that did not."""
    files = [killer.partition("::")[0]] if killer else tests
    paths = [PACKAGE / mutant.file, *map(Path, files)]
    parts = [path.read_bytes() for each in paths if (path := ROOT / each).is_file()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def key(mutant: Mutant) -> tuple[str, ...]:
    """What names a mutant."""
    return mutant.file, mutant.function, mutant.old, mutant.new


def load_results(path: Path = RESULTS) -> dict[tuple[str, ...], dict]:
    """Read what earlier runs have measured; the last measurement of a mutant counts."""
    lines: Iterable[str] = path.read_text("utf-8").splitlines() if path.exists() else ()
    rows = map(json.loads, lines)
    return {(row["file"], row["function"], row["old"], row["new"]): row for row in rows}


def is_known(mutant: Mutant, known: dict[tuple[str, ...], dict], again: bool) -> bool:
    """Whether a result still holds: the same mutant, source and tests."""
    row = known.get(key(mutant))
    if row is None or row["digest"] != digest(mutant, row["killer"], row["tests"]):
        return False
    return row["outcome"] == "killed" or not again


if __name__ == "__main__":
    sys.exit(main())

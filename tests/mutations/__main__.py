"""Measure how strong the tests are: make each mutation in a copy of the tree, and run the tests.

``make mutations`` runs a sample, ``make mutations SAMPLE=0`` all. A mutant is killed when a test
fails, or when the tests do not end within a limit. The tests that reach its function are
run, those of its own subpackage first, quick ones first, until one fails; then the others of their
files, which may use what an earlier test had compiled. Which tests reach what is measured once, in
twice the time of `make test`; ``--without-map`` runs the files that name its module instead.
"""

import argparse
import ast
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from . import reach
from .mutant import PACKAGE, ROOT, Mutant, load_mutants
from .selection import CHOSEN

RESULTS = reach.FOLDER / "results.jsonl"
TREE = (
    "src",
    "tests",
    "docs",
    "examples",
    "benchmarks",
    "conftest.py",
    "pyproject.toml",
    "README.md",
)
SHARED = (".programs", ".checkpoints")
MOST_FILES = 6  # of tests, where it is not known which ones reach a function


def main() -> int:
    """Run the mutants that are asked for and print the survivors."""
    parser = argparse.ArgumentParser(prog="make mutations", description=__doc__)
    parser.add_argument("--sample", type=int, default=40, help="how many at random; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", default="", help="those whose file contains this text")
    parser.add_argument("--seconds", type=float, default=90.0, help="of tests per mutant, at most")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds; more is a kill")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--map", action="store_true", help="measure again which tests reach what")
    parser.add_argument(
        "--without-map", action="store_true", help="measure nothing: tests that name the module"
    )
    options = parser.parse_args()
    if options.map or not reach.FOLDER.exists():
        reach.prepare()
    if not options.without_map:
        measure_reach(options.workers)
    known = reach.load_map()
    mutants = [each for each in load_mutants() if options.only in each.file and not each.survives]
    if 0 < options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(options.workers):
        trees.put(copy_tree(reach.FOLDER / f"tree-{number}"))
    rows = []
    with ThreadPoolExecutor(options.workers) as pool, RESULTS.open("a", encoding="utf-8") as file:
        jobs = (
            pool.submit(
                run_mutant, each, choose_tests(each, known, options.seconds), trees, options.limit
            )
            for each in mutants
        )
        for number, job in enumerate(list(jobs), 1):
            row = job.result()
            rows.append(row)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            print(f"[{number}/{len(mutants)}] {describe(row)}", flush=True)
    discard_false_kills(rows, trees.get())
    survivors = [row for row in rows if row["outcome"] != "killed"]
    print(f"\n{len(rows) - len(survivors)} of {len(rows)} mutants were killed. Survivors:")
    for row in survivors:
        print(f"- {describe(row)}\n    {row['old']}\n    {row['new']}")
    return 1 if survivors else 0


def discard_false_kills(rows: list[dict], tree: Path) -> None:
    """Run the tests that killed a mutant on the right code: one that fails there kills nothing."""
    killers = sorted({row["killer"] for row in rows if "::" in row["killer"]})
    while killers:
        outcome, failing = run_tests(tree, killers, 3600.0)
        if outcome != "killed":
            return
        for row in rows:
            if row["killer"] == failing:
                row["outcome"] = f"undecided, since this test fails without it: {failing}"
        killers.remove(failing)


def describe(row: dict) -> str:
    """One line on what became of a mutant."""
    tests = f"{row['ran']} tests, {row['reaching']} reach it"
    name = f"{row['file']}, {row['function']} ({row['operator']})"
    by = f" by {row['killer']}" if row["killer"] else ""
    return f"{row['outcome']}{by}: {name}, {tests}, {row['seconds']:.0f} s"


def measure_reach(workers: int) -> None:
    """Run all tests once and note which functions each reaches; what was measured before stays."""
    tests = ROOT / "tests"
    parts = sorted(f"tests/{path.name}" for path in tests.iterdir() if _has_tests(path))
    measured = reach.load_map()["measured"]
    missing = [part for part in parts if part not in measured]
    if missing:
        print("Measuring which tests reach which function takes as long as `make test` twice.")
    for part in missing:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutations.reach", part]
        subprocess.run([*command, "-n", str(workers), "--dist", "worksteal"], cwd=ROOT, check=False)
        measured.append(part)
        reach.summarize(measured)


def _has_tests(path: Path) -> bool:
    """Whether this is a file of tests or a folder with some, other than those of this program."""
    if path.is_dir():
        return path.name != "mutations" and any(path.rglob("test_*.py"))
    return path.name.startswith("test_")


def choose_tests(mutant: Mutant, known: dict, seconds: float) -> tuple[list[str], int]:
    """The tests that reach the function, nearest and quickest first, and how many there are.

    The other tests of their files follow: a compiled program is traced by the first test only that
    needs it. A slow test alone may take longer than ``seconds``: the first one is always taken.
    """
    if f"tests/{mutant.subpackage}" not in known["measured"]:
        files = nearest_files(mutant)
        return files, len(files)
    times = known["times"]
    reaching = set(known["reach"].get(mutant.file, {}).get(mutant.function, ()))
    reaching = {test for test in reaching if times.get(test, math.inf) < math.inf}
    files = {test.partition("::")[0] for test in reaching}
    beside = {test for test in times if test.partition("::")[0] in files and times[test] < math.inf}
    own = f"tests/{mutant.subpackage}/"
    ordered = sorted(
        reaching | beside,
        key=lambda test: (test not in reaching, not test.startswith(own), times[test]),
    )
    chosen: list[str] = []
    total = 0.0
    for test in ordered:
        if total + times[test] <= seconds or not chosen:
            chosen.append(test)
            total += times[test]
    return chosen, len(reaching)


def nearest_files(mutant: Mutant) -> list[str]:
    """Files of tests: those that name the module of the mutant or what it defines come first.

    They are taken from its own subpackage, then from those above it.
    """
    path = ROOT / PACKAGE / mutant.file
    defined = [getattr(node, "name", "_") for node in ast.parse(path.read_text("utf-8")).body]
    words = {path.stem, *(name for name in defined if not name.startswith("_"))}
    naming = re.compile(rf"\b({'|'.join(map(re.escape, sorted(words)))})\b")
    rooms, found = rooms_above(mutant.subpackage), []
    for file in (ROOT / "tests").rglob("test_*.py"):
        name = file.relative_to(ROOT).as_posix()
        room = name.split("/")[1]
        count = len(set(naming.findall(file.read_text("utf-8"))))
        if room == mutant.subpackage:
            found.append((0 if count else 2, -count, name))
        elif count and room in rooms:
            found.append((1, -count, name))
    return [name for _, _, name in sorted(found)][:MOST_FILES]


def rooms_above(subpackage: str) -> set[str]:
    """The subpackages that may use this one, and the folder of common suites."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = [layer.split(" | ") for layer in contracts["contracts"][0]["layers"]]
    own = next((at for at, layer in enumerate(layers) if subpackage in layer), 0)
    return {"conformance", *(room for layer in layers[:own] for room in layer)}


def copy_tree(folder: Path) -> Path:
    """A copy of what the tests need, whose compiled programs are shared with this tree."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            shutil.copy2(source, folder / name)
    for name in SHARED:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


def run_mutant(
    mutant: Mutant, chosen: tuple[list[str], int], trees: SimpleQueue[Path], limit: float
) -> dict:
    """Make the mutation in a free tree, run the tests, and undo it."""
    tests, reaching = chosen
    row = {
        "file": mutant.file, "function": mutant.function, "operator": mutant.operator,
        "old": mutant.old, "new": mutant.new, "ran": len(tests), "reaching": reaching,
        "killer": "", "seconds": 0.0,
    }  # fmt: skip
    if not tests:
        return {**row, "outcome": "not reached"}
    tree, begin = trees.get(), time.monotonic()
    original = mutant.apply(tree)
    try:
        outcome, killer = run_tests(tree, tests, limit)
    finally:
        (tree / PACKAGE / mutant.file).write_text(original, "utf-8")
        trees.put(tree)
    return {**row, "outcome": outcome, "killer": killer, "seconds": time.monotonic() - begin}


def run_tests(tree: Path, tests: list[str], limit: float) -> tuple[str, str]:
    """Whether a test fails, and which one does first.

    Files are run in the order of their first test, the tests of a file in the order of the file: a
    test may pass only after another one, and must not fail for another reason than the mutation.
    """
    (tree / CHOSEN).write_text("\n".join(tests), "utf-8")
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tree / 'src'}:{tree / 'tests'}",
        "PYTHONDONTWRITEBYTECODE": "1",  # two versions of a file may be written within a second
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no"]
    try:
        ran = subprocess.run(
            [*command, "-p", "tests.mutations.selection", *files],
            cwd=tree, env=environment, capture_output=True, text=True, timeout=limit, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "killed", "time"
    if ran.returncode == 0:
        return "survived", ""
    failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if ran.returncode not in (1, 2) or not failed:
        # The tests did not run at all: that is a fault of this program, not a kill.
        return f"pytest ended with {ran.returncode}", (ran.stdout + ran.stderr)[-300:]
    return "killed", failed[0].split(" ")[1]


if __name__ == "__main__":
    sys.exit(main())

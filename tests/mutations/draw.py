"""Draw mutants at random: by lines per subpackage, then by operator, then by place.

``python -m tests.mutations.draw`` replaces the stored mutants that no longer apply, because their
code has moved or changed, by new ones of the same subpackage and operator.
"""

import ast
import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from .mutant import PACKAGE, ROOT, Mutant, dump_mutants, functions, load_mutants
from .operators import changes

SEED = 2022
NUMBER = 200
COMMENT = (
    f"{NUMBER} mutants drawn at random with seed {SEED} by draw.py, then those that are known to "
    "have survived. Edited by draw.py and, for `survives`, by hand."
)


def candidates(root: Path = ROOT) -> dict[tuple[str, str], list[Mutant]]:
    """Return all mutants that can be made, by subpackage and operator."""
    found: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for path in sorted((root / PACKAGE).rglob("*.py")):
        file = path.relative_to(root / PACKAGE).as_posix()
        for mutant in file_mutants(path.read_text("utf-8"), file):
            found[mutant.subpackage, mutant.operator].append(mutant)
    return found


def file_mutants(text: str, file: str) -> list[Mutant]:
    """Return the mutants of one file, those of one line that stands once in its function."""
    tree, lines = ast.parse(text), text.splitlines()
    nodes = {
        (node.body[0].lineno, node.end_lineno): node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    found = []
    for name, (first, last) in functions(tree).items():
        own = Counter(line.strip() for line in lines[first - 1 : last])
        for operator, node, new in changes(nodes[first, last]):
            if node.lineno != node.end_lineno:
                continue
            line = lines[node.lineno - 1]
            raw = line.encode()
            changed = raw[: node.col_offset] + new.encode() + raw[node.end_col_offset :]
            mutant = Mutant(file, name, operator, line.strip(), changed.decode().strip())
            if own[mutant.old] == 1 and mutant.old != mutant.new and "\n" not in new:
                found.append(mutant)
    return found


def draw(number: int, seed: int, taken: list[Mutant], root: Path = ROOT) -> list[Mutant]:
    """Draw mutants that are not among those taken."""
    pool, rng = candidates(root), random.Random(seed)
    lines = Counter()
    for path in (root / PACKAGE).rglob("*.py"):
        lines[path.relative_to(root / PACKAGE).parts[0]] += len(path.read_text("utf-8").split("\n"))
    names = sorted({subpackage for subpackage, _ in pool})
    found: list[Mutant] = []
    while len(found) < number:
        subpackage = rng.choices(names, [lines[name] for name in names])[0]
        operator = rng.choice(sorted(op for name, op in pool if name == subpackage))
        mutant = rng.choice(pool[subpackage, operator])
        if mutant not in found and mutant not in taken:
            found.append(mutant)
    return found


def applies(mutant: Mutant, root: Path = ROOT) -> bool:
    """Whether the function and the line are still there."""
    path = root / PACKAGE / mutant.file
    try:
        return path.exists() and bool(mutant.mutate(path.read_text("utf-8")))
    except LookupError:
        return False


def redraw(mutants: list[Mutant], root: Path = ROOT) -> list[Mutant]:
    """Replace each mutant that no longer applies; one that only moved to another file follows."""
    pool = candidates(root)
    everything = [mutant for group in pool.values() for mutant in group]
    result: list[Mutant] = []
    for number, mutant in enumerate(mutants):
        if applies(mutant, root):
            result.append(mutant)
            continue
        same = [each for each in everything if (each.old, each.new) == (mutant.old, mutant.new)]
        if len(same) > 1:  # a line that stands often: in the same function of another file
            same = [each for each in same if each.function == mutant.function]
        if len(same) == 1:
            result.append(replace(same[0], survives=mutant.survives))
            continue
        group = pool.get((mutant.subpackage, mutant.operator)) or everything
        result.append(random.Random(f"{SEED} {number} {mutant}").choice(group))
    return result


def main() -> None:
    """Write the file of mutants: draw it if there is none, otherwise replace what is gone."""
    try:
        mutants = load_mutants()
    except FileNotFoundError:
        mutants = draw(NUMBER, SEED, [])
        dump_mutants(mutants, COMMENT)
        print(f"Drew {len(mutants)} mutants.")
        return
    renewed = redraw(mutants)
    changed = sum(old != new for old, new in zip(mutants, renewed, strict=True))
    dump_mutants(renewed, COMMENT)
    print(f"Replaced {changed} of {len(mutants)} mutants.")


if __name__ == "__main__":
    main()

"""One-line mutations of the package: what they are, and how they are applied to a tree."""

import ast
import json
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src") / "finetti"
STORED = Path(__file__).parent / "mutants.jsonl"


@dataclass(frozen=True)
class Mutant:
    """One line of one function that is replaced by a wrong one.

    Args:
        file: below ``src/finetti``.
        function: its qualified name, as ``SearchDesign._batch``.
        operator: the kind of fault, as in `operators`.
        old, new: the line without its indentation, before and after.
        survives: why no test can tell the difference (equivalent, only speed); empty otherwise.
    """

    file: str
    function: str
    operator: str
    old: str
    new: str
    survives: str = ""

    @property
    def subpackage(self) -> str:
        """The first folder of the file, or the file itself."""
        return self.file.split("/")[0]

    def mutate(self, text: str) -> str:
        """Return the text of the file with the line replaced.

        Raises LookupError where the function or the line is gone, or the line is there twice.
        """
        lines, at = self._find(text)
        lines[at] = lines[at].replace(self.old, self.new)
        return "".join(lines)

    def interrupt(self, text: str) -> str:
        """Return the text of the file with an error before the statement of the line."""
        lines, at = self._find(text)
        first = max(
            node.lineno - 1
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.stmt)
            and node.lineno <= at + 1 <= (node.end_lineno or node.lineno)
            and not lines[node.lineno - 1].lstrip().startswith("elif ")
        )
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        lines.insert(first, f'{indent}raise RuntimeError("reached")\n')
        return "".join(lines)

    def _find(self, text: str) -> tuple[list[str], int]:
        lines = text.splitlines(keepends=True)
        first, last = functions(ast.parse(text)).get(self.function, (0, 0))
        at = [i for i in range(max(first - 1, 0), last) if lines[i].strip() == self.old]
        if len(at) != 1:
            found = f"{len(at)} times" if at else "not there"
            raise LookupError(f"{self.file}, {self.function}: {found}: {self.old}")
        return lines, at[0]


def functions(tree: ast.Module) -> dict[str, tuple[int, int]]:
    """Return the first and last line of every function by its qualified name."""
    found: dict[str, tuple[int, int]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    found[name] = child.body[0].lineno, child.end_lineno or child.lineno
                visit(child, f"{name}.")
            else:
                visit(child, prefix)

    visit(tree, "")
    return found


def load_mutants(path: Path = STORED) -> list[Mutant]:
    """Read the stored mutants, one JSON object per line; lines that start with # are comments."""
    lines = path.read_text("utf-8").splitlines()
    return [Mutant(**json.loads(line)) for line in lines if line and not line.startswith("#")]


def dump_mutants(mutants: list[Mutant], comment: str, path: Path = STORED) -> None:
    """Write mutants, one JSON object per line, below a comment."""
    rows = [
        json.dumps({k: v for k, v in asdict(each).items() if v}, ensure_ascii=False)
        for each in mutants
    ]
    path.write_text("\n".join([f"# {comment}", *rows]) + "\n", "utf-8")

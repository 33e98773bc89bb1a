"""The example notebooks run as a reader would run them, only shorter; their outputs are kept."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "examples"
SHORTER = {
    "error_bars": {"STEPS = 150": "STEPS = 2"},
    "error_bars_in_pytorch": {"STEPS = 400": "STEPS = 2"},
    "how_many_samples": {"trials=8": "trials=2"},
    "is_it_bayesian": {'"softmax", "delta-rule", "mesa", "cme", "cme-per-token", ': '"softmax", '},
}
# Jupyter's kernel warns of its own sockets and loops.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def shown(cell):
    """The kinds of its outputs; printed lines may come together or one by one."""
    return {frozenset(output.get("data", {"text": ""})) for output in cell.outputs}


def test_all_notebooks_are_here():
    assert sorted(SHORTER) == sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("name", SHORTER)
def test_a_notebook_runs_and_shows_what_is_kept(name, tmp_path):
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kept = [shown(cell) for cell in cells]
    for long, short in SHORTER[name].items():
        (found,) = (cell for cell in cells if long in cell.source)
        found.source = found.source.replace(long, short)
    client = NotebookClient(notebook, timeout=None, resources={"metadata": {"path": tmp_path}})
    client.execute()
    assert [shown(cell) for cell in cells] == kept
    for cell in cells:  # objects show their cards, and nothing complains
        for output in cell.outputs:
            assert output.get("name") != "stderr", output.text
            text = output.get("data", {}).get("text/plain", "")
            assert len(text) < 8000, text[:200]

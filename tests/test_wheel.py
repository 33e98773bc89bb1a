"""The wheel builds, holds what it must, and works without the source tree."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel, built without a network and unpacked where nothing else of the project is."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_no_requirement_is_pinned_but_in_the_constraints():
    # A pin would replace what a user has: `pip install finetti[torch]` must keep their torch.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    assert not [each for given in lists for each in given if "==" in each]
    assert "\ntorch==" in (ROOT / "constraints.txt").read_text(encoding="utf-8")


def run(installed, *arguments):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import finetti; "
        "assert finetti.__file__.startswith(sys.argv[1]), finetti.__file__; "
        "from finetti.cli.main import main; sys.argv = ['finetti', *sys.argv[2:]]; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(installed), *arguments],
        capture_output=True,
        text=True,
        cwd=installed,
    )


def test_it_carries_types_stubs_and_the_page(installed):
    package = installed / "finetti"
    assert (package / "py.typed").exists()
    assert (package / "attention" / "__init__.pyi").exists()
    assert list((package / "report").rglob("*.html*"))
    assert list((package / "estimators").glob("*.study.toml"))  # the studies that run by name


def test_the_command_works_from_the_wheel(installed):
    assert "0.1.0" in run(installed, "--version").stdout
    done = run(installed, "reproduce", "--only", "E-lemma-B.2")
    assert done.returncode == 0, done.stderr

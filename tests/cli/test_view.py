"""``finetti view``."""

import webbrowser

import pytest
from typer.testing import CliRunner

from finetti.cli.main import app


@pytest.fixture
def opened(monkeypatch):
    """The addresses that a browser was asked for; none is started."""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    return addresses


def view(*arguments):
    return CliRunner().invoke(app, ["view", *map(str, arguments)])


@pytest.mark.parametrize("name", ["report", "probe", "risk", "coherence", "audit"])
def test_any_page_is_found_and_opened(opened, tmp_path, name):
    page = tmp_path / f"{name}.html"
    page.write_text("")
    (tmp_path / "results.json").write_text("{}")
    for place in (tmp_path, page):
        done = view(place)
        assert done.exit_code == 0
        assert str(page) in done.stdout
    assert opened == [page.as_uri()] * 2


def test_the_path_alone(opened, tmp_path):
    page = tmp_path / "report.html"
    page.write_text("")
    assert view(tmp_path, "--print-path").stdout == f"{page}\n"
    assert opened == []


def test_without_a_screen_it_says_where_the_page_is(opened, tmp_path, monkeypatch):
    (tmp_path / "report.html").write_text("")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    done = view(tmp_path)
    assert done.exit_code == 0
    assert f"Page: {tmp_path / 'report.html'}" in done.stdout
    assert opened == []


def test_no_page_names_those_nearby(opened, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert "write one to the directory given by --out" in view(tmp_path / "one").stderr
    (tmp_path / "two" / "probe.html").write_text("")
    for place in (tmp_path / "one", tmp_path / "three", tmp_path):
        done = view(place)
        assert done.exit_code == 2
        assert str(tmp_path / "two" / "probe.html") in done.stderr
    (tmp_path / "two" / "gone").symlink_to(tmp_path / "nowhere")
    assert "Pages nearby" in view(tmp_path / "two" / "gone").stderr
    (tmp_path / "alone.html").mkdir()
    assert "Pages nearby" not in view(tmp_path / "alone.html" / "none").stderr
    assert f"{tmp_path / 'alone.html'}." not in view(tmp_path / "none").stderr
    (tmp_path / "two" / "notes.txt").write_text("")
    assert "is not an HTML page" in view(tmp_path / "two" / "notes.txt").stderr
    (tmp_path / "two" / "risk.html").write_text("")
    assert "several pages" in view(tmp_path / "two").stderr
    assert opened == []


def test_some_of_many_pages_nearby_are_named(opened, tmp_path):
    for number in range(7):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "probe.html").write_text("")
    said = "".join(view(tmp_path / "none").stderr.split())
    assert said.count("probe.html") == 5

"""The page in a real browser."""

import functools
import re

import pytest

from browser import load_page, needs_browser
from finetti.report import write_report

pytestmark = needs_browser


@pytest.fixture(scope="module")
def report(tmp_path_factory, results):
    return write_report(results, tmp_path_factory.mktemp("report")).read_text()


@pytest.fixture
def browse(tmp_path, report):
    """Load the report and return its final document and what it wrote to the console."""
    return functools.partial(load_page, report, tmp_path)


def shown(document):
    rows = re.findall(r'<tr data-paper="(.)"[^>]*?( hidden="")?>', document)
    return [paper for paper, hidden in rows if not hidden]


def test_the_page_loads_cleanly_and_draws_its_charts(browse):
    document, console = browse()
    assert console == []
    assert document.count('<figure class="drawn">') == 2
    assert document.count('aria-roledescription="line mark container"') >= 2
    assert shown(document) == ["E", "S", "S", "R"]
    assert "4 claims" in document


def test_charts_are_drawn_in_the_dark_and_on_a_phone_too(browse):
    options = ("--blink-settings=preferredColorScheme=0", "--window-size=500,900")
    document, console = browse(options=options)
    assert console == []
    assert document.count('<figure class="drawn">') == 2
    assert "#e6e9ee" in document[document.index('<figure class="drawn">') :].split("</figure>")[0]


def test_the_address_filters(browse):
    document, console = browse("#paper=S&verdict=fails")
    assert console == []
    assert shown(document) == ["S"]
    assert "1 of 4 claims" in document


def test_choosing_filters(browse):
    script = """
      const choice = document.querySelector("select[name=expected]");
      choice.value = "no";
      choice.dispatchEvent(new Event("change", { bubbles: true }));
    """
    document, console = browse(script=script)
    assert console == []
    assert shown(document) == ["S", "R"]
    hidden = re.findall(r'<article id="([^"]+)"[^>]* hidden=""', document)
    assert hidden == ["E-prop-4.1", "S-erratum-3"]

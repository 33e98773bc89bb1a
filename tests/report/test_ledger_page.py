"""The report of a run as a page and as files: all that was found, and nothing that runs."""

import copy
import csv
import json
import re
import sys
from html.parser import HTMLParser

import pytest

from finetti.claims import compare_runs
from finetti.core.errors import FinettiError
from finetti.core.files import check_directory, write_results
from finetti.report import render, write_figures, write_report


@pytest.fixture(scope="module")
def page(report):
    return report.read_text()


def test_everything_in_the_results_is_on_the_page(page, results):
    text = re.sub(r"\s+", " ", page)
    for part in (
        *("2 of 4", f"JAX {results['provenance']['jax']}", "UTC", "0.1 %"),
        *("-0.98 [-1.02, -0.94]", "in [-1.1, -0.9]", "As 1/T.", "1.235", "NaN"),
        *("Zhang et al. (2022), Proposition 4.1", "@misc{zhang2022", "def _curve(context"),
        *("fails, as expected", "inconclusive, expected: holds", "turned red</span> a flat curve"),
        *("Traceback (most recent call last)", "finetti reproduce --only E-prop-4.1", "fresh"),
        # rules are drawn with words beside them
        'aria-label="-0.98 [-1.02, -0.94] against the limit in [-1.1, -0.9]: obeyed"',
        'aria-label="1.73 against the limit ≤ 1: broken"',
    ):
        assert part in text, part
    assert text.count("<h4>Derived form</h4>") == 1


def test_formulas_are_mathematics_and_errata_have_both(page):
    assert "<mfrac><mi>c</mi><msqrt><mi>T</mi></msqrt></mfrac>" in page
    erratum = page[page.index('id="errata"') :].split("</section>")[0]
    assert erratum.count("<span><math") == 1  # the other cannot be read, and is shown as it is
    for part in ("Printed", "Derived", "<code>\\&lt;script&gt;"):
        assert part in erratum


class Elements(HTMLParser):
    """The elements of a page as a browser reads them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attributes]


def test_markup_in_the_results_is_shown_and_not_run(page, results):
    elements = Elements(page)
    assert elements.tags.count("script") == 5  # the data, the library, and three of the house
    assert not [name for name in elements.attributes if name.startswith("on")]
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;" in page
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert "<" not in data[1]
    assert json.loads(data[1]) == results


def test_the_page_asks_the_network_for_nothing_and_evaluates_no_text(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'sha256-" in policy
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(src|srcset)="(?!data:)', markup)
    assert "<link" not in markup
    assert "@import" not in markup


def test_the_script_library_is_there_once_and_only_if_charts_are(page, results):
    assert page.count("window.vegaEmbed") == 1
    bare = copy.deepcopy(results)
    for result in bare["results"]:
        result["charts"] = []
    assert len(render(bare)) < 90_000 < len(page)


def test_every_chart_has_a_still_picture_with_a_description_and_its_numbers(page):
    pictures = re.findall(
        r'<img class="still" alt="Chart: Error ([^"]+)" src="data:image/svg', page
    )
    assert len(pictures) == 2
    assert all("Lines: error (0.03125 to 0.25) against T (8 to 32" in each for each in pictures)
    assert page.count("<summary>Data of the chart</summary>") == 2
    assert page.count('<td class="number">0.03125</td>') == 2


def test_the_row_shows_the_measurement_that_decided(results):
    changed = copy.deepcopy(results)
    first = changed["results"][0]
    other = {**first["measurements"][0], "name": "s", "text": "the first"}
    first |= {
        "measurements": [other, *first["measurements"]],
        "decisive": {"form": "measurements", "index": 1},
    }
    row = render(changed).split('id="E-prop-4.1"')[1].split("</summary>")[0]
    assert "-0.98" in row
    assert "the first" not in row


def test_the_page_says_how_a_claim_is_checked_and_filters_by_it(results):
    changed = copy.deepcopy(results)
    changed["results"][0] |= {"check": "rests-on", "rests_on": ["S-thm-4.2"], "rejects": "much"}
    text = render(changed)
    assert 'data-check="rests-on"' in text
    assert 'rests on <a href="#S-thm-4.2">S-thm-4.2</a>' in text
    assert "<dt>Its rules reject</dt><dd>much</dd>" in text
    assert '<option value="simulation" data-label="simulation">' in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"false_alarm": 0.0}, "nothing was left to chance."),
        ({"complete": False, "selected": 9}, "4 of 9"),
        ({"results": [], "finished": 0, "as_expected": 0, "complete": False}, "0 of 0"),
    ],
    ids=["without chance", "interrupted", "empty"],
)
def test_what_a_run_was_is_said_above(results, changed, words):
    assert words not in render(results)
    assert words in render({**results, **changed})


def test_printed_and_derived_numbers_of_one_name_are_not_mixed_up(results):
    changes = compare_runs(results, results)
    assert not any(changes[name] for name in ("flipped", "new", "removed", "moved"))
    text = render({**results, "changes": changes})
    assert "Nothing: no verdict flipped" in text


def test_a_run_that_is_compared_with_none_says_how_to_compare_it(results):
    words = "was not compared with an older one"
    assert words not in render(results)
    assert words in render({**results, "changes": None})


def test_results_are_written_as_they_are(tmp_path, results):
    data = write_results(results, check_directory(tmp_path / "new" / "place"))
    assert json.loads(data.read_text()) == results
    assert [path.name for path in data.parent.iterdir()] == ["results.json"]


def test_figures_and_their_data_are_files_for_a_paper(tmp_path, results):
    paths = write_figures(results, tmp_path / "figures")
    names = [f"E-prop-4.1-{i}.{form}" for i in (1, 2) for form in ("svg", "csv", "pdf", "png")]
    assert [path.name for path in paths] == names
    starts = {".svg": b"<svg", ".csv": b"T,error,of", ".pdf": b"%PDF", ".png": b"\x89PNG"}
    assert all(path.read_bytes().startswith(starts[path.suffix]) for path in paths)
    data = (tmp_path / "figures" / "E-prop-4.1-1.csv").read_text()
    rows = list(csv.DictReader(data.splitlines()))
    assert [float(row["error"]) for row in rows] == [2 / 8, 2 / 16, 2 / 32, 1 / 8, 1 / 16, 1 / 32]


def test_a_failed_write_leaves_the_old_file(tmp_path, results):
    old = write_results(results, tmp_path).read_text()
    with pytest.raises(ValueError, match="JSON"):
        write_results({"value": float("nan")}, tmp_path)
    assert (tmp_path / "results.json").read_text() == old
    assert len(list(tmp_path.iterdir())) == 1


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path, results):
    (tmp_path / "file").write_text("")
    with pytest.raises(FinettiError, match="is a file"):
        check_directory(tmp_path / "file")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(FinettiError, match="leads nowhere"):
        check_directory(tmp_path / "loop")
    with pytest.raises(FinettiError, match="Choose another directory"):
        write_report(results, tmp_path / "file" / "below")
    (tmp_path / "results.json").mkdir()
    with pytest.raises(FinettiError, match=r"results\.json cannot be written"):
        write_results(results, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a place that refuses files on Linux")
def test_a_read_only_place_is_refused():
    with pytest.raises(FinettiError, match="/proc"):
        check_directory("/proc")

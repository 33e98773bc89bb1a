import copy
import json
import re
import sys

import pytest

from finetti.core.errors import FinettiError
from finetti.report import check_directory, render, write_report, write_results


@pytest.fixture(scope="module")
def page(results):
    return render(results)


def test_everything_in_the_results_is_on_the_page(page, results):
    text = re.sub(r"\s+", " ", page)
    assert "2 of 4 verdicts as expected" in text
    for part in ("quick", "7", f"JAX {results['provenance']['jax']}", "UTC"):
        assert part in text
    for part in ("-0.98 [-1.02, -0.94]", "in [-1.1, -0.9]", "As 1/T.", "1.235", "NaN"):
        assert part in text
    assert text.count("Derived form: ") == 1
    assert "Zhang et al. (2022), Proposition 4.1" in text
    assert "fails, as expected" in text
    assert "inconclusive, expected: holds" in text
    assert "Traceback (most recent call last)" in text


def test_markup_in_the_results_is_shown_and_not_run(page, results):
    own = page[page.index("</head>") :]
    assert 'alert("x")' not in own.replace('alert(\\"x\\")', "")
    assert own.count("<script") == own.count("</script>") == 3
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;" in own


def test_the_page_asks_the_network_for_nothing(page):
    assert "default-src 'none'" in page
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(src|srcset)="(?!data:)', markup)
    assert "<link" not in markup
    assert "@import" not in markup


def test_the_script_library_is_there_once_and_only_if_charts_are(page, results):
    assert page.count("window.vegaEmbed") == 1
    bare = copy.deepcopy(results)
    for result in bare["results"]:
        result["charts"] = []
    assert len(render(bare)) < 60_000 < len(page)


def test_every_chart_has_a_still_picture_with_a_description(page):
    assert (
        len(re.findall(r'<img class="still" alt="Chart: Error [^"]+" src="data:image/svg', page))
        == 2
    )


def test_an_interrupted_run_says_so(results):
    stopped = {**results, "complete": False, "selected": 9}
    assert "4 of 9 claims were finished" in render(stopped)


def test_an_empty_run_is_a_page_too(results):
    empty = {**results, "results": [], "finished": 0, "as_expected": 0, "complete": False}
    assert "0 of 0 verdicts" in render(empty)


def test_files(tmp_path, results):
    report = write_report(results, tmp_path / "new" / "place")
    assert report == tmp_path / "new" / "place" / "report.html"
    data = write_results(results, report.parent)
    assert json.loads(data.read_text()) == results
    assert sorted(p.name for p in report.parent.iterdir()) == ["report.html", "results.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, results):
    old = write_results(results, tmp_path).read_text()
    with pytest.raises(ValueError, match="JSON"):
        write_results({"value": float("nan")}, tmp_path)
    assert (tmp_path / "results.json").read_text() == old
    assert len(list(tmp_path.iterdir())) == 1


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path, results):
    (tmp_path / "file").write_text("")
    with pytest.raises(FinettiError, match="Give a directory"):
        check_directory(tmp_path / "file")
    with pytest.raises(FinettiError, match="Give a directory"):
        check_directory(tmp_path / "file" / "below")
    (tmp_path / "results.json").mkdir()
    with pytest.raises(FinettiError, match=r"results\.json cannot be written"):
        write_results(results, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a place that refuses files on Linux")
def test_a_read_only_place_is_refused():
    with pytest.raises(FinettiError, match="/proc"):
        check_directory("/proc")

"""The page in a real browser."""

import struct
import zlib

import pytest

from browser import console, needs_browser, wait_until
from browser import show as show_page
from finetti.display import Document, Section, Table

pytestmark = needs_browser
DRAWN = "document.querySelectorAll('figure.drawn .mark-line path').length"
SHOWN = "[...document.querySelectorAll('.claim')].filter(c => c.checkVisibility()).map(c => c.id)"
ALL = ["E-prop-4.1", "S-erratum-3", "S-thm-4.2", "R-table"]


@pytest.fixture
def show(browser, report):
    """Loads the report; afterwards nothing may stand on the console or have left the machine."""
    pages = []

    def load(address="", **options):
        pages.append(show_page(browser, report, address, **options))
        return pages[-1]

    yield load
    for page in pages:
        assert page.evaluate("1") == 1  # what is on its way has arrived
        assert console(page) == []
        asked = [request.url for request in page.requests()]
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        page.close()


def choose(page, name, value):
    page.evaluate(
        f"{{ const field = document.querySelector('.filters').elements['{name}'];"
        f"field.value = '{value}'; field.dispatchEvent(new Event('input', {{bubbles: true}})); }}"
    )


def colors(png):
    """The different bytes of a picture's rows: one or two if it is blank."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    position, data = 8, b""
    while position < len(png):
        (length,) = struct.unpack(">I", png[position : position + 4])
        if png[position + 4 : position + 8] == b"IDAT":
            data += png[position + 8 : position + 8 + length]
        position += 12 + length
    return len(set(zlib.decompress(data)))


def test_charts_are_drawn_when_they_come_into_view_and_not_before(show):
    page = show()
    assert page.evaluate(SHOWN) == ALL
    assert page.evaluate(DRAWN) == 0
    assert colors(page.screenshot()) > 20
    page.evaluate("document.querySelector('.filters').elements.open.click()")
    for index in range(2):
        page.evaluate(f"document.querySelectorAll('[data-chart]')[{index}].scrollIntoView()")
    wait_until(page, f"{DRAWN} >= 4")  # two charts of two lines
    labels = page.evaluate(
        "[...document.querySelectorAll('[role=graphics-document]')].map(each => each.ariaLabel)"
    )
    assert len(labels) == 2
    assert all("Lines: error (0.03125 to 0.25) against T (8 to 32" in label for label in labels)


def test_search_and_filters_with_counts_and_the_address(show):
    page = show()
    choose(page, "q", "ERROR falls")
    assert page.evaluate(SHOWN) == ["E-prop-4.1"]
    assert page.evaluate("location.hash") == "#q=ERROR+falls"
    assert page.evaluate("document.querySelector('.filters output').value") == "1 of 4 claims"
    choose(page, "q", "")
    choose(page, "paper", "S")
    options = "[...document.querySelector('.filters').elements.verdict.options].map(o => o.text)"
    assert page.evaluate(options) == ["all (2)", "holds (0)", "fails (1)", "inconclusive (1)"]
    choose(page, "verdict", "inconclusive")
    assert page.evaluate(SHOWN) == ["S-thm-4.2"]
    page.evaluate("document.querySelector('.filters').elements.reset.click()")
    assert page.evaluate(SHOWN) == ALL
    assert page.evaluate("location.hash") == ""
    choose(page, "changed", "flipped")
    assert page.evaluate(SHOWN) == ["E-prop-4.1"]
    choose(page, "changed", "")
    choose(page, "expected", "no")
    assert page.evaluate(SHOWN) == ["S-thm-4.2", "R-table"]
    # Cells of the matrix are links to filters.
    page.evaluate("document.querySelector('.matrix a[href=\"#paper=E&kind=control\"]').click()")
    wait_until(page, "location.hash === '#paper=E&kind=control'")
    wait_until(page, f"String({SHOWN}) === 'E-prop-4.1'")


@pytest.mark.parametrize(
    "address",
    [
        "#E-prop-4.1",
        "#paper=S&verdict=fails&claim=E-prop-4.1",
        "#view=claims&q=no+such&claim=E-prop-4.1",
    ],
)
def test_a_link_shows_its_claim_whatever_the_filters(show, address):
    page = show(address)
    claim = "document.getElementById('E-prop-4.1')"
    assert page.evaluate(f"{claim}.open && {claim}.checkVisibility()")
    top = page.evaluate(f"{claim}.getBoundingClientRect().top")
    assert -1 <= top < 900
    said = page.evaluate("document.querySelector('.filters output').value")
    assert ("which the link asks for" in said) is ("q=" in address or "paper" in address)


def test_a_click_on_a_link_shows_a_claim_that_is_filtered_out(show):
    page = show("#view=errata")
    assert page.evaluate(SHOWN) == []
    choose(page, "paper", "S")
    page.evaluate("document.querySelector('.flipped a').click()")
    wait_until(page, "location.hash === '#paper=S&claim=E-prop-4.1'")
    assert "E-prop-4.1" in page.evaluate(SHOWN)
    assert page.evaluate("document.getElementById('E-prop-4.1').open")
    page.evaluate("history.back()")
    wait_until(page, "location.hash.startsWith('#view=errata')")
    wait_until(page, f"{SHOWN}.length === 0")


def test_what_changed(show):
    text = show().evaluate("document.querySelector('.changes').innerText")
    assert "1 flipped" in text
    assert "E-prop-4.1 the error falls: fails → holds, as expected" in text
    assert "slope" in text
    assert "-0.5 [-0.6, -0.4]" in text
    assert "S-thm-4.2" in text  # new
    assert "R-gone" in text


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_never_scrolls_sideways(show, dark):
    page = show("#E-prop-4.1", size=(390, 800), dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.evaluate("document.querySelector('[data-chart]').scrollIntoView()")
    wait_until(page, f"{DRAWN} >= 2")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    ink = page.evaluate(
        "document.querySelector('.live svg .role-title-text text').getAttribute('fill')"
    )
    assert ink == ("#e6e9ee" if dark else "#333333")
    assert colors(page.screenshot()) > 20


def test_long_formulas_break_or_scroll_in_a_box_that_keys_reach(show):
    page = show("#E-prop-4.1", size=(390, 800))
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    for claim, breaks in (("E-prop-4.1", True), ("S-erratum-3", False)):
        found = f"[...document.getElementById('{claim}').querySelectorAll('.math')].at(-1)"
        assert page.evaluate(f"{found}.querySelectorAll('math').length") > 1
        assert page.evaluate(f"{found}.scrollWidth <= {found}.clientWidth") is breaks
        assert page.evaluate(f"{found}.ariaLabel").startswith(f"Formula of {claim}")
        page.evaluate(f"{found}.focus()")
        assert page.evaluate(f"document.activeElement === {found}")
        # The shade at the edge that says that there is more.
        assert "local" in page.evaluate(f"getComputedStyle({found}).backgroundAttachment")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_long_paths_in_tables_and_headings_are_broken(browser, tmp_path):
    path = "/".join(["experiments", "checkpoint_of_everything_that_was_tried" * 3, "final"])
    table = Table("Checkpoints", ("checkpoint", "norm", "other"), ((path, 1.5, path),))
    file = tmp_path / "page.html"
    file.write_text(
        Document(path, sections=(Section(f"If: {path}", (path,), (), (table,)),)).render()
    )
    page = show_page(browser, file, size=(390, 800))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    widths = page.evaluate("[...document.querySelectorAll('td')].map(cell => cell.clientWidth)")
    assert all(width < 250 for width in widths)
    page.close()


def test_on_paper_everything_is_open_whatever_the_filters(show):
    page = show("#view=errata&paper=R")
    page.emulate_media(media="print")
    assert page.evaluate(SHOWN) == ALL
    for part, number in ((".statement", len(ALL)), (".claim .more pre", 4), (".still", 2)):
        found = f"[...document.querySelectorAll('{part}')].filter(each => each.checkVisibility())"
        assert page.evaluate(f"{found}.length") == number
    assert page.evaluate("document.querySelector('#errata').checkVisibility()")


def test_what_can_be_copied_is_selected_where_the_clipboard_is_refused(show):
    page = show("#S-erratum-3")
    refused = "{value: {writeText: () => Promise.reject()}}"
    page.evaluate(f"Object.defineProperty(navigator, 'clipboard', {refused})")
    page.evaluate("document.querySelector('#S-erratum-3 .json').open = true")
    wait_until(page, "document.querySelector('#S-erratum-3 .json pre').textContent")
    for part, words in ((".json", '"id": "S-erratum-3"'), (".link", "report.html#S-erratum-3")):
        page.evaluate(f"document.querySelector('#S-erratum-3 {part} button').click()")
        selected = f"document.querySelector('#S-erratum-3 {part} button').innerText"
        wait_until(page, f"{selected}.startsWith('Selected')")
        assert words in page.evaluate("String(getSelection())")


def test_keys_reach_the_search_and_open_a_claim(show):
    page = show()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.evaluate("document.querySelector('.claim summary').focus()")
    page.keyboard.press("Enter")
    wait_until(page, "document.querySelector('.claim').open")


def test_only_its_own_scripts_run_and_no_text_becomes_code(browser, report, results, tmp_path):
    """Whatever is injected into the page is refused by its content policy."""
    hostile = tmp_path / "hostile.html"
    text = report.read_text()
    hostile.write_text(text.replace("</main>", "<script>window.hostile = 1</script></main>"))
    page = show_page(browser, hostile)
    assert page.evaluate("window.hostile") is None
    assert any("Content Security Policy" in line for line in console(page))
    # What the page may not do, a test may not do in its name.
    session = page.context.new_cdp_session(page)
    script = "try { new Function('return 1')() } catch (e) { e.name }"
    asked = {"expression": script, "allowUnsafeEvalBlockedByCSP": False}
    assert session.send("Runtime.evaluate", asked)["result"]["value"] == "EvalError"
    assert page.evaluate("JSON.parse(document.getElementById('data').textContent)") == results
    page.close()

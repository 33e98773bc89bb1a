"""The page in a real browser, which is started once."""

import struct
import zlib

import pytest

from browser import needs_browser
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
        pages.append(browser.show(report, address, **options))
        return pages[-1]

    yield load
    for page in pages:
        assert page.run("1") == 1  # what is on its way has arrived
        assert page.console == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
        page.close()


def choose(page, name, value):
    page.run(
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
    assert page.run(SHOWN) == ALL
    assert page.run(DRAWN) == 0
    assert colors(page.screenshot()) > 20
    page.run("document.querySelector('.filters').elements.open.click()")
    for index in range(2):
        page.run(f"document.querySelectorAll('[data-chart]')[{index}].scrollIntoView()")
    page.wait(f"{DRAWN} >= 4")  # two charts of two lines
    labels = page.run(
        "[...document.querySelectorAll('[role=graphics-document]')].map(each => each.ariaLabel)"
    )
    assert len(labels) == 2
    assert all("Lines: error (0.03125 to 0.25) against T (8 to 32" in label for label in labels)


def test_search_and_filters_with_counts_and_the_address(show):
    page = show()
    choose(page, "q", "ERROR falls")
    assert page.run(SHOWN) == ["E-prop-4.1"]
    assert page.run("location.hash") == "#q=ERROR+falls"
    assert page.run("document.querySelector('.filters output').value") == "1 of 4 claims"
    choose(page, "q", "")
    choose(page, "paper", "S")
    options = "[...document.querySelector('.filters').elements.verdict.options].map(o => o.text)"
    assert page.run(options) == ["all (2)", "holds (0)", "fails (1)", "inconclusive (1)"]
    choose(page, "verdict", "inconclusive")
    assert page.run(SHOWN) == ["S-thm-4.2"]
    page.run("document.querySelector('.filters').elements.reset.click()")
    assert page.run(SHOWN) == ALL
    assert page.run("location.hash") == ""
    choose(page, "changed", "flipped")
    assert page.run(SHOWN) == ["E-prop-4.1"]
    choose(page, "changed", "")
    choose(page, "expected", "no")
    assert page.run(SHOWN) == ["S-thm-4.2", "R-table"]
    # Cells of the matrix are links to filters.
    page.run("document.querySelector('.matrix a[href=\"#paper=E&kind=control\"]').click()")
    page.wait("location.hash === '#paper=E&kind=control'")
    page.wait(f"String({SHOWN}) === 'E-prop-4.1'")


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
    assert page.run(f"{claim}.open && {claim}.checkVisibility()")
    top = page.run(f"{claim}.getBoundingClientRect().top")
    assert -1 <= top < 900
    said = page.run("document.querySelector('.filters output').value")
    assert ("which the link asks for" in said) is ("q=" in address or "paper" in address)


def test_a_click_on_a_link_shows_a_claim_that_is_filtered_out(show):
    page = show("#view=errata")
    assert page.run(SHOWN) == []
    choose(page, "paper", "S")
    page.run("document.querySelector('.flipped a').click()")
    page.wait("location.hash === '#paper=S&claim=E-prop-4.1'")
    assert "E-prop-4.1" in page.run(SHOWN)
    assert page.run("document.getElementById('E-prop-4.1').open")
    page.run("history.back()")
    page.wait("location.hash.startsWith('#view=errata')")
    page.wait(f"{SHOWN}.length === 0")


def test_what_changed(show):
    text = show().run("document.querySelector('.changes').innerText")
    assert "1 flipped" in text
    assert "E-prop-4.1 the error falls: fails → holds, as expected" in text
    assert "slope" in text
    assert "-0.5 [-0.6, -0.4]" in text
    assert "S-thm-4.2" in text  # new
    assert "R-gone" in text


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_never_scrolls_sideways(show, dark):
    page = show("#E-prop-4.1", size=(390, 800), dark=dark)
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.run("document.querySelector('[data-chart]').scrollIntoView()")
    page.wait(f"{DRAWN} >= 2")
    assert page.run("document.documentElement.scrollWidth") <= 390
    ink = page.run("document.querySelector('.live svg .role-title-text text').getAttribute('fill')")
    assert ink == ("#e6e9ee" if dark else "#333333")
    assert colors(page.screenshot()) > 20


def test_long_formulas_break_or_scroll_in_a_box_that_keys_reach(show):
    page = show("#E-prop-4.1", size=(390, 800))
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    for claim, breaks in (("E-prop-4.1", True), ("S-erratum-3", False)):
        found = f"[...document.getElementById('{claim}').querySelectorAll('.math')].at(-1)"
        assert page.run(f"{found}.querySelectorAll('math').length") > 1
        assert page.run(f"{found}.scrollWidth <= {found}.clientWidth") is breaks
        assert page.run(f"{found}.ariaLabel").startswith(f"Formula of {claim}")
        page.run(f"{found}.focus()")
        assert page.run(f"document.activeElement === {found}")
        # The shade at the edge that says that there is more.
        assert "local" in page.run(f"getComputedStyle({found}).backgroundAttachment")
    assert page.run("document.documentElement.scrollWidth") <= 390


def test_long_paths_in_tables_and_headings_are_broken(browser, tmp_path):
    path = "/".join(["experiments", "checkpoint_of_everything_that_was_tried" * 3, "final"])
    table = Table("Checkpoints", ("checkpoint", "norm", "other"), ((path, 1.5, path),))
    file = tmp_path / "page.html"
    file.write_text(
        Document(path, sections=(Section(f"If: {path}", (path,), (), (table,)),)).render()
    )
    page = browser.show(file, size=(390, 800))
    assert page.run("document.documentElement.scrollWidth") <= 390
    widths = page.run("[...document.querySelectorAll('td')].map(cell => cell.clientWidth)")
    assert all(width < 250 for width in widths)
    page.close()


def test_on_paper_everything_is_open_whatever_the_filters(show):
    page = show("#view=errata&paper=R")
    page.emulate(media="print")
    assert page.run(SHOWN) == ALL
    for part, number in ((".statement", len(ALL)), (".claim .more pre", 4), (".still", 2)):
        found = f"[...document.querySelectorAll('{part}')].filter(each => each.checkVisibility())"
        assert page.run(f"{found}.length") == number
    assert page.run("document.querySelector('#errata').checkVisibility()")


def test_what_can_be_copied_is_selected_where_the_clipboard_is_refused(show):
    page = show("#S-erratum-3")
    refused = "{value: {writeText: () => Promise.reject()}}"
    page.run(f"Object.defineProperty(navigator, 'clipboard', {refused})")
    page.run("document.querySelector('#S-erratum-3 .json').open = true")
    page.wait("document.querySelector('#S-erratum-3 .json pre').textContent")
    for part, words in ((".json", '"id": "S-erratum-3"'), (".link", "report.html#S-erratum-3")):
        page.run(f"document.querySelector('#S-erratum-3 {part} button').click()")
        page.wait(
            f"document.querySelector('#S-erratum-3 {part} button').innerText.startsWith('Selected')"
        )
        assert words in page.run("String(getSelection())")


def test_keys_reach_the_search_and_open_a_claim(show):
    page = show()
    page.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
    assert page.run("document.activeElement.name") == "q"
    page.run("document.querySelector('.claim summary').focus()")
    for kind in ("keyDown", "keyUp"):
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        page.command("Input.dispatchKeyEvent", type=kind, **key)
    page.wait("document.querySelector('.claim').open")


def test_only_its_own_scripts_run_and_no_text_becomes_code(browser, report, results, tmp_path):
    """Whatever is injected into the page is refused by its content policy."""
    hostile = tmp_path / "hostile.html"
    text = report.read_text()
    hostile.write_text(text.replace("</main>", "<script>window.hostile = 1</script></main>"))
    page = browser.show(hostile)
    assert page.run("window.hostile") is None
    assert any("Content Security Policy" in line for line in page.console)
    assert page.run("try { new Function('return 1')() } catch (e) { e.name }") == "EvalError"
    assert page.run("JSON.parse(document.getElementById('data').textContent)") == results
    page.close()

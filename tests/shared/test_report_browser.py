"""The page in headless Chromium: nothing leaves it, it fits, it can be read, searched and walked by keyboard."""

from __future__ import annotations

import pytest
from browser import Browser, chromium
from report_results import write_results

from shared.report.page import build

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium here (apt-get install chromium)")

# Contrast of every text against the first opaque background behind it, by WCAG's formula; returns the poor ones.
CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(v => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const poor = new Map();
  for (const details of document.querySelectorAll('details')) details.open = true;
  const walker = document.createTreeWalker(document.querySelector('.frame'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility({opacityProperty: true})) continue;
    let back = node;
    while (back.parentElement && rgba(getComputedStyle(back).backgroundColor)[3] < 255) back = back.parentElement;
    const [a, b] = [light(rgba(getComputedStyle(node).color)), light(rgba(getComputedStyle(back).backgroundColor))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.set(node.className + ' ' + node.tagName, ratio);
  }
  return [...poor].map(([name, ratio]) => `${name}: ${ratio.toFixed(2)}`);
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory):
    root = write_results(tmp_path_factory.mktemp("browser"))
    build(root, root / "index.html", papers=root / "no papers")
    return root / "index.html"


@pytest.fixture(scope="module")
def browser():
    with Browser() as running:
        yield running


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_can_be_read_and_asks_for_nothing(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.run(CONTRAST) == []
    assert browser.run("document.documentElement.scrollWidth") == width, "the page scrolls sideways"
    assert browser.run("[...document.images].filter(i => i.complete && !i.naturalWidth).length") == 0
    assert browser.run("getComputedStyle(document.body).color") == ("rgb(231, 229, 224)" if dark else "rgb(28, 29, 32)")
    assert browser.errors == []
    assert browser.requests == [page.resolve().as_uri()]


def shown(browser) -> list[str]:
    rows = "[...document.querySelectorAll('tr[data-verdict]')].filter(r => r.checkVisibility())"
    return browser.run(f"{rows}.map(r => r.dataset.id)")


def search(browser, text: str) -> None:
    browser.run(f"(() => {{ const i = document.querySelector('[type=search]'); i.value = {text!r}; "
                "i.dispatchEvent(new Event('input')); })()")  # fmt: skip


def test_search_and_filters_narrow_the_rows_and_give_them_back(browser, page):
    browser.open(page)
    before = shown(browser)
    search(browser, "GAMMA 17.5")
    assert shown(browser) == ["gamma/17"]  # in a group that was folded
    assert browser.run("document.querySelector('.hits').textContent").startswith("1 of ")
    search(browser, "")
    assert shown(browser) == before
    browser.run("document.querySelector('[data-filter=differs]').click()")
    assert shown(browser) == ["alpha/three"]
    browser.run("document.querySelector('[data-filter=agrees]').click()")
    assert shown(browser) == ["alpha/two", "alpha/three"]
    search(browser, "nothing fits this")
    assert shown(browser) == [] and "Escape" in browser.run("document.querySelector('.hits').textContent")
    browser.press("Escape")
    assert shown(browser) == before
    assert browser.run("document.querySelectorAll('[aria-pressed=true]').length") == 0


def test_a_count_at_the_top_leads_to_its_rows(browser, page):
    browser.open(page)
    browser.run("document.querySelector('[data-show=\"not comparable\"]').click()")
    assert shown(browser) == ["beta/one"]
    assert (
        browser.run("document.querySelector('[data-filter=\"not comparable\"]').getAttribute('aria-pressed')") == "true"
    )


def test_a_link_to_a_folded_number_opens_it(browser, page):
    browser.open(page, fragment="#toy-table1--table-1-gamma--gamma-17")
    assert "gamma/17" in shown(browser)
    box = browser.run("(() => { const b = document.querySelector(':target').getBoundingClientRect(); "
                      "return b.top >= 0 && b.bottom <= innerHeight; })()")  # fmt: skip
    assert box


def test_by_keyboard_every_stop_can_be_seen(browser, page):
    browser.open(page)
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    browser.press("/", "/")
    assert browser.run("document.activeElement.type") == "search" and browser.run("document.activeElement.value") == ""
    stops = []
    for _ in range(9):
        browser.press("Tab")
        stops.append(browser.run(
            "(() => { const e = document.activeElement, s = getComputedStyle(e); return [e.tagName, "
            "s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 && e.checkVisibility()]; })()"
        ))  # fmt: skip
    assert [tag for tag, _ in stops[:5]] == ["BUTTON"] * 5
    assert all(visible for _, visible in stops), stops
    browser.run("document.querySelector('summary').focus()")
    was = browser.run("document.querySelector('details').open")
    browser.press("Enter")
    assert browser.run("document.querySelector('details').open") is not was


def test_without_javascript_all_but_the_search_is_there(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        tree = browser.call("DOM.getDocument")["root"]["nodeId"]
        found = browser.call("DOM.querySelectorAll", nodeId=tree, selector="details.group")["nodeIds"]
        tools = browser.call("DOM.querySelector", nodeId=tree, selector=".tools")["nodeId"]
        with pytest.raises(RuntimeError):  # no box: the search is not shown where it could not work
            browser.call("DOM.getBoxModel", nodeId=tools)
        assert found and all(browser.call("DOM.getBoxModel", nodeId=node)["model"]["height"] > 0 for node in found)
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_it_prints_in_black_on_white(browser, page):
    browser.open(page, dark=True)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert not browser.run("document.querySelector('.tools').checkVisibility()")
        assert browser.run("document.querySelector('.cards').checkVisibility()")
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")

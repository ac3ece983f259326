"""The page in headless Chromium: nothing leaves it, it fits, it can be read, searched and walked by keyboard."""

from __future__ import annotations

from itertools import pairwise

import pytest
from report_results import write_results

from shared.paths import ROOT
from shared.report.page import build

ROWS = "[...document.querySelectorAll('tr[data-verdict]')].filter(r => r.checkVisibility()).map(r => r.dataset.id)"
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
def report(tmp_path_factory: pytest.TempPathFactory):
    root = write_results(tmp_path_factory.mktemp("browser"))
    build(root, root / "index.html", papers=root / "papers")
    return root / "index.html"


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_can_be_read_and_asks_for_nothing(show, report, width, scheme):
    page = show(report, viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width, "the page scrolls sideways"
    assert page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).length") == 0
    colour = {"dark": "rgb(231, 229, 224)", "light": "rgb(28, 29, 32)"}[scheme]
    assert page.evaluate("getComputedStyle(document.body).color") == colour
    assert page.errors == []
    assert page.requests == [report.resolve().as_uri()]


def test_search_and_filters_narrow_the_rows_and_give_them_back(show, report):
    page = show(report)
    search, hits = page.locator("[type=search]"), page.locator(".hits")
    before = page.evaluate(ROWS)
    assert before == ["alpha/three"]  # what differs: the rest is folded
    search.fill("GAMMA 17.5")
    assert page.evaluate(ROWS) == ["gamma/17"]  # in a group that was folded
    assert hits.text_content().startswith("1 of ")
    search.fill("")
    assert page.evaluate(ROWS) == before
    page.click("[data-filter=differs]")
    assert page.evaluate(ROWS) == ["alpha/three"]
    page.click("[data-filter=agrees]")
    assert page.evaluate(ROWS) == ["alpha/three", "alpha/two"]
    search.fill("nothing fits this")
    assert page.evaluate(ROWS) == [] and "Escape" in hits.text_content()
    page.keyboard.press("Escape")
    assert page.evaluate(ROWS) == before
    assert page.locator("[aria-pressed=true]").count() == 0


def test_a_filter_shows_its_rows(show, report):
    page = show(report)
    page.click("[data-filter='not comparable']")
    assert page.evaluate(ROWS) == ["beta/one"]
    assert page.get_attribute("[data-filter='not comparable']", "aria-pressed") == "true"


def test_the_search_is_in_the_address_and_an_address_is_a_search(show, report):
    page = show(report)
    page.locator("[type=search]").fill("gamma 17.5")
    page.click("[data-filter='not run']")
    assert page.url.endswith("?q=gamma+17.5&show=not+run")
    page = show(report, "?q=gamma+17.5&show=not+run")
    assert page.evaluate(ROWS) == ["gamma/17"]
    assert page.input_value("[type=search]") == "gamma 17.5"
    page.keyboard.press("Escape")
    assert "?" not in page.url


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("gamma/1", ["gamma/1"]),  # whole words before parts of words: not gamma/10 to gamma/19
        ("table 1 alpha", ["alpha/one", "alpha/three", "alpha/two"]),
        ("53.9", ["alpha/one", "alpha/two"]),
        ("eta", ["beta/one"]),  # where no word is whole
        ("lph", ["alpha/one", "alpha/three", "alpha/two"]),
    ],
)
def test_the_search_finds_words_before_parts_of_words(show, report, query, found):
    page = show(report)
    page.locator("[type=search]").fill(query)
    assert sorted(page.evaluate(ROWS)) == found


def test_columns_sort_by_number_and_a_third_click_restores_them(show, report):
    page = show(report, "#toy-table1--table-1-gamma")
    published = "[...document.querySelectorAll('#toy-table1--table-1-gamma tbody tr')].map(r => r.dataset.id)"
    before = page.evaluate(published)
    head = page.locator("#toy-table1--table-1-gamma thead th").nth(1)
    orders = []
    for direction in ("ascending", "descending", None):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        orders.append(page.evaluate(published))
    assert orders[0] == [f"gamma/{i}" for i in range(60)] and orders[1] == orders[0][::-1] and orders[2] == before


def test_the_contents_mark_where_one_is(show, report):
    page = show(report, viewport={"width": 1400, "height": 700})
    assert page.locator("[aria-current]").count() == 1
    page.evaluate("document.getElementById('toy-table1').scrollIntoView()")
    page.wait_for_selector(".contents a[href='#toy-table1'][aria-current=location]")
    assert page.locator("[aria-current]").count() == 1


def test_print_unfolds_everything(show, report):
    page = show(report)
    page.emulate_media(media="print")
    heights = "[...document.querySelectorAll('tr[data-verdict]')].map(r => r.getBoundingClientRect().height)"
    assert min(page.evaluate(heights)) > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_folded_or_open(show, axe, report, scheme):
    page = show(report, color_scheme=scheme)
    assert axe(page) == []
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert axe(page) == []


def test_axe_finds_what_is_wrong(show, axe, tmp_path):
    (tmp_path / "bad.html").write_text("<title>t</title><img src='data:,'>", encoding="utf-8")
    assert any(line.startswith("image-alt") for line in axe(show(tmp_path / "bad.html")))


def test_the_recorded_results_are_a_page_of_limited_height_and_size(show, tmp_path):
    """15,000 pixels at 1,400 wide with details folded, 3 MB; "table 1" finds the tables of that number alone."""
    path = tmp_path / "index.html"
    build(ROOT / "results", path)
    assert path.stat().st_size < 3_000_000
    page = show(path, viewport={"width": 1400, "height": 900})
    assert page.evaluate("document.documentElement.scrollHeight") <= 15_000
    kinds = page.evaluate("[...new Set([...document.images].map(i => i.src.split(';')[0]))]")
    assert set(kinds) <= {"data:image/webp", "data:image/svg+xml"}
    page.locator("[type=search]").fill("table 1")
    titles = page.evaluate(
        "[...document.querySelectorAll('tr[data-verdict]')].filter(r => r.checkVisibility())"
        ".map(r => r.closest('.group').querySelector('.title').textContent + ' ' + r.textContent)"
    )
    assert len(titles) > 20 and all("Table 1" in title for title in titles)
    page.locator("[type=search]").fill("in bf16 step 500")  # in a variant, which is folded
    folded = "[...document.querySelectorAll('.variant')].filter(d => d.checkVisibility() && d.open).length"
    assert page.evaluate(folded) > 0
    page.keyboard.press("Escape")
    assert page.evaluate(folded) == 0


def test_every_control_has_a_name_and_every_region_its_own(show, report):
    """More than axe asks for."""
    page = show(report)
    assert page.evaluate("[...document.querySelectorAll('th')].filter(e => !e.textContent.trim()).length") == 0
    labels = page.evaluate("[...document.querySelectorAll('[role=region], main section')].map(e => e.ariaLabel)")
    named = [label for label in labels if label]
    assert len(named) == len(set(named))
    levels = page.evaluate("[...document.querySelectorAll('main :is(h1,h2,h3,h4,h5)')].map(e => +e.tagName[1])")
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    for control in page.locator("button, a[href]:not([aria-hidden])").all():
        assert (control.get_attribute("aria-label") or control.text_content() or control.inner_html()).strip()
    images = page.evaluate("[...document.images].map(i => [i.decoding, i.loading, i.hasAttribute('alt')])")
    assert images and all(image == ["async", "lazy", True] for image in images)


def test_a_link_to_a_folded_number_opens_it(show, report):
    page = show(report, "#toy-table1--table-1-gamma--gamma-17")
    assert "gamma/17" in page.evaluate(ROWS)
    assert page.evaluate(
        "(b => b.top >= 0 && b.bottom <= innerHeight)(document.querySelector(':target').getBoundingClientRect())"
    )


def test_by_keyboard_every_stop_can_be_seen(show, report):
    page = show(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    assert page.evaluate("[document.activeElement.type, document.activeElement.value]") == ["search", ""]
    stops = []
    for _ in range(9):
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate(
                "(() => { const e = document.activeElement, s = getComputedStyle(e); return [e.tagName, "
                "s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 && e.checkVisibility()]; })()"
            )
        )
    assert [tag for tag, _ in stops[:5]] == ["BUTTON"] * 5
    assert all(visible for _, visible in stops), stops
    page.focus("summary")
    was = page.evaluate("document.querySelector('details').open")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('details').open") is not was


def test_without_javascript_all_but_the_search_is_there(show, report):
    page = show(report, java_script_enabled=False)
    assert not page.locator(".tools").is_visible()  # the search is not shown where it could not work
    groups = page.locator(".evidence > details").all()
    assert groups and all(group.bounding_box()["height"] > 0 for group in groups)


def test_it_prints_in_black_on_white(show, report):
    page = show(report, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert not page.locator(".tools").is_visible()
    assert page.locator(".cards").first.is_visible()

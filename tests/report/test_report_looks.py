"""A report is readable: in light and in dark, on paper, by whoever sees it and by whoever hears it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_view import MadeView, plain, row
from opened import Opened
from playwright.sync_api import Browser

from assay.view.view import Fact

pytestmark = pytest.mark.slow

Opening = Callable[..., Opened]
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
# The contrast of every text in sight with what lies behind it, by WCAG 2's formula; the lowest of each kind.
CONTRAST = """() => {
  const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parse = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, .hidden")) continue;
    const ink = light(parse(getComputedStyle(element).color));
    const pair = [ink, light(behind(element))].sort((a, b) => b - a);
    found.push([(pair[0] + 0.05) / (pair[1] + 0.05), element.textContent.slice(0, 40)]);
  }
  return found.filter(([ratio]) => ratio < 4.5);
}"""
USED = "button, input, select, a, article, [role=grid], [role=img]"
NAMELESS = """(used) => [...document.querySelectorAll(used)]
  .filter((element) => element.checkVisibility())
  .filter((element) => !(element.ariaLabel || element.labels?.length || element.textContent.trim()))
  .map((element) => element.outerHTML.slice(0, 80))"""


@pytest.fixture
def views() -> list[MadeView]:
    facts = (
        Fact("signature", "not signed", "measured", sound=False),
        Fact("pins", "production", "recomputed"),
    )
    return [MadeView(plain(200, 1), told=facts), MadeView(plain(200, 2, 0.3), told=facts)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(
    opening: Opening, views: list[MadeView], scheme: str
) -> None:
    found = opening(views, color_scheme=scheme)
    found.page.keyboard.press("j")
    found.page.wait_for_selector("#sample h3")
    assert found.page.evaluate(CONTRAST) == []


def test_dark_is_the_systems_choice_until_the_reader_makes_one(
    opening: Opening, views: list[MadeView]
) -> None:
    found = opening(views, color_scheme="dark")
    dark = found.page.evaluate(BACKGROUND)
    found.page.click("#theme")
    light = found.page.evaluate(BACKGROUND)
    assert dark != light
    found.page.click("#theme")
    assert found.page.evaluate(BACKGROUND) == dark
    found.page.click("#theme")
    found.page.emulate_media(color_scheme="light")
    assert found.page.evaluate(BACKGROUND) == light


def test_charts_are_drawn_again_in_the_other_colours(opening: Opening, views: list[MadeView]) -> None:
    found = opening(views)
    pixels = "document.querySelector('#charts canvas').toDataURL()"
    before = found.page.evaluate(pixels)
    found.page.emulate_media(color_scheme="dark")
    found.until(f"({pixels}) !== {before!r}")


def test_paper_is_light_and_has_the_flips_and_not_the_list(opening: Opening, views: list[MadeView]) -> None:
    found = opening(views, color_scheme="dark")
    assert not found.page.locator("#flips").is_visible()
    found.page.emulate_media(media="print")
    assert found.page.locator("#flips tbody tr").count() > 3
    assert found.page.locator("#flips").is_visible()
    for gone in ("#list", "#filters", ".top nav", "#samples"):
        assert not found.page.locator(gone).is_visible()
    assert found.page.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
    assert found.page.evaluate(CONTRAST) == []
    assert len(found.page.pdf()) > 20_000


def test_paper_has_the_sample_that_is_open(opening: Opening) -> None:
    found = opening([MadeView([row(0, answer="a printed answer")])])
    found.page.keyboard.press("j")
    found.page.wait_for_selector("#sample h3")
    found.page.emulate_media(media="print")
    assert found.page.locator("text=a printed answer").last.is_visible()


def test_everything_that_can_be_used_has_a_name(opening: Opening, views: list[MadeView]) -> None:
    found = opening(views)
    found.page.keyboard.press("j")
    found.page.wait_for_selector("#sample h3")
    assert found.page.evaluate(NAMELESS, USED) == []
    tree = found.page.locator("#list").aria_snapshot()
    assert 'columnheader "Change"' in tree
    assert found.page.locator("#list [role=row][aria-selected=true]").count() == 1


def test_without_scripts_the_scores_and_the_counts_still_stand(
    browser: Browser, opening: Opening, views: list[MadeView]
) -> None:
    found = opening(views)
    page = browser.new_page(java_script_enabled=False)
    page.goto(found.path.as_uri())
    assert page.locator("table.scores tbody").count() == 3
    assert (
        page.locator("noscript").inner_text()
        == "The list of samples needs scripts; everything above does not."
    )
    box = page.locator("table.scores .bar").first.bounding_box()
    assert box is not None
    assert box["width"] > 20
    page.close()


def test_a_narrow_window_scrolls_in_one_direction_only(opening: Opening, views: list[MadeView]) -> None:
    found = opening(views, viewport={"width": 480, "height": 800})
    found.page.keyboard.press("j")
    found.page.wait_for_selector("#sample h3")
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 480
    assert found.page.locator("#sample").is_visible()

"""Two runs beside each other: what changed comes first, and both answers stand beside each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_view import MadeView, plain, row
from opened import Opened

from assay.compare.conditions import UnlikeError

pytestmark = pytest.mark.slow

BEFORE = [row(number, answer=f"Before {number}", reward=float(number != 7)) for number in range(12)]
AFTER = [
    *[row(number, answer=f"After {number}") for number in range(8)],
    row(8, answer="Worse now", reward=0.0),
    row(9, answer="Half now", reward=0.5),
    row(10, status="errored", error="it broke"),
    row(30, answer="Only here"),
]
Opening = Callable[..., Opened]


@pytest.fixture
def two(opening: Opening) -> Opened:
    return opening([MadeView(list(BEFORE)), MadeView(list(AFTER), server="another")])


def test_losses_come_first_then_gains_then_what_stayed(two: Opened) -> None:
    assert two.shown() == "13 of 13"
    assert two.keys()[:4] == ["letters/8", "sorting/10", "arithmetic/9", "sorting/7"]
    assert set(two.keys()[-2:]) == {"letters/11", "arithmetic/30"}
    changes = two.texts("#rows .change")
    assert changes[:4] == ["\N{MINUS SIGN}1", "\N{MINUS SIGN}1", "\N{MINUS SIGN}0.500", "+1"]
    assert two.complaints == []


def test_a_flip_is_found_and_shows_both_answers(two: Opened) -> None:
    two.page.select_option("#change", "flip")
    assert two.shown() == "4 of 13"
    two.page.select_option("#change", "loss")
    two.look_for("worse now")
    assert two.keys() == ["letters/8"]
    two.page.keyboard.press("Escape")
    two.page.keyboard.press("j")
    two.page.wait_for_selector("#sample .half >> nth=1")
    halves = two.texts("#sample .half")
    assert "Before 8" in halves[0]
    assert "Worse now" in halves[1]
    assert "What is 8 plus 8?" not in "".join(halves)
    assert two.page.inner_text("#sample").count("What is 8 plus 8?") == 1


def test_what_only_one_run_has_is_told(two: Opened) -> None:
    two.page.select_option("#change", "alone")
    assert two.keys() == ["letters/11", "arithmetic/30"]
    two.page.click("text=arithmetic/30")
    two.page.wait_for_selector("#sample .half >> nth=1")
    assert "This run has no such sample." in two.texts("#sample .half")[0]
    assert "Only here" in two.texts("#sample .half")[1]


def test_the_verdict_of_the_comparison_is_the_heads(opening: Opening) -> None:
    before = [row(number) for number in range(90)]
    after = [row(number, reward=0.0) for number in range(90)]
    found = opening([MadeView(list(before)), MadeView(list(after))])
    assert found.page.inner_text(".verdict strong") == "B is worse"
    assert found.page.get_attribute(".verdict", "data-word") == "worse"
    assert found.texts(".compared .word") == ["worse"] * 3
    dots = found.page.locator(".difference").evaluate_all(
        "all => all.map(bar => bar.querySelector('.dot').getBoundingClientRect().right"
        " < bar.querySelector('.axis').getBoundingClientRect().left)"
    )
    assert dots == [True] * 3


def test_both_runs_stand_in_the_charts_and_the_timeline(opening: Opening) -> None:
    found = opening([MadeView(plain(200, 1)), MadeView(plain(200, 2))])
    label = found.page.locator("#charts [role=img]").first.get_attribute("aria-label")
    assert label is not None
    assert "A: median" in label
    assert "B: median" in label
    assert found.page.locator(".lanes").count() == 2
    assert found.page.locator("table.scores .score[data-side=b]").count() == 3


def test_unlike_runs_are_refused_by_name_and_shown_where_that_is_accepted(opening: Opening) -> None:
    views = [MadeView(list(BEFORE), conditions={"sampling.temperature": at}) for at in ("0.0", "0.7")]
    with pytest.raises(UnlikeError, match=r"sampling\.temperature"):
        opening(views)
    found = opening(views, ["sampling.temperature"])
    assert found.page.inner_text(".accepted") == (
        "Accepted differences: sampling.temperature 0.0 → 0.7 in 3 benchmarks"
    )

"""Everything in a report can be done from the keyboard, and typing is never taken for a command."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_view import MadeView, plain, row
from opened import Opened

pytestmark = pytest.mark.slow

FOCUSED = "document.activeElement.id"


@pytest.fixture
def opened(opening: Callable[..., Opened]) -> Opened:
    found: Opened = opening([MadeView([row(0, thinking="hm"), *plain(300)[1:]])])
    return found


def press(opened: Opened, *keys: str) -> None:
    for key in keys:
        opened.page.keyboard.press(key)


def test_j_and_k_go_through_the_samples_and_open_them(opened: Opened) -> None:
    press(opened, "j")
    assert opened.chosen() == "arithmetic/0"
    press(opened, "j", "j")
    assert opened.chosen() == "letters/2"
    press(opened, "k")
    opened.page.wait_for_selector("#sample h3:text-is('sorting/1')")
    for _ in range(60):
        press(opened, "j")
    assert opened.chosen() == "sorting/61"
    assert opened.page.locator("#rows [aria-selected=true]").is_visible()


def test_slash_searches_and_escape_leaves(opened: Opened) -> None:
    press(opened, "/")
    assert opened.page.evaluate(FOCUSED) == "text"
    opened.page.keyboard.type("sorting/1j?t")
    assert opened.page.input_value("#text") == "sorting/1j?t"
    assert not opened.page.locator("#help").is_visible()
    assert opened.page.locator("#rows [aria-selected=true]").count() == 0
    press(opened, "Escape")
    assert opened.page.evaluate(FOCUSED) == "list"


def test_arrows_home_and_end_move_in_the_list_and_tell_where_it_is(opened: Opened) -> None:
    opened.page.focus("#list")
    press(opened, "End")
    assert opened.chosen() == "letters/299"
    assert opened.page.get_attribute("#list", "aria-activedescendant") == "row-299"
    press(opened, "ArrowUp")
    assert opened.chosen() == "sorting/298"
    press(opened, "Home", "ArrowDown")
    assert opened.chosen() == "sorting/1"


def test_enter_reads_the_sample_and_escape_goes_back_and_closes(opened: Opened) -> None:
    press(opened, "j", "Enter")
    assert opened.page.evaluate(FOCUSED) == "sample"
    press(opened, "Escape")
    assert opened.page.evaluate(FOCUSED) == "list"
    press(opened, "Escape")
    assert not opened.page.locator("#sample").is_visible()


def test_t_unfolds_the_thinking_here_and_in_the_next_sample(opened: Opened) -> None:
    press(opened, "j")
    opened.page.wait_for_selector("#sample details.thinking")
    assert opened.page.locator("#sample details[open]").count() == 0
    press(opened, "t")
    assert opened.page.locator("#sample details[open]").count() == 1
    press(opened, "j")
    opened.page.wait_for_selector("#sample h3:text-is('sorting/1')")
    assert opened.page.locator("#sample details[open]").count() == 1


def test_a_question_mark_shows_the_keys(opened: Opened) -> None:
    press(opened, "?")
    assert "next, previous sample" in opened.page.inner_text("#help")
    press(opened, "j")
    assert opened.page.locator("#rows [aria-selected=true]").count() == 0
    press(opened, "Escape")
    assert not opened.page.locator("#help").is_visible()


def test_the_browsers_own_keys_are_left_alone(opened: Opened) -> None:
    press(opened, "Control+j")
    assert opened.page.locator("#rows [aria-selected=true]").count() == 0

"""A report opens by itself, and its list filters, sorts and opens samples, however many there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_view import MadeView, plain, row
from opened import Opened

from assay.view.view import Fact

pytestmark = pytest.mark.slow

MIXED = [
    row(0, answer="An answer with a Zebra in it", thinking="Let me think of a giraffe.", tokens=30),
    row(1, answer="Wrong", reward=0.0, tokens=10),
    row(2, answer="Half", reward=0.5, tokens=20),
    row(3, status="truncated", answer="It goes on and", reward=0.0, tokens=64),
    row(4, status="errored", error="ConnectionError: the server went away"),
    row(5, status="missing"),
    row(6, answer="", tokens=1),
]
Opening = Callable[..., Opened]


@pytest.fixture
def mixed(opening: Opening) -> Opened:
    facts = (
        Fact("signature", "not signed", "measured", sound=False),
        Fact("server", "made-server", "claimed"),
        Fact("egress", "cut", "measured"),
    )
    return opening([MadeView(list(MIXED), told=facts)])


def test_it_opens_without_a_complaint_and_says_how_many_there_are(mixed: Opened) -> None:
    assert mixed.shown() == "7 of 7"
    assert mixed.complaints == []
    assert mixed.page.evaluate("window.stopped") == []
    assert mixed.asked == [mixed.path.as_uri()]


def test_the_head_tells_the_verdict_and_what_weakens_it(mixed: Opened) -> None:
    assert "2 of 7 planned samples have no score" in mixed.page.inner_text(".verdict")
    assert mixed.texts(".doubtful li") == ["signature not signed measured"]
    assert mixed.texts(".facts:not(.doubtful) li") == ["server made-server claimed", "egress cut measured"]


def test_truncation_and_errors_are_as_large_as_the_score(mixed: Opened) -> None:
    size = "element => parseFloat(getComputedStyle(element).fontSize)"
    table = mixed.page.locator("table.scores tbody").first
    score = table.locator("td.big").first.evaluate(size)
    for name in ("truncated", "errored", "missing"):
        assert table.locator(f"td[data-count={name}]").evaluate(size) == score
    head = {
        name: mixed.page.locator(f".counts [data-count={name}] b")
        for name in ("scored", "truncated", "errored")
    }
    assert {name: found.inner_text() for name, found in head.items()} == {
        "scored": "4",
        "truncated": "1",
        "errored": "1",
    }
    assert len({found.evaluate(size) for found in head.values()}) == 1


def test_a_bar_and_its_interval_lie_where_the_score_is(opening: Opening) -> None:
    found = opening([MadeView(plain(60))])
    boxes = found.page.locator("table.scores .score").first.evaluate(
        "bar => [bar, ...bar.children].map(part => part.getBoundingClientRect())"
        ".map(box => [box.left, box.right])"
    )
    (left, right), bar, interval, base = boxes
    benchmark = MadeView(plain(60)).benchmarks()[0]
    assert benchmark.score is not None
    assert benchmark.bounds is not None

    def share(at: float) -> float:
        return (at - left) / (right - left)

    assert share(bar[1]) == pytest.approx(benchmark.score, abs=0.01)
    assert share(interval[0]) == pytest.approx(benchmark.bounds.low, abs=0.01)
    assert share(interval[1]) == pytest.approx(benchmark.bounds.high, abs=0.01)
    assert share(base[0]) == pytest.approx(0.25, abs=0.01)


def test_filters_by_status_reward_and_benchmark_hold_together(mixed: Opened) -> None:
    mixed.page.click("#statuses [data-status=errored]")
    assert mixed.keys() == ["sorting/4"]
    mixed.page.click("#statuses [data-status=missing]")
    assert mixed.keys() == ["sorting/4", "letters/5"]
    mixed.page.select_option("#benchmark", label="made/letters")
    assert mixed.keys() == ["letters/5"]
    mixed.page.click("#clear")
    mixed.until("document.getElementById('shown').textContent === '7 of 7'")
    mixed.page.select_option("#reward", "part")
    assert mixed.keys() == ["letters/2"]
    mixed.page.select_option("#reward", "none")
    assert mixed.keys() == ["sorting/4", "letters/5"]
    mixed.page.select_option("#reward", "full")
    mixed.page.click("#statuses [data-status=errored]")
    assert mixed.page.inner_text("#rows") == "No sample passes the filter."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("zebra", ["arithmetic/0"]),
        ("GIRAFFE", ["arithmetic/0"]),
        ("server went away", ["sorting/4"]),
        ("what is 3 plus", ["arithmetic/3"]),
        ("compared with 4", ["letters/2"]),
        ("letters/5", ["letters/5"]),
    ],
)
def test_text_is_found_in_answers_thinking_errors_questions_and_scorers(
    mixed: Opened, text: str, found: list[str]
) -> None:
    mixed.look_for(text)
    assert mixed.keys() == found


def test_text_is_found_in_pieces_that_nobody_opened(opening: Opening) -> None:
    rows = [
        *plain(400),
        row(400, answer="x" * 500 + " the needle"),
        *[row(number) for number in range(401, 500)],
    ]
    found = opening([MadeView(rows)])
    found.look_for("needle")
    assert found.keys() == ["sorting/400"]
    found.look_for("")
    assert found.shown() == "500 of 500"


def test_a_column_sorts_up_then_down_then_not(mixed: Opened) -> None:
    recorded = mixed.keys()
    mixed.column("Reward")
    assert mixed.keys()[:2] == ["sorting/4", "letters/5"]
    assert mixed.keys()[-1] == "arithmetic/6"
    assert mixed.page.locator("[aria-sort=ascending]").inner_text() == "Reward"
    mixed.column("Reward")
    assert mixed.keys()[:3] == ["arithmetic/0", "arithmetic/6", "letters/2"]
    mixed.column("Reward")
    assert mixed.keys() == recorded
    mixed.column("Status")
    assert mixed.keys()[0] == "sorting/4"


def test_a_long_list_has_only_rows_that_are_in_sight(opening: Opening) -> None:
    found = opening([MadeView(plain(3000))])
    assert found.page.locator("#rows [role=row]").count() < 80
    found.page.evaluate("document.getElementById('rows').scrollTop = 1e9")
    found.page.wait_for_selector("#rows [aria-rowindex='3000']")
    assert found.keys()[-1] == "letters/2999"
    assert found.page.locator("#rows [role=row]").count() < 80


def test_a_sample_shows_what_was_said_and_how_it_was_judged(mixed: Opened) -> None:
    mixed.page.click("text=arithmetic/0")
    mixed.page.wait_for_selector("#sample h3")
    said = mixed.sample()
    for part in (
        "What is 0 plus 0?",
        "An answer with a Zebra in it",
        "compared with 0",
        "accuracy",
        "generation 1.35 s",
    ):
        assert part in said
    assert "made/results.jsonl:1" in said
    assert "giraffe" not in said
    mixed.page.click("#sample summary")
    assert "Let me think of a giraffe." in mixed.sample()


def test_a_failed_and_an_empty_sample_say_so(mixed: Opened) -> None:
    mixed.page.click("text=sorting/4")
    mixed.page.wait_for_selector("#sample pre.error")
    assert mixed.page.inner_text("#sample pre.error") == "ConnectionError: the server went away"
    mixed.page.click("text=arithmetic/6")
    mixed.page.wait_for_selector("#sample h3:text-is('arithmetic/6')")
    assert "No visible text." in mixed.sample()


def test_a_row_without_a_record_still_opens(opening: Opening) -> None:
    sample, _ = row(0)
    found = opening([MadeView([(sample, None), row(1)])])
    found.page.click("text=arithmetic/0")
    found.page.wait_for_selector("#sample h3")
    assert "no record of what was said" in found.sample()
    assert found.complaints == []


def test_charts_follow_the_filter_and_say_in_words_what_they_show(mixed: Opened) -> None:
    label = "#charts [role=img]"
    assert mixed.page.locator(label).first.get_attribute("aria-label") == (
        "Tokens generated: median 20, 9 of 10 up to 64, most 64"
    )
    mixed.page.select_option("#reward", "part")
    mixed.until(f"document.querySelector('{label}').ariaLabel.includes('most 20')")
    assert mixed.page.locator("#charts canvas").count() == 3


def test_the_timeline_opens_the_rollout_under_the_pointer(mixed: Opened) -> None:
    lanes = mixed.page.locator(".lanes")
    assert lanes.get_attribute("aria-label") == "Timeline: 7 rollouts in 4.50 s, at most 3 at once"
    box = lanes.locator(".u-over").bounding_box()
    assert box is not None
    lanes.locator(".u-over").click(position={"x": box["width"] * 0.98, "y": 5})
    mixed.page.wait_for_selector("#sample h3")
    assert mixed.page.inner_text("#sample h3") == "arithmetic/6"


def test_no_times_and_no_tokens_are_told_and_not_drawn(opening: Opening) -> None:
    sample, _ = row(0, tokens=None)
    bare = sample.model_copy(update={"seconds": sample.seconds.model_copy(update={"total_s": None})})
    found = opening([MadeView([(bare, None)])])
    assert found.page.locator("#charts canvas").count() == 0
    assert "No record of this run tells when its rollouts began." in found.page.inner_text("#lanes")
    assert found.complaints == []

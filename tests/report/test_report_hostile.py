"""What a model or a record says is text: it starts nothing, asks nobody, and leaves its place nowhere."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from made_view import HOSTILE, MadeView, hostile, row
from opened import Opened

from assay.report.write import write_report
from assay.view.view import Fact


def view() -> MadeView:
    """A view that says hostile things wherever a run can say anything."""
    facts = tuple(Fact(text, text, "claimed", sound=bool(number % 2)) for number, text in enumerate(HOSTILE))
    text = " ".join(HOSTILE)
    return MadeView(hostile(), told=facts, name=text, description=text, model=text, server=text, status=text)


@pytest.mark.slow
def test_nothing_of_it_runs_or_asks_wherever_it_stands(opening: Callable[..., Opened]) -> None:
    found = opening([view(), view()])
    for _ in HOSTILE:
        found.page.keyboard.press("j")
        found.page.wait_for_timeout(50)
    for details in found.page.locator("#sample summary").all():
        details.click()
    for text in HOSTILE[:6]:
        found.look_for(text)
    assert found.page.evaluate("window.broken") is None
    assert found.asked == [found.path.as_uri()]
    assert found.complaints == []
    assert found.page.evaluate("window.stopped") == []
    assert (
        found.page.locator("main img, main svg, main iframe, main script, main form:not(.filters)").count()
        == 0
    )
    assert found.page.locator("main a:not(.top a)").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_it_is_shown_letter_for_letter(opening: Callable[..., Opened], number: int) -> None:
    found = opening([MadeView([row(0, answer=HOSTILE[number])])])
    found.page.keyboard.press("j")
    found.page.wait_for_selector("#sample .message[data-role=assistant] pre")
    shown = found.page.locator("#sample .message[data-role=assistant] pre").evaluate("pre => pre.textContent")
    assert shown == HOSTILE[number]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attempt", "stopped"),
    [
        (
            "let s = document.createElement('script'); s.append('broken = 1'); document.head.append(s)",
            None,
        ),
        ("fetch('https://a.invalid/').catch(() => {})", "connect-src"),
        ("const i = new Image(); i.src = 'https://a.invalid/x.png'", "img-src"),
        ("document.body.setAttribute('style', 'color: red')", "style-src-attr"),
        (
            "let f = document.createElement('iframe'); f.src = 'https://a.invalid'; document.body.append(f)",
            "frame-src",
        ),
        ("document.body.setAttribute('onclick', 'window.broken = 1'); document.body.click()", None),
        ("document.body.innerHTML = '<b>x</b>'", "require-trusted-types-for"),
    ],
)
def test_the_policy_stops_what_a_fault_of_ours_would_let_through(
    opening: Callable[..., Opened], attempt: str, stopped: str | None
) -> None:
    found = opening([MadeView([row(0)])])
    found.page.evaluate(f"() => {{ try {{ {attempt} }} catch (error) {{ window.refused = String(error) }} }}")
    found.until("window.stopped.length > 0 || window.refused")
    assert found.page.evaluate("window.broken") is None
    if stopped is not None:
        assert stopped in found.page.evaluate("window.stopped")
    assert [
        url for url in found.asked if not url.startswith(("file:", "about:"))
    ] == [] or stopped is not None


def test_the_policy_allows_exactly_the_scripts_and_the_style_of_the_file(tmp_path: Path) -> None:
    write_report([view()], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0])
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    for name, element in (("script-src", "script"), ("style-src", "style")):
        bodies = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]
        assert rules[name] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert "style=" not in text.partition("<body>")[2].partition("<script")[0]


def test_the_file_holds_a_hostile_text_only_escaped_or_packed(tmp_path: Path) -> None:
    write_report([view()], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    for hostile_text in HOSTILE[:5]:
        assert hostile_text not in text
    data = re.findall(r'<script type="application/gzip" id="[a-z0-9-]+">([^<]*)</script>', text)
    assert len(data) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9+/]+=*", letters) for letters in data)
    assert len(re.findall(r"</script", text)) == 4


def test_the_file_names_no_address(tmp_path: Path) -> None:
    write_report([MadeView([row(0)])], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)""", text)
    assert not re.search(r"@import|url\(", text)

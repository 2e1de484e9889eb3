"""A browser that opens reports made here, and tells what they tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from made_view import MadeView
from opened import Opened
from playwright.sync_api import Browser, sync_playwright

import chromium
from assay.report.write import write_report

READY = ":root[data-ready]"
# What the page's policy stopped is told by an event; the test's own listener runs beside the policy.
LISTENS = """
window.stopped = [];
document.addEventListener("securitypolicyviolation", (event) => window.stopped.push(event.violatedDirective));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. Of one module: while it lives, no other event loop can run in this process."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=str(chromium.program()), args=list(chromium.ARGUMENTS)
        )
        yield found
        found.close()


@pytest.fixture
def opening(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Writes a report and opens it; what it asks of any network is refused and remembered."""
    contexts = []

    def opened(views: Sequence[MadeView], allow: Sequence[str] = (), **options: Any) -> Opened:
        path = tmp_path / f"report-{len(contexts)}.html"
        write_report(views, path, allow)
        context = browser.new_context(**options)
        contexts.append(context)
        context.add_init_script(LISTENS)
        page = context.new_page()
        found = Opened(page, path)
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("console", lambda message: found.complaints.append(message.text))
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        context.route(lambda url: not url.startswith("file:"), lambda route: route.abort())
        page.goto(path.as_uri())
        page.wait_for_selector(READY, state="attached")
        return found

    yield opened
    for context in contexts:
        context.close()

"""A report in the browser, and what a test asks of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Page

from toy_checkout import until


@dataclass
class Opened:
    """A report in the browser.

    Attributes:
        page: The page.
        path: Its file.
        asked: Every address that it asked for, itself included.
        complaints: What it wrote to the console, and errors that nobody caught.
    """

    page: Page
    path: Path
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def shown(self) -> str:
        return self.page.locator("#shown").inner_text()

    def keys(self) -> list[str]:
        """The tasks of the rows in sight, from above."""
        rows = self.page.locator("#rows [role=row]").all()
        rows.sort(key=lambda row: int(row.get_attribute("aria-rowindex") or 0))
        return [row.locator(".key").first.inner_text() for row in rows]

    def look_for(self, text: str) -> None:
        """Search, and wait until everything was looked through."""
        self.page.fill("#text", text)
        shown = "document.getElementById('shown')"
        self.until(f"{shown}.dataset.text === {json.dumps(text.lower())}")
        self.until(f"!{shown}.textContent.includes('searching')")

    def until(self, condition: str) -> None:
        """Wait for a condition of the page's; the page's policy forbids the browser's own way of waiting."""
        until(lambda: self.page.evaluate(f"() => Boolean({condition})"))

    def column(self, name: str) -> None:
        self.page.click(f"#columns button:text-is('{name}')")

    def chosen(self) -> str:
        return self.page.locator("#rows [aria-selected=true] .key").first.inner_text()

    def sample(self) -> str:
        return self.page.locator("#sample").inner_text()

"""`tests/.venv/bin/python tests/picture.py REPORT.html`: the README's picture of a report, `docs/report.png`.

It is taken of a report of real runs that `assay report` wrote, in Debian's Chromium, with one sample open. A
picture is no test: nothing compares it with another.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

import chromium
from assay.console import complain
from assay.errors import AssayError
from assay.paths import ROOT

PICTURE = ROOT / "docs" / "report.png"
LIMIT_BYTES = 300_000
SIZE = (1280, 1180)


def take(report: Path) -> int:
    """Take the picture of the page's head; returns its bytes."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(chromium.program()), args=list(chromium.ARGUMENTS)
        )
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.wait_for_selector(":root[data-ready]", state="attached")
        page.screenshot(path=PICTURE)
        browser.close()
    return PICTURE.stat().st_size


def main() -> int:
    """Take it and say how large it is; exit 1 where it is larger than a README should load."""
    try:
        size = take(Path(sys.argv[1]))
    except AssayError as error:
        complain(error)
        return error.exit_code
    print(f"{PICTURE}: {size:,} bytes")
    return int(size > LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main())

"""`bench/RESULTS.md`: one generated section for each command, replaced by that command's `--write` alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from assay.files import write_atomic

PATH = Path(__file__).with_name("RESULTS.md")
SECTIONS = (
    "peers",
    "serving",
    "speculation",
    "speculation-model",
    "memory",
    "fidelity",
    "depth",
    "needle",
    "coordinator",
    "gateway",
)
_HEAD = """# Results

Generated: each section by the command it names, with `--write`. Speeds are of one run on one machine;
ratios and shares carry over, tokens a second do not.
"""


def write_section(name: str, text: str, path: Path = PATH) -> None:
    """Put a section in its place and leave the others as they are."""
    present = path.read_text("utf-8") if path.exists() else ""
    sections = {
        section: found.group(1)
        for section in SECTIONS
        if (found := re.search(rf"<!-- {section} -->\n(.*?)<!-- end of {section} -->\n", present, re.DOTALL))
    }
    sections[name] = text.rstrip("\n") + "\n"
    parts = [
        f"<!-- {section} -->\n{sections[section]}<!-- end of {section} -->\n"
        for section in SECTIONS
        if section in sections
    ]
    write_atomic(path, "\n".join([_HEAD, *parts]).encode())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its first column to the left and the others to the right."""
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(["---", *["---:"] * (len(head) - 1)]) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"

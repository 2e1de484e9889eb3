"""The page: a template, our own styles and scripts, the chart library, and the data, in one file.

Its policy allows exactly the scripts and the style sheet that are in it, by their digests, and no connection,
image, font, frame or form. Data are no scripts: they stand in elements that a browser does not run, in
letters that no markup has. What a model wrote reaches the page only there, and the page makes text of it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from assay.report.library import pinned

PAGE = Path(__file__).with_name("page")
STYLES = ("base", "head", "tables", "charts", "list", "sample", "print")
# In the order in which they need one another; all are one scope.
SCRIPTS = (
    *("dom", "store", "theme", "columns", "filters", "histogram", "timeline", "list", "sample", "keys"),
    "main",
)
DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Data:
    """One element of data: its id, and the letters in it, which are made when they are written."""

    id: str
    text: Iterable[str]


def render(context: Mapping[str, Any], rules: Iterable[str], data: Iterable[Data]) -> Iterator[str]:
    """The page in pieces.

    Args:
        context: What the template shows.
        rules: Rules of the style sheet that depend on the runs.
        data: What the scripts read.

    Raises:
        PrerequisiteError: the chart library is not here.
        VerificationError: it is not the pinned one.
    """
    library = pinned()
    style = "\n".join([library.text(".css"), *(own(f"{name}.css") for name in STYLES), *rules])
    ours = "\n".join(own(f"{name}.js") for name in SCRIPTS)
    scripts = [library.text(".js"), f'(() => {{\n"use strict";\n{ours}}})();\n']
    environment = Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(score=score, signed=signed, count=count, share=share, moment=moment, p=p_value)
    template = environment.get_template("report.html.j2")
    yield from template.generate(
        **context,
        policy=policy(style, scripts),
        style=trusted(style),
        scripts=[trusted(script) for script in scripts],
        data=data,
        library=library,
    )


def own(name: str) -> str:
    """One of the page's own files."""
    return (PAGE / name).read_text("utf-8")


def trusted(text: str) -> str:
    """Our own bytes, which the template takes as they are; ValueError if they could end their element."""
    if "</script" in text.lower() or "</style" in text.lower() or "<!--" in text:
        raise ValueError("a script or style would end its own element")
    return text


def policy(style: str, scripts: Iterable[str]) -> str:
    """The content security policy: these scripts, this style sheet, and nothing else."""
    allowed = " ".join(digest(script) for script in scripts)
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {allowed}",
            f"style-src {digest(style)}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


def digest(text: str) -> str:
    """A text's digest as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def score(value: float | None) -> str:
    """A score to three decimals; a dash where there is none."""
    return DASH if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    """A difference to three decimals, with its sign."""
    return DASH if value is None else f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


def count(value: int | None) -> str:
    """A count; a dash where nobody tells."""
    return DASH if value is None else f"{value:,}"


def share(value: int | None, of: int | None) -> str:
    """A count's share of another, in percent; nothing where there is none."""
    return f"{100 * value / of:.1f} %" if value and of else ""


def p_value(value: float) -> str:
    """A probability to two digits."""
    return "< 0.0001" if value < 0.0001 else f"{value:.2g}"


def moment(text: str | None) -> str:
    """A time as people read it, in UTC; the text itself where it is no time."""
    if text is None:
        return DASH
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text

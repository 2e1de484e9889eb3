"""Which pins are in force: production's, or another set's, chosen by `--pins DIR` or `ASSAY_PINS=DIR`.

Production is the checkout itself. Another set is a directory in it that holds `pins.toml` (its name) and
those of the pin files that it replaces; what it does not hold is production's. What is made from another set
lies apart, below `.assay/pins/<name>/`, so that nothing of it can ever be used under the production pins. A
run records the set's name, and only production's counts as pinned.

It needs nothing but the standard library, since a set-up asks it before any environment exists.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assay.errors import ConfigurationError
from assay.paths import CONFIGS, EVAL, EVALUATORS, OWNED, ROOT, RUNTIME, relative

VARIABLE = "ASSAY_PINS"
OPTION = "--pins"
PRODUCTION = "production"
# Commands that go by the pin set in force, where they do not name one themselves.
COMMAND = re.compile(rf"(eval/scripts/(?:data|run|sandbox|setup))\b(?! {OPTION})")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
EXAMPLE = f"name another: {OPTION} tests/pins; or none: unset {VARIABLE}"


@dataclass(frozen=True)
class PinSet:
    """One set of pins.

    Attributes:
        name: "production", or what `pins.toml` says; it is recorded with every run.
        directory: Where the set's own files are; None for production.
    """

    name: str
    directory: Path | None = None

    def file(self, name: str) -> Path:
        """A lock of the root, e.g. "datasets.lock": the set's own, else production's."""
        return self._own(name) or ROOT / name

    def runtime_file(self, name: str) -> Path:
        """A file of `runtime/`, e.g. "images.lock": the set's own, else production's."""
        return self._own(name) or RUNTIME / name

    def evaluator(self, name: str) -> Path:
        """An evaluator's folder: the set's own, else production's."""
        own = self._own(f"evaluators/{name}/evaluator.toml")
        return own.parent if own else EVALUATORS / name

    def evaluators(self) -> list[str]:
        """The names of every evaluator there is under this set, sorted."""
        folders = [EVALUATORS, *([self.directory / "evaluators"] if self.directory else [])]
        return sorted({path.parent.name for folder in folders for path in folder.glob("*/evaluator.toml")})

    @property
    def configs(self) -> Path:
        """Where profiles and their native files are: the set's `configs/` as a whole, else `eval/configs`."""
        own = self.directory / "configs" if self.directory else None
        return own if own is not None and own.is_dir() else CONFIGS

    @property
    def sources(self) -> Path:
        """Where pinned sources are checked out."""
        return self._made("sources") or EVAL / ".sources"

    @property
    def data(self) -> Path:
        """Where pinned task data lies."""
        return self._made("data") or EVAL / ".data"

    def environment(self, evaluator: str) -> Path:
        """Where an evaluator's environment is made.

        Production's own serves another set too where that set changes nothing of it: neither the evaluator's
        folder nor the sources that are installed into it.
        """
        home = self.evaluator(evaluator)
        if self.directory is None or (home == EVALUATORS / evaluator and not has_sources(home)):
            return EVALUATORS / evaluator / ".venv"
        return OWNED / "pins" / self.name / "environments" / evaluator

    def _own(self, name: str) -> Path | None:
        """The set's own file of that name; None when it has none, and for production."""
        path = self.directory / name if self.directory else None
        return path if path is not None and path.is_file() else None

    def _made(self, name: str) -> Path | None:
        return OWNED / "pins" / self.name / name if self.directory else None


def has_sources(home: Path) -> bool:
    """Whether the evaluator described in the folder takes packages from pinned sources."""
    try:
        described = tomllib.loads((home / "evaluator.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(described.get("sources"))


def choose(words: Sequence[str]) -> list[str]:
    """Take `--pins DIR` out of a command's words and put it in force for this process and its children.

    Returns:
        The other words.

    Raises:
        ConfigurationError: the option has no directory behind it, or the directory is no pin set.
    """
    left: list[str] = []
    pending = iter(words)
    for word in pending:
        option, equals, value = word.partition("=")
        if option != OPTION:
            left.append(word)
            continue
        directory = value if equals else next(pending, "")
        if not directory:
            raise ConfigurationError(f"{OPTION} names no directory", "", EXAMPLE)
        os.environ[VARIABLE] = str(Path(directory).absolute())
    if os.environ.get(VARIABLE):
        # Absolute, since a child may be started elsewhere.
        os.environ[VARIABLE] = str(Path(os.environ[VARIABLE]).absolute())
        current()
    return left


def current() -> PinSet:
    """The set in force.

    Raises:
        ConfigurationError: `ASSAY_PINS` names no pin set of this checkout.
    """
    chosen = os.environ.get(VARIABLE)
    return read(Path(chosen).absolute()) if chosen else PinSet(PRODUCTION)


def typed(text: str) -> str:
    """The text with its commands as they must be typed under the pin set in force."""
    directory = _in_force()
    if directory is None:
        return text
    chosen = f"{OPTION} {shlex.quote(relative(directory))}"
    return COMMAND.sub(lambda found: f"{found[1]} {chosen}", text)


def _in_force() -> Path | None:
    try:
        return current().directory
    except ConfigurationError:
        return None  # What was chosen is no pin set: that is the error to tell.


@cache
def read(directory: Path) -> PinSet:
    """The pin set in a directory of this checkout.

    Raises:
        ConfigurationError: it lies elsewhere, holds no usable `pins.toml`, or calls itself production.
    """
    resolved = directory.resolve()
    if not resolved.is_relative_to(ROOT) or resolved == ROOT:
        raise ConfigurationError(
            f"{directory} is no pin set of this checkout",
            f"a set's files are recorded with each run under their place below {ROOT}",
            EXAMPLE,
        )
    path = resolved / "pins.toml"
    try:
        name = tomllib.loads(path.read_text("utf-8"))["name"]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigurationError(f"{relative(path)} does not name a pin set", repr(error), EXAMPLE) from error
    if not isinstance(name, str) or not NAME.fullmatch(name) or name == PRODUCTION:
        raise ConfigurationError(
            f"{relative(path)} names its set {name!r}",
            f"a name is lower-case letters, digits and hyphens, and only the checkout itself is {PRODUCTION}",
            f'write name = "test" into {relative(path)}',
        )
    return PinSet(name, resolved)

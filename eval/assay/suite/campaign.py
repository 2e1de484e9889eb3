"""A campaign: suites one after the other, each asked of a server that is started for it and ended after it.

A campaign is a TOML file (`eval/configs/campaigns/<name>.toml`, or any other). Its `[server]` table is what
the steps share; a step's own `server` table is laid over it, key by key. A word `${NAME}` of a server's
command is that variable of who types the command, so that the place of a model stands in no tracked file;
`${STEP}` is the step's folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator

from assay import pinset
from assay.errors import ConfigurationError
from assay.names import nearest
from assay.paths import relative
from assay.profile import SEGMENT, describe, merge
from assay.suite.document import read_document
from assay.suite.secret import secrets_in, secrets_in_text
from assay.suite.target import Table

FOLDER = "campaigns"
STEP = "STEP"
VARIABLE = r"^[A-Z_][A-Z0-9_]{0,127}$"
PLACE = re.compile(r"\$\{([A-Za-z0-9_]*)\}")
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH")
SECRET_OPTION = re.compile(r"--?[a-z-]*(api-?key|token|secret|password)(=.*)?", re.IGNORECASE)


class Server(Table):
    """A server to start.

    Attributes:
        command: Program and arguments; empty where `serve` is given.
        serve: Name in `models.lock` of a model that our own server serves; None for a command.
        arguments: More arguments, after those of the command: what steps differ in.
        environment: Variables that it is given, by name. Never a secret.
        variables: Names of variables that are handed on where they are set. Of the others it gets only those
            that every program needs (`assay.campaign.server.NEEDED`).
        secrets: Names of variables that must be set and are handed on; their values are written nowhere.
        health: Address that answers with a status of 2xx as soon as it can be asked.
        wait_seconds: How long that may take.
        stop_seconds: How long it has to end when it is told to, before it is killed.
    """

    command: tuple[str, ...] = ()
    serve: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    variables: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    health: str
    wait_seconds: float = Field(default=600.0, gt=0)
    stop_seconds: float = Field(default=30.0, gt=0)

    @field_validator("health")
    @classmethod
    def _an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("it is not an http or https address")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("it holds a user, a query or a fragment, where secrets hide")
        return value

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if bool(self.command) == (self.serve is not None):
            raise ValueError("give either command, or serve (a name in models.lock)")
        for name in [*self.environment, *self.variables, *self.secrets, *self.places]:
            if not re.match(VARIABLE, name):
                raise ValueError(f"{name!r} is no name of a variable")
        told = [*self.environment, *self.places, *self.variables]
        for name in told:
            if SECRET.search(name):
                raise ValueError(f"{name} may be a secret: name it in secrets, and it is handed on unseen")
        for word in [*self.command, *self.arguments]:
            if SECRET_OPTION.fullmatch(word) and not word.lower().endswith("-file"):
                raise ValueError(
                    f"{word.partition('=')[0]} would put a secret on the command line, where every process "
                    "of the machine can read it: hand it on in a variable (secrets), or in a private file"
                )
        return self

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the variables that stand in the command as `${NAME}`, but for the step's folder."""
        words = [*self.command, *self.arguments]
        names = dict.fromkeys(name for word in words for name in PLACE.findall(word))
        return tuple(name for name in names if name != STEP)

    def words(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Command and arguments, each `${NAME}` replaced by its value where there is one."""
        return tuple(
            PLACE.sub(lambda found: values.get(found[1], found[0]), word)
            for word in (*self.command, *self.arguments)
        )


class Step(Table):
    """One server and one suite.

    Attributes:
        name: One path segment; its folder in the campaign's.
        suite: What is asked, as `assay run --suite` takes it: FILE, a name, or either with `:LIST`.
        server: The server; None where one is there already.
    """

    name: str = Field(pattern=SEGMENT)
    suite: str = Field(min_length=1)
    server: Server | None = None


class Campaign(Table):
    """A whole campaign.

    Attributes:
        name: One path segment: the file's name.
        description: What it is, in one sentence.
        step: Its steps, in order.
    """

    name: str = Field(pattern=SEGMENT)
    description: str
    step: tuple[Step, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        names = [step.name for step in self.step]
        if len(set(names)) != len(names):
            raise ValueError(
                f"two steps are called {next(name for name in names if names.count(name) > 1)!r}"
            )
        return self

    def steps(self, name: str | None) -> tuple[Step, ...]:
        """All steps, or the one of that name; ConfigurationError when there is none."""
        found = tuple(step for step in self.step if name in (None, step.name))
        if not found:
            raise ConfigurationError(
                f'campaign "{self.name}" has no step "{name}"',
                nearest(str(name), (step.name for step in self.step)),
                f"eval/scripts/campaign {self.name} [STEP]",
            )
        return found


def find_campaign(given: str) -> Campaign:
    """Read a campaign by its file, or by its name in `eval/configs/campaigns`.

    Raises:
        ConfigurationError: there is none, or it is not well-formed.
    """
    path = Path(given)
    if path.suffix != ".toml":
        folder = pinset.current().configs / FOLDER
        path = folder / f"{given}.toml"
        if not path.is_file():
            known = (found.stem for found in folder.glob("*.toml"))
            raise ConfigurationError(
                f'there is no campaign "{given}"',
                nearest(given, known),
                "eval/scripts/campaign NAME, or the path of a file that ends in .toml",
            )
    document = read_document(path)
    found = list(secrets_in(document.value, os.environ)) or list(secrets_in_text(document.text, os.environ))
    if found:
        raise ConfigurationError(f"the campaign {relative(path)} holds a secret", "; ".join(found), ADVICE)
    table = dict(document.value)
    shared = table.pop("server", {})
    steps = table.get("step")
    if isinstance(shared, dict) and isinstance(steps, list):
        table["step"] = [_placed(path, _laid_over(shared, step)) for step in steps]
    try:
        return Campaign.model_validate({"name": path.stem, **table})
    except (ValidationError, TypeError) as error:
        raise ConfigurationError(
            f"{relative(path)} is no campaign",
            describe(error, Campaign, Step, Server),
            f"edit {relative(path)}",
        ) from error


def _laid_over(shared: Mapping[str, object], step: object) -> object:
    """A step as the file gives it, with what the steps share below its own server."""
    if not isinstance(step, dict):
        return step
    own = step.get("server", {})
    if not isinstance(own, dict) or not (shared or own):
        return step
    return {**step, "server": merge(shared, own)}


def _placed(path: Path, step: object) -> object:
    """A step whose suite, where it is a file, is told from everywhere: the campaign's folder is meant."""
    suite = step.get("suite") if isinstance(step, dict) else None
    if (
        not isinstance(step, dict)
        or not isinstance(suite, str)
        or not suite.partition(":")[0].endswith(".toml")
    ):
        return step
    return {**step, "suite": str(path.resolve().parent / suite)}


ADVICE = 'hand it on in a variable, by its name: secrets = ["NAME"]'

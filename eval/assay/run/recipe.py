"""How an entry would be resumed by the evaluator's own command, as it would have to be typed.

Assay resumes no run of a profile: it is a value. Upstream's command can, and whoever wants that needs what
the run had: the working directory with its link to the data, the offline variables, the variable of the key,
and the resolved configuration, which the command compares with its own. All of it is recorded in
`provenance/launch/`; the private folders are made anew, since a run removes its own. What comes of it is not
this run any more: the command rewrites the native records in their place.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from assay import pinset
from assay.errors import VerificationError
from assay.files import read_json
from assay.paths import ROOT
from assay.plan import EntryPlan, OwnServer, Part, Plan
from assay.record import dialects

WARNING = (
    "a resumed run is not this run: the native command rewrites its records, and audit then refuses it; "
    "keep a copy first"
)
FOLDERS = ("HOME", "XDG_CACHE_HOME", "TMPDIR", "HF_HOME", "HF_DATASETS_CACHE")
PREPARE = (
    "import pathlib, sys; from assay import sandbox; "
    "sandbox.prepare_host(pathlib.Path(sys.argv[1]), sys.argv[2])"
)


VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"


class Launch(BaseModel):
    """What was recorded of an invocation's launch (`command.json`), and may be a stranger's.

    Attributes:
        command: The native command.
        environment: Its variables, but for the key.
        key_variable: The variable that held the key.
        working_directory: Where it ran.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    command: list[str] = Field(min_length=1)
    environment: dict[Annotated[str, Field(pattern=VARIABLE)], str]
    key_variable: str = Field(pattern=VARIABLE)
    working_directory: str = Field(pattern="^/")


class Link(BaseModel):
    """The link in the working directory (`route.json`): a relative name, and what it leads to."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][\w-]*(/[A-Za-z0-9][\w.-]*)+$")
    target: str = Field(pattern="^/")


@dataclass(frozen=True)
class Recipe:
    """How one native invocation would be resumed.

    Attributes:
        folder: Where it wrote, below the run directory.
        owed: Rollouts that the command would ask again.
        notes: What must be so before, in words.
        lines: Lines for bash; empty where the evaluator was never started.
    """

    folder: str
    owed: int
    notes: tuple[str, ...]
    lines: tuple[str, ...]


def recipes(run: Path, plan: Plan, entry: EntryPlan) -> list[Recipe]:
    """The recipe of each invocation of an entry that rollouts are owed of; of the first where none is.

    Raises:
        VerificationError: a native record, or what was recorded of the launch, cannot be read.
    """
    found = [_recipe(run, plan, entry, part) for part in entry.parts]
    return [recipe for recipe in found if recipe.owed] or found[:1]


def _recipe(run: Path, plan: Plan, entry: EntryPlan, part: Part) -> Recipe:
    reader = dialects.of(plan.dialect)
    rows = list(reader.rows(run / part.folder))
    # Verifiers 0.1 keeps rows that failed and asks only for those that it lacks.
    kept = len(rows) if plan.dialect == "vf-eval-v0" else sum(row.ok for row in rows)
    owed = max(entry.tasks * part.rollouts - kept, 0)
    path = run / "provenance" / "launch" / part.folder / "command.json"
    if not path.exists():
        return Recipe(part.folder, owed, ("the evaluator was never started for it",), ())
    failed = sum(not row.ok for row in rows)
    try:
        launch = Launch.model_validate(_object(path))
        found = _object(path.with_name("route.json"))["link"]
        link = None if found is None else Link.model_validate(found)
        notes, lines = _notes(run, plan, part, launch, failed), _lines(run, plan, part, launch, link)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerificationError(f"{path} cannot be read", f"{type(error).__name__}: {error}") from error
    return Recipe(part.folder, owed, tuple(notes), tuple(lines))


def _lines(run: Path, plan: Plan, part: Part, launch: Launch, link: Link | None) -> list[str]:
    variables, key = launch.environment, launch.key_variable
    if key in variables:
        raise ValueError(f"{key} stands among the variables that are told")
    directory = _quoted(launch.working_directory)
    private = dict.fromkeys(variables[name] for name in FOLDERS if name in variables)
    lines = [f"mkdir -p -m 700 {_quoted(*private)}", f"mkdir -p {directory}"]
    if plan.runtime == "subprocess":
        lines.append(_prepared(plan, variables["HOME"]))
    lines.append(f"cd {directory}")
    if link is not None:
        lines.append(f"mkdir -p {_quoted(str(Path(link.name).parent))}")
        lines.append(f"ln -sfn {_quoted(link.target, link.name)}")
    before, command = _command(run, plan, part, launch)
    # As a run launches it: nothing of the caller's environment but the key, which no argument ever holds.
    cleared = f'for name in $(compgen -e); do [ "$name" = {key} ] || unset "$name"; done'
    given = [f"export {name}={_quoted(value)}" for name, value in sorted(variables.items())]
    given.append(f'export {key}="${{{key}:-none}}"')
    lines += [*before, "(", *(f"  {line}" for line in (cleared, *given, f"exec {command}")), ")"]
    # What is typed must be what was read.
    if not all(line.isprintable() for line in lines):
        raise ValueError("it holds what cannot be seen")
    return lines


def _command(run: Path, plan: Plan, part: Part, launch: Launch) -> tuple[list[str], str]:
    """Lines that go before, and the command."""
    program, *rest = launch.command
    options = [word for word in rest if word.startswith("--")]
    if plan.dialect != "vf-eval-v0":
        resolved = str(_recorded(run, part) / "configs" / "resolved" / "eval.json")
        return [], _quoted(program, "@", resolved, "--resume", *options)
    # There `--resume` is not heard beside a file; the file itself must name the folder of its record.
    record = dialects.of(plan.dialect).record(run / part.folder).parent
    given = run / "provenance" / "launch" / part.folder / "launch.toml"
    resumed = f"{launch.working_directory}/resume.toml"
    line = f"resume_path = {json.dumps(str(record.resolve()), ensure_ascii=False)}"
    copy = f"{{ cat {_quoted(str(given.resolve()))}; echo {_quoted(line)}; }} > {_quoted(resumed)}"
    return [copy], _quoted(program, resumed, *options)


def _notes(run: Path, plan: Plan, part: Part, launch: Launch, failed: int) -> list[str]:
    notes = [f"{launch.key_variable} must hold the server's key, where it wants one"]
    over = _object(run / "provenance" / "launch" / part.folder / "overrides.json")
    if isinstance(plan.server, OwnServer):
        address = str((over.get("client") or {}).get("base_url"))
        port = address.removesuffix("/v1").rpartition(":")[2]
        notes.append(
            f"the run's own server has ended; the requests go to {address}: "
            f"assay serve {plan.server.model} --slots {plan.server.slots} --port {port}"
        )
    recorded = _recorded(run, part)
    if recorded != (run / part.folder).resolve() and plan.dialect != "vf-eval-v0":
        notes.append(f"the run lay elsewhere: the command resumes {recorded}")
    if plan.dialect == "vf-eval-v0" and failed:
        notes.append(f"this version asks nothing again that failed: {failed} row(s) stay as they are")
    return notes


def _recorded(run: Path, part: Part) -> Path:
    """Where the invocation wrote, as its own configuration says."""
    over = _object(run / "provenance" / "launch" / part.folder / "overrides.json")
    return Path(str(over["output_dir"])) / part.folder


def _prepared(plan: Plan, home: str) -> str:
    """The host runtime's programs, put into the new home as the run put them into its own."""
    current = pinset.current()
    chosen = {} if current.directory is None else {pinset.VARIABLE: str(current.directory)}
    variables = {"PYTHONPATH": str(ROOT / "eval"), **chosen}
    given = " ".join(f"{name}={_quoted(value)}" for name, value in variables.items())
    python = _quoted(str(ROOT / ".venv" / "bin" / "python"))
    return f"env {given} {python} -c {_quoted(PREPARE, home, plan.evaluator)}"


def _object(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise VerificationError(f"{path} cannot be read", str(error)) from error
    if not isinstance(value, dict):
        raise VerificationError(f"{path} is not a JSON object")
    return value


def _quoted(*words: str) -> str:
    return " ".join(shlex.quote(word) for word in words)

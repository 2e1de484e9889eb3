"""What a job may say to Inspect AI: a local file and how it is scored, or one of inspect-evals' tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from assay.backends import places
from assay.errors import ConfigurationError
from assay.suite.job import Job
from assay.suite.target import Table

LOCAL = "json_dataset"
PUBLISHED = "inspect_evals/"
Option = str | int | float | bool | list[str]
Scorer = Literal["answer", "choice", "exact", "f1", "includes", "match", "pattern"]
# Without these the scorer cannot be made.
NEEDED: Mapping[str, str] = {"answer": "pattern", "pattern": "pattern"}
# These read an answer out of the text, and can fail to.
READING = frozenset({"answer", "choice", "pattern"})


class Arguments(Table):
    """The job's `backend_args`.

    Attributes:
        file: Of `json_dataset`: a JSON, JSONL or CSV file (`assay.backends.places`).
        input: Column of the question.
        target: Column of the right answer.
        id: Column of the task's key; None numbers them from 1.
        choices: Column of a list of options; the question is then asked with Inspect's `multiple_choice`.
        metadata: More columns to keep.
        family: The column, one of `metadata`, that says which family a task belongs to.
        scorer: One of Inspect's own.
        scorer_args: Its options.
        system: A system message before each question.
        template: A prompt template of Inspect's, around each question.
        task_args: Of an inspect-evals task: its own parameters.
        hub: The local copy of each hub data set that the task reads, by the hub's name of it.
        files: What the task would download, by its path in inspect-evals' cache.
        message_limit: Most messages of a sample.
        token_limit: Most tokens of a sample.
        time_limit: Most seconds of a sample.
        primary: Name of the score that counts; None for the scorer's own.
    """

    file: str | None = Field(default=None, pattern=places.PATTERN)
    input: str = "input"
    target: str = "target"
    id: str | None = None
    choices: str | None = None
    metadata: tuple[str, ...] = ()
    family: str | None = None
    scorer: Scorer | None = None
    scorer_args: Mapping[str, Option] = {}
    system: str | None = None
    template: str | None = None
    task_args: Mapping[str, Option] = {}
    hub: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    message_limit: int | None = Field(default=None, gt=0)
    token_limit: int | None = Field(default=None, gt=0)
    time_limit: int | None = Field(default=None, gt=0)
    primary: str | None = None

    @property
    def places(self) -> tuple[str, ...]:
        """Everything that the job reads."""
        file = () if self.file is None else (self.file,)
        return (*file, *self.hub.values(), *self.files.values())

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a local file."""
        return {
            "input": self.input,
            "target": self.target,
            "id": self.id,
            "choices": self.choices,
            "metadata": list(self.metadata),
        }

    @property
    def limits(self) -> dict[str, int]:
        """Inspect's own limits of a sample, those that are set."""
        given = {name: getattr(self, name) for name in ("message_limit", "token_limit", "time_limit")}
        return {name: value for name, value in given.items() if value is not None}


OF_FILES = ("file", "id", "choices", "metadata", "family", "scorer", "scorer_args", "system", "template")
OF_TASKS = ("task_args", "hub", "files")


def check(job: Job, arguments: Arguments) -> None:
    """Refuse arguments that contradict the job or each other; ConfigurationError says which."""

    def refuse(what: str, why: str, next: str) -> ConfigurationError:
        return ConfigurationError(f"job {job.id}: {what}", why, next)

    local = job.dataset == LOCAL
    if not local and not job.dataset.startswith(PUBLISHED):
        raise refuse(
            f"Inspect AI has no task {job.dataset!r}",
            f'a task is "{LOCAL}" with a file, or "{PUBLISHED}<name>"',
            "mend dataset of that job",
        )
    default = Arguments()
    strange = OF_TASKS if local else OF_FILES
    given = [name for name in strange if getattr(arguments, name) != getattr(default, name)]
    if given:
        kind = f'"{PUBLISHED}<name>"' if local else f'"{LOCAL}"'
        raise refuse(f"{', '.join(given)} belongs to the dataset {kind}", "", "leave it out")
    if not local:
        _check_cache_paths(job, arguments)
        return
    if arguments.file is None or arguments.scorer is None:
        missing = "file" if arguments.file is None else "scorer"
        raise refuse(f"backend_args.{missing} is missing", "a local task is a file and a scorer", "add it")
    if (arguments.scorer == "choice") != (arguments.choices is not None):
        raise refuse(
            'the scorer "choice" and a column of choices belong together',
            f"scorer is {arguments.scorer!r}, choices is {arguments.choices!r}",
            "give both or neither",
        )
    needed = NEEDED.get(arguments.scorer)
    if needed is not None and needed not in arguments.scorer_args:
        raise refuse(
            f"the scorer {arguments.scorer!r} needs scorer_args.{needed}",
            "Inspect's scorer has no default for it",
            "add it",
        )
    if arguments.family is not None and arguments.family not in arguments.metadata:
        raise refuse(f"family {arguments.family!r} is not among metadata", "", "add the column to metadata")


def _check_cache_paths(job: Job, arguments: Arguments) -> None:
    for path in arguments.files:
        if path.startswith("/") or ".." in path.split("/"):
            raise ConfigurationError(
                f"job {job.id}: backend_args.files names {path!r}",
                "it is a path inside inspect-evals' cache",
                "write it relative to that",
            )

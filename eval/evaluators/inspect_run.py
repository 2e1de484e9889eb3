"""One Inspect AI task, driven by a job file: `python -P inspect_run.py JOB.json`.

It runs in the evaluator's own environment and knows nothing of Assay. What is to be asked is written down
before anything is asked (`planned.jsonl`); each sample that has ended is appended to `samples.jsonl` in
Inspect's own form, without the transcript, which stays in Inspect's log; how the evaluation ended is written
last (`end.json`), from the log, since the exit code of the command is 0 whatever happened. Inspect's own
retries are off: the gateway in front of the model has them. Nothing but that gateway can be reached.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, cast
from urllib.parse import urlsplit

# What the tasks themselves would fetch: nothing. Everything they read is given in the job.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", INSPECT_EVAL_CTL_SERVER="false")

import inspect_ai
from inspect_ai import Epochs, Task
from inspect_ai.dataset import Dataset, FieldSpec, csv_dataset, json_dataset
from inspect_ai.hooks import Hooks, SampleEnd, hooks
from inspect_ai.log import EvalLog
from inspect_ai.model import GenerateConfig, Model, get_model
from inspect_ai.scorer import Scorer, answer, choice, exact, f1, includes, match, pattern, value_to_float
from inspect_ai.solver import Solver, generate, multiple_choice, prompt_template, system_message

SCORERS: Mapping[str, Callable[..., Scorer]] = {
    "answer": answer,
    "choice": choice,
    "exact": exact,
    "f1": f1,
    "includes": includes,
    "match": match,
    "pattern": pattern,
}
# The transcript stays in Inspect's log.
LEFT_OUT: Any = {
    **dict.fromkeys(("events", "events_data", "timelines", "store", "attachments"), True),
    "error": {"traceback_ansi"},
    "error_retries": {"__all__": {"traceback_ansi"}},
}
# Requests wait for a slot at the gateway, which bounds each one's time itself.
PATIENCE_S = 30 * 86400.0
LOCAL = "json_dataset"
PACKAGE = "inspect_evals"


class RefusedError(Exception):
    """The job cannot be asked as it stands."""


def main(path: str, *words: str) -> int:
    """Ask what the job file says and return 0 when the evaluation's records are whole.

    With the word `list`, nothing is asked: what would be stands in `planned.jsonl`.
    """
    job = json.loads(Path(path).read_text("utf-8"))
    output = Path(job["output"])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    sys.addaudithook(reaching_only(str(urlsplit(job["base_url"]).hostname)))
    try:
        asked = chosen(job)
        planned = plan(asked, job)
        (output / "planned.jsonl").write_text("".join(map(line, planned)), "utf-8")
        if "list" in words:
            return 0
        Recorder.into = output / "samples.jsonl"
        return conclude(output, [ask(asked, job, part, output) for part in job["parts"]])
    except RefusedError as refused:
        write(output / "end.json", {"refused": str(refused), "logs": []})
        print(refused, file=sys.stderr)
        return 2


def stop(number: int, frame: FrameType | None) -> None:
    """A signal handler: what is under way when a stop is asked for has not failed, it never happened."""
    Recorder.stopping = True
    raise KeyboardInterrupt


def reaching_only(host: str) -> Callable[[str, tuple[Any, ...]], None]:
    """A hook that lets nothing be looked up or connected to but that host and this machine."""
    allowed = {host, "localhost", "127.0.0.1", "::1", "", None}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            wanted = arguments[0]
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            wanted = arguments[1][0]
        else:
            return
        name = wanted.decode("ascii", "replace") if isinstance(wanted, bytes) else wanted
        if name not in allowed:
            raise RefusedError(f"the task would reach {name}, and all that it reads must be given to it")

    return hook


def chosen(job: Mapping[str, Any]) -> Task:
    """The task that the job names, over local data."""
    if job["task"] == LOCAL:
        asked = local(job)
    else:
        lead_to_local(job["hub"])
        try:
            asked = published(job["task"].removeprefix(f"{PACKAGE}/"))(**job["task_args"])
        except (TypeError, ValueError, LookupError, OSError, ImportError) as error:
            raise RefusedError(f"{job['task']} cannot be made: {type(error).__name__}: {error}") from error
    if asked.sandbox is not None or any(sample.sandbox for sample in asked.dataset):
        raise RefusedError(f"{job['task']} wants a sandbox for what a model writes, and this one gives none")
    return asked


def local(job: Mapping[str, Any]) -> Task:
    """A task over a local file: its columns, Inspect's own solvers and scorer, the suite's own words."""
    columns = job["columns"]
    fields = FieldSpec(
        input=columns["input"],
        target=columns["target"],
        choices=columns["choices"] or "choices",
        id=columns["id"] or "id",
        metadata=list(columns["metadata"]) or None,
    )
    file = job["file"]
    read = csv_dataset if file.lower().endswith(".csv") else json_dataset
    try:
        rows = read(file, fields, auto_id=columns["id"] is None, name=Path(file).stem)
        scorer = SCORERS[job["scorer"]](**job["scorer_args"])
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise RefusedError(f"{file} cannot be asked: {type(error).__name__}: {error}") from error
    return Task(dataset=rows, solver=solvers(job), scorer=scorer, name=LOCAL)


def solvers(job: Mapping[str, Any]) -> list[Solver]:
    """Inspect's own solvers, with the suite's system message and template where it has them."""
    chain: list[Solver] = []
    if job["system"] is not None:
        chain.append(system_message(job["system"]))
    if job["columns"]["choices"] is not None:
        words = {} if job["template"] is None else {"template": job["template"]}
        return [*chain, multiple_choice(**words)]
    if job["template"] is not None:
        chain.append(prompt_template(job["template"]))
    return [*chain, generate()]


def published(name: str) -> Callable[..., Task]:
    """A task of inspect-evals by name; its module alone is imported."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise RefusedError(f"{PACKAGE} is not installed")
    registry = Path(package.origin).with_name("_registry.py")
    for node in ast.parse(registry.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and any(item.name == name for item in node.names):
            return cast("Callable[..., Task]", getattr(importlib.import_module(str(node.module)), name))
    raise RefusedError(f"{PACKAGE} has no task {name!r}")


def lead_to_local(copies: Mapping[str, str]) -> None:
    """Let every load of a hub's data set read its local copy; what has none is refused by name."""
    datasets = importlib.import_module("datasets")
    load = datasets.load_dataset

    def load_local(path: str, *arguments: Any, revision: Any = None, **options: Any) -> Any:
        if path in copies:
            return load(copies[path], *arguments, **options)
        if Path(path).is_absolute() or path in {"json", "csv", "parquet", "text"}:
            return load(path, *arguments, **options)
        raise RefusedError(
            f"the task reads {path} at {revision or 'no revision'}, and no local copy was given"
        )

    datasets.load_dataset = load_local


def plan(asked: Task, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each sample that will be asked, in order: its id, and the digest of what it asks."""
    rows = limited(asked.dataset, job["limit"])
    ids = [str(sample.id) for sample in rows if sample.id is not None]
    if len(ids) != len(rows) or len(set(ids)) != len(ids):
        raise RefusedError("two samples of the task have one id, or a sample has none")
    return [
        {
            "id": sample.id,
            "question": digest(
                [
                    sample.input if isinstance(sample.input, str) else [m.text for m in sample.input],
                    sample.choices,
                ]
            ),
            "metadata": {key: str(value) for key, value in (sample.metadata or {}).items()},
        }
        for sample in rows
    ]


def limited(rows: Dataset, limit: int | None) -> Sequence[Any]:
    """The samples that Inspect will ask: the first so many."""
    return list(rows)[:limit]


def ask(asked: Task, job: Mapping[str, Any], part: Mapping[str, Any], output: Path) -> EvalLog:
    """Let Inspect ask and score a part of the repeats, which have one seed, and return its log."""
    config = GenerateConfig(**job["generation"], seed=part["seed"])
    Recorder.first = part["first"]
    (log,) = inspect_ai.eval(
        asked,
        model=model(job, config),
        display="none",
        log_dir=str(output / "log"),
        log_format="eval",
        log_buffer=1,
        log_realtime=False,
        log_level="warning",
        ctl_server=False,
        acp_server=False,
        limit=job["limit"],
        epochs=Epochs(part["repeats"], "mean"),
        fail_on_error=False,
        retry_on_error=0,
        max_tasks=1,
        max_samples=job["slots"],
        max_connections=job["slots"],
        max_retries=0,
        score_display=False,
        **job["limits"],
        **config.model_dump(exclude_none=True),
    )
    return log


def model(job: Mapping[str, Any], config: GenerateConfig) -> Model:
    """The endpoint as an OpenAI-compatible one; its key stands in the environment."""
    return get_model(
        f"openai-api/assay/{job['model']}",
        config=config,
        base_url=job["base_url"],
        memoize=False,
        client_timeout=PATIENCE_S,
        max_retries=0,
    )


@hooks(name="recorder", description="Appends each sample that has ended to a file.")
class Recorder(Hooks):
    """Keeps what has finished, also when the process is killed before the log is whole."""

    into: Path | None = None
    first = 0
    stopping = False
    failure: OSError | None = None
    number = staticmethod(value_to_float())

    async def on_sample_end(self, data: SampleEnd) -> None:
        """Append the sample in Inspect's own form, and its scores as Inspect turns them into numbers."""
        if Recorder.into is None or (Recorder.stopping and data.sample.error is not None):
            return
        sample = json.loads(data.sample.model_dump_json(exclude=LEFT_OUT, exclude_none=True))
        scores = {name: score.value for name, score in (data.sample.scores or {}).items()}
        value = {
            "rollout": Recorder.first + data.sample.epoch - 1,
            "numbers": numbers(scores),
            "sample": sample,
        }
        text = line(value).encode("utf-8", "backslashreplace")
        try:
            handle = os.open(Recorder.into, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                if os.write(handle, text) != len(text):
                    raise OSError("a line was written in part")
            finally:
                os.close(handle)
        except OSError as error:
            Recorder.failure = error


def numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    """Every score as a number by name; the parts of a score stand below its name."""
    found = {}
    for name, value in scores.items():
        parts = {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {}
        for key, part in (parts or {name: value}).items():
            if isinstance(part, str | int | float | bool):
                number = Recorder.number(part)
                if math.isfinite(number):
                    found[key] = number
    return found


def conclude(output: Path, logs: Sequence[EvalLog]) -> int:
    """Write how it ended, from the heads of the logs themselves."""
    if Recorder.failure is not None:
        raise Recorder.failure
    left_out = {"samples", "reductions"}
    heads = [json.loads(log.model_dump_json(exclude=left_out, exclude_none=True)) for log in logs]
    write(output / "end.json", {"refused": None, "logs": heads})
    return 0 if all(log.status == "success" for log in logs) else 1


def digest(value: Any) -> str:
    """SHA-256 over a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def line(value: Any) -> str:
    """A value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"


def write(path: Path, value: Any) -> None:
    """Write JSON in one step."""
    temporary = path.with_suffix(".partial")
    temporary.write_text(line(value), "utf-8", "backslashreplace")
    temporary.replace(path)


def leave(code: int) -> NoReturn:
    """End at once: threads that Inspect's clients leave behind are not waited for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))

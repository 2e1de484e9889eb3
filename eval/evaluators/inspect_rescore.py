"""One Inspect AI task over saved answers: `python -P offline.py inspect_rescore.py JOB.json`.

It runs in the evaluator's own environment, beside `inspect_run.py`, and does what that does with the same
job, but for the model: whatever is asked of it, it says what the record has of that sample. So the questions
are made again of the job's data, Inspect's own solvers read the answers as they did, and its own scorer
scores them. Inspect's `score` over a log is not enough: a log does not keep which choices a solver marked,
nor does it ask the data what the right answer is. The job has one key more, `record`: the `samples.jsonl` of
the run.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inspect_ai.log._samples import sample_active
from inspect_ai.model import ChatCompletionChoice, ModelOutput, ModelUsage, get_model

Place = tuple[str, int]


class NotKeptError(Exception):
    """The task asks more of the model than the record holds of its answers."""


def main(path: str) -> int:
    """Score the saved answers; 0 when the evaluation's records are whole."""
    job = json.loads(Path(path).read_text("utf-8"))
    program = beside("inspect_run.py")
    kept = {place: iter(outputs) for place, outputs in saved(Path(job["record"]))}

    def answer(*asked: Any) -> ModelOutput:
        active = sample_active()
        place = (str(active.sample.id), program.Recorder.first + active.epoch - 1) if active else None
        found = next(kept.get(place, iter(())), None)
        if found is None:
            raise NotKeptError(f"no answer is kept for this request of {place}")
        return found

    program.model = lambda job, config: get_model(
        "mockllm/model", config=config, custom_outputs=answer, memoize=False
    )
    return int(program.main(path))


def saved(record: Path) -> Iterator[tuple[Place, list[ModelOutput]]]:
    """What the model said in each sample that ended, in order."""
    for line in record.read_bytes().split(b"\n")[:-1]:
        value = json.loads(line)
        sample = value["sample"]
        yield (str(sample["id"]), int(value["rollout"])), outputs(sample)


def outputs(sample: Mapping[str, Any]) -> list[ModelOutput]:
    """The model's answers in a sample: the messages that it generated, and what ended the last of them.

    A sample repeats its last answer twice more, as its output and as that output's text: neither is read.
    """
    said = [
        message
        for message in sample["messages"]
        if message["role"] == "assistant" and message.get("source") == "generate"
    ]
    choices = (sample.get("output") or {}).get("choices") or [{}]
    found = []
    for message in said:
        ended = choices[0].get("stop_reason", "stop") if message is said[-1] else "stop"
        choice = ChatCompletionChoice.model_validate({"message": message, "stop_reason": ended})
        # Who tells no usage is counted for, with a tokenizer that would have to be fetched.
        found.append(ModelOutput(model="kept", choices=[choice], usage=ModelUsage()))
    return found


def beside(name: str) -> Any:
    """The program of that name beside this one, which `-P` keeps off the module path."""
    path = Path(__file__).with_name(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.stdout.flush()
    beside("inspect_run.py").leave(main(sys.argv[1]))

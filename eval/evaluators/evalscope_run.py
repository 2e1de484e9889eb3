"""One dataset of EvalScope, driven by a job file: `python -P evalscope_run.py JOB.json`.

It runs in the evaluator's own environment and knows nothing of Assay. EvalScope loads, words, asks, scores
and records as it does by itself, and its files stay as it writes them. Beside them stands what it would not
keep: `tasks.jsonl`, what is going to be asked, before anything is; `failures.jsonl`, the samples that came to
no answer, which its own figures leave out of the denominator; and, for BFCL, `calls.jsonl`, since its records
do not tell how an answer ended. The client's and EvalScope's own retries are off: the gateway in front of the
model has them. Nothing is reused from an earlier run.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import operator
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import nltk
import openai
from evalscope.api.registry import EVALUATOR_REGISTRY
from evalscope.config import TaskConfig
from evalscope.constants import Tags
from evalscope.evaluator.evaluator import DefaultEvaluator
from evalscope.models.openai_compatible import OpenAICompatibleAPI
from evalscope.run import run_task

KEY_VARIABLE = "ASSAY_API_KEY"
ERROR_CHARACTERS = 500
STOPPED = 130
UNWRITTEN = 74
JUDGED_BY_RULE = frozenset({"needle_haystack"})
# What of an entry of BFCL the model is asked, beside the messages.
ASKED = ("function", "missed_function", "scenario")
CHECKED_WITH = ("tokenizers/punkt_tab", "corpora/stopwords", "taggers/averaged_perceptron_tagger_eng")
# Operators that a model's arguments may have.
ARITHMETIC: Mapping[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class RefusedError(Exception):
    """The job cannot be asked as it stands."""


class ListedError(Exception):
    """All that was wanted is the list of what would be asked."""


class Lines:
    """A file of records that is only appended to; each is with the system before the next one is begun."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one."""
        text = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        with self._lock:
            self._file.write(text.encode("utf-8", "surrogatepass"))


class Here(threading.local):
    """What this thread is asking.

    Attributes:
        seed: Of its requests; None where the job has none of its own for each repeat.
        calls: The requests of a BFCL entry that were answered.
        failed: What the last of them failed with.
    """

    seed: int | None = None
    calls: list[dict[str, Any]] | None = None
    failed: BaseException | None = None


HERE = Here()


class Watched(DefaultEvaluator):
    """EvalScope's evaluator, which also says what it will ask and what came to nothing."""

    folder: Path
    seed: int | None
    repeats: int
    listing: bool

    def _collect_work_items(self, datasets: Mapping[str, Any]) -> Any:
        """All subsets are loaded, and nothing was asked yet."""
        refuse(self.benchmark)
        tasks = [planned(subset, sample) for subset, samples in datasets.items() for sample in samples]
        lines = Lines(self.folder / "tasks.jsonl")
        for task in tasks:
            lines.append(task)
        if self.listing:
            raise ListedError
        self.failures = Lines(self.folder / "failures.jsonl")
        return super()._collect_work_items(datasets)

    def _persist_result(self, item: Any, *result: Any) -> None:
        try:
            super()._persist_result(item, *result)
        except OSError as error:
            # EvalScope would go on, and what follows would be kept no more than this was.
            sys.excepthook(type(error), error, error.__traceback__)
            os._exit(UNWRITTEN)

    def _process_work_item(self, item: Any, directory: str) -> Any:
        if self.seed is not None:
            HERE.seed = self.seed + int(item.sample.id) % self.repeats
        try:
            return super()._process_work_item(item, directory)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
            self.failures.append({"subset": item.subset, "index": item.sample.id, "error": reason})
            raise


def main(path: str, *words: str) -> int:
    """Ask what the job file says; 0 when EvalScope came to its end. With the word `list`, ask nothing."""
    job = json.loads(Path(path).read_text("utf-8"))
    folder = Path(job["task"]["work_dir"])
    # A worker that waits for an answer would keep a signal waiting; all that has ended is written.
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    quieten(folder / "logs")
    Watched.listing = "list" in words
    Watched.folder, Watched.seed, Watched.repeats = folder, job["seed"], job["task"]["repeats"]
    EVALUATOR_REGISTRY["default"] = Watched
    plain = OpenAICompatibleAPI.completion_params
    OpenAICompatibleAPI.completion_params = lambda self, config, tools: seeded(plain(self, config, tools))
    config = TaskConfig(api_key=os.environ.pop(KEY_VARIABLE), **job["task"])
    if job["bfcl"] is not None:
        tame_bfcl(job["bfcl"], folder)
    try:
        run_task(config)
    except ListedError:
        return 0
    except RefusedError as refused:
        (folder / "refused.txt").write_text(f"{refused}\n", "utf-8")
        return 2
    return 0


def quieten(logs: Path) -> None:
    """Let everything that is printed go to a file: only what ends the program is still said aloud."""
    aloud = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / "printed.log").open("ab") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    sys.excepthook = lambda *error: traceback.print_exception(*error, file=aloud)


def stop(number: int, frame: FrameType | None) -> None:
    """End now."""
    os._exit(STOPPED)


def refuse(benchmark: Any) -> None:
    """Raise RefusedError for what would run a model's code here, or would ask another model to judge."""
    if Tags.CODING in benchmark.tags or (Tags.AGENT in benchmark.tags and benchmark.name != "bfcl_v4"):
        raise RefusedError(f"{benchmark.name} runs what a model writes, and there is no sandbox for it here")
    if benchmark.llm_judge_default and benchmark.name not in JUDGED_BY_RULE:
        raise RefusedError(f"{benchmark.name} is judged by another model, which no job here names")
    if benchmark.name == "bfcl_v4" and "memory_vector" in benchmark.subset_list:
        # Its model is loaded with the module, and would be tried again for every entry.
        try:
            importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.func_source_code.memory_vector")
        except (ImportError, OSError) as error:
            raise RefusedError(f"the model of memory_vector cannot be loaded: {error}") from error
    if benchmark.name == "ifbench":
        # Its checks would fetch what they lack, one at a time and in the middle of everything.
        for part in CHECKED_WITH:
            try:
                nltk.data.find(part)
            except LookupError:
                raise RefusedError(f"IFBench's checks lack NLTK's {part}") from None


def planned(subset: str, sample: Any) -> dict[str, Any]:
    """One sample as `tasks.jsonl` has it: its place, and digests of what is asked."""
    metadata = sample.metadata or {}
    family = subset
    if "context_length" in metadata and "depth_percent" in metadata:
        family = f"{subset} {metadata['context_length']}"
    more = {name: metadata[name] for name in ASKED if name in metadata}
    return {
        "subset": subset,
        "index": sample.id,
        "group": sample.group_id,
        "family": family,
        "scenario": metadata.get("scenario"),
        "prompt": digest([*messages(sample.input), *([more] if more else [])]),
    }


def messages(asked: Any) -> list[dict[str, Any]]:
    """The messages of a prompt, each as role and content: a text, or parts where it has others too."""
    if isinstance(asked, str):
        return [{"role": "user", "content": asked}]
    found = []
    for message in asked:
        content = message.content
        if not isinstance(content, str):
            parts = [part.model_dump(mode="json", exclude_none=True) for part in content]
            texts = [part["text"] for part in parts if part.get("type") == "text"]
            content = "".join(texts) if len(texts) == len(parts) else parts
        found.append({"role": message.role, "content": content})
    return found


def digest(value: object) -> str:
    """SHA-256 over the value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def seeded(params: dict[str, Any]) -> dict[str, Any]:
    """A request's options with the seed of the repeat that this thread is asking."""
    return params if HERE.seed is None else {**params, "seed": HERE.seed}


def tame_bfcl(options: Mapping[str, Any], folder: Path) -> None:
    """Bend what BFCL does by itself, in a client of its own, to what holds for every other dataset.

    Its client repeats requests, sends the temperature and no other option, turns a failed request into an
    answer that is scored as wrong, and passes what a model writes to Python's `eval`.

    Args:
        options: More fields of each request.
        folder: Where `calls.jsonl` goes.
    """
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.model_handler import utils
    from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler
    from evalscope.benchmarks.bfcl.v4.bfcl_v4_adapter import BFCLV4Adapter

    calls = Lines(folder / "calls.jsonl")
    failures = Lines(folder / "failures.jsonl")
    handler, adapter = OpenAICompletionsHandler, BFCLV4Adapter
    make, kwargs_of, inference = handler.__init__, handler._build_client_kwargs, handler.inference
    on_inference = adapter._on_inference

    def make_named(self: Any, *rest: Any, **more: Any) -> None:
        make(self, *rest, **more)
        # It becomes part of a Python name, and not every model's name can be.
        self.model_name_underline_replaced = "model"

    def client_kwargs(self: Any) -> dict[str, Any]:
        return {**kwargs_of(self), "max_retries": 0, "timeout": options["timeout"]}

    def generate(self: Any, **request: Any) -> tuple[Any, float]:
        return ask(self.client, {**request, **options["fields"]}, options["extra_body"])

    def infer(self: Any, entry: Mapping[str, Any], *rest: Any, **more: Any) -> Any:
        try:
            return inference(self, entry, *rest, **more)
        except Exception as error:
            HERE.failed = error
            name = str(entry["id"])
            if "_prereq_" in name:
                reason = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
                subset = name.partition("_prereq_")[0]
                record = {"subset": subset, "scenario": entry.get("scenario"), "index": None}
                failures.append({**record, "error": reason})
            raise

    def on_sample(self: Any, model: Any, sample: Any) -> Any:
        # The handler is made here already: what it asks for the memory of entries is none of this sample's.
        self._init_handler()
        HERE.calls, HERE.failed = [], None
        result = on_inference(self, model, sample)
        if isinstance(HERE.failed, openai.OpenAIError):
            # The request failed, not the model; what it wrote wrongly is scored as BFCL scores it.
            raise HERE.failed
        calls.append({"subset": sample.metadata["category"], "index": sample.id, "calls": HERE.calls})
        return result

    handler.__init__, handler._build_client_kwargs = make_named, client_kwargs
    handler.generate_with_backoff, handler.inference = generate, infer
    adapter._on_inference = on_sample
    multi_turn_utils.eval = lambda text: carry_out(text, vars(multi_turn_utils))
    utils.eval = arithmetic


def ask(client: Any, request: dict[str, Any], extra_body: Mapping[str, Any]) -> tuple[Any, float]:
    """One request of BFCL, asked once; the answer and the seconds it took."""
    sent = {name: value for name, value in seeded(request).items() if value is not None}
    begin = time.monotonic()
    answer = client.chat.completions.create(
        **sent, **({"extra_body": dict(extra_body)} if extra_body else {})
    )
    seconds = time.monotonic() - begin
    if HERE.calls is not None and answer.choices:
        message, usage = answer.choices[0].message, answer.usage
        HERE.calls.append(
            {
                "finish_reason": answer.choices[0].finish_reason,
                "thought": bool(str(getattr(message, "reasoning_content", None) or "").strip()),
                "prompt_tokens": getattr(usage, "prompt_tokens", None),
                "completion_tokens": getattr(usage, "completion_tokens", None),
                "seconds": round(seconds, 4),
            }
        )
    return answer, seconds


def carry_out(text: str, names: Mapping[str, Any]) -> Any:
    """The value of a call that a model wrote, where it is one of the entry's own functions over literals.

    Args:
        text: One expression, the entry's functions written as `instance.method`.
        names: Where the instances are.

    Raises:
        NameError: another function, as Python itself would say of one that is not there.
        ValueError: anything that is no call of functions over literals.
    """

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Call):
            positional = [value(argument) for argument in node.args]
            return own_function(node.func, names)(
                *positional, **{word.arg: value(word.value) for word in node.keywords if word.arg}
            )
        if isinstance(node, ast.Name):
            raise NameError(f"name {node.id!r} is not defined")
        if isinstance(node, ast.List | ast.Tuple):
            kind = list if isinstance(node, ast.List) else tuple
            return kind(value(item) for item in node.elts)
        if isinstance(node, ast.Dict) and None not in node.keys:
            return {value(key): value(item) for key, item in zip(node.keys, node.values, strict=True) if key}
        return ast.literal_eval(node)

    return value(ast.parse(text.strip(), mode="eval").body)


def own_function(node: Any, names: Mapping[str, Any]) -> Any:
    """The bound method that `instance.method` names; NameError for everything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner, method = node.value.id, node.attr
        if owner.endswith("_instance") and owner in names and not method.startswith("_"):
            return getattr(names[owner], method)
    raise NameError(f"name {ast.unparse(node)!r} is not defined")


def arithmetic(text: str) -> Any:
    """The value of sums of numbers or texts that a model wrote as an argument; ValueError for all else."""

    def value(node: ast.expr) -> Any:
        if not isinstance(node, ast.BinOp):
            return ast.literal_eval(node)
        left, right, found = value(node.left), value(node.right), ARITHMETIC.get(type(node.op))
        texts = isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add)
        if found is None or not (texts or all(isinstance(side, int | float) for side in (left, right))):
            raise ValueError(f"{text} is no arithmetic")
        return found(left, right)

    return value(ast.parse(text.strip(), mode="eval").body)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

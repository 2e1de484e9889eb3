"""What EvalScope's child is told: the job in EvalScope's words, and its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.backends import evalscope_records as records
from assay.backends import nltk_data, places
from assay.backends.base import Context
from assay.backends.evalscope_arguments import Arguments
from assay.backends.evalscope_benchmarks import BFCL, IFBENCH, NEEDLE, NLTK_PARTS, WEB_SEARCH
from assay.backends.evalscope_rows import seed_of
from assay.errors import ConfigurationError
from assay.evaluator import Evaluator
from assay.run.native import Scratch, surroundings
from assay.suite.job import Job

TOKENIZER_VARIABLE = "ASSAY_TOKENIZER"
# Requests wait for a slot at the gateway, which bounds each one's time itself.
PATIENCE_S = 30 * 86400.0
ONLINE = {"HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"}
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
EFFORTS = ("low", "medium", "high")


def searches(job: Job, arguments: Arguments) -> bool:
    """Whether the job searches the web."""
    return job.dataset == BFCL and not set(WEB_SEARCH).isdisjoint(arguments.subsets_of(BFCL))


def child_job(context: Context, arguments: Arguments, scratch: Scratch) -> dict[str, Any]:
    """What the child is told; no secret stands in it."""
    job, lane = context.job, context.lane
    options, more = generation(job)
    seeded = job.generation.seed is not None and job.repeats > 1 and job.generation.sampled
    task = {
        "model": lane.model if lane is not None else None,
        "model_id": records.MODEL,
        "api_url": lane.base_url if lane is not None else None,
        "eval_type": "openai_api",
        "datasets": [job.dataset],
        "dataset_args": {job.dataset: dataset_arguments(context, arguments, scratch)},
        # The client's own retries are off; one attempt is what EvalScope calls a retry.
        "model_args": {"max_retries": 0},
        "generation_config": {
            **options,
            **({"extra_body": more} if more else {}),
            "timeout": PATIENCE_S,
            "retries": 1,
            "retry_interval": 1,
        },
        "repeats": job.repeats,
        "limit": job.limit,
        "eval_batch_size": context.slots,
        "work_dir": str(context.folder),
        "no_timestamp": True,
        "ignore_errors": True,
        "judge_strategy": "rule",
        "seed": arguments.seed,
        "dataset_dir": str(scratch.folder("datasets")),
    }
    fields = {name: value for name, value in options.items() if name != "stop_seqs"}
    if "stop_seqs" in options:
        fields["stop"] = options["stop_seqs"]
    bfcl = {"fields": fields, "extra_body": more, "timeout": PATIENCE_S}
    return {
        "task": task,
        "seed": seed_of(job, 0) if seeded else None,
        "bfcl": bfcl if job.dataset == BFCL else None,
    }


def generation(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sampling options in EvalScope's words, and those it has none for, for the request's body."""
    asked = job.generation
    words = ("temperature", "top_p", "max_tokens", "presence_penalty", "frequency_penalty", "seed")
    options = {name: getattr(asked, name) for name in words if getattr(asked, name) is not None}
    if asked.stop:
        options["stop_seqs"] = list(asked.stop)
    others = ("top_k", "min_p", "repetition_penalty")
    more = {name: getattr(asked, name) for name in others if getattr(asked, name) is not None}
    if asked.reasoning_effort is not None:
        # EvalScope knows three words for it, and drops none of the body's.
        place = options if asked.reasoning_effort in EFFORTS else more
        place["reasoning_effort"] = asked.reasoning_effort
    return options, {**more, **asked.extra_body}


def dataset_arguments(context: Context, arguments: Arguments, scratch: Scratch) -> dict[str, Any]:
    """What EvalScope is told of the benchmark."""
    dataset, params = context.job.dataset, dict(arguments.params)
    if dataset == BFCL:
        params |= {"is_fc_model": arguments.is_fc_model, "underscore_to_dot": arguments.underscore_to_dot}
    if dataset == NEEDLE:
        lengths, depths = arguments.context_lengths, arguments.depths
        params |= {
            "context_lengths_min": lengths.min,
            "context_lengths_max": lengths.max,
            "context_lengths_num_intervals": lengths.intervals,
            "document_depth_percent_min": depths.min,
            "document_depth_percent_max": depths.max,
            "document_depth_percent_intervals": depths.intervals,
            "tokenizer_path": str(places.resolve(tokenizer(context.job, arguments), context.data)),
        }
    found: dict[str, Any] = {"extra_params": params} if params else {}
    for name in ("few_shot_num", "prompt_template", "system_prompt"):
        if getattr(arguments, name) is not None:
            found[name] = getattr(arguments, name)
    if arguments.subset_list:
        found["subset_list"] = list(arguments.subset_list)
    place = arguments.data_of(dataset)
    if place is not None:
        # EvalScope may remove a file from the folder it reads: it gets links of its own.
        found["local_path"] = str(linked(places.resolve(place, context.data), scratch.folder("data")))
    return found


def linked(source: Path, into: Path) -> Path:
    """A folder that holds a link for each file of another one, as they lie there."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            link = into / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(path.resolve())
    return into


def environment(
    context: Context, evaluator: Evaluator, arguments: Arguments, scratch: Scratch
) -> dict[str, str]:
    """The child's whole environment, but for its secrets."""
    found = surroundings(evaluator, scratch)
    found |= {
        "BFCL_PROJECT_ROOT": str(scratch.folder("bfcl")),
        "MODELSCOPE_CACHE": str(scratch.folder("modelscope")),
        "MPLCONFIGDIR": str(scratch.folder("matplotlib")),
        "MPLBACKEND": "Agg",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if context.job.dataset == IFBENCH:
        folder = places.resolve(arguments.nltk_data, context.data)
        found["NLTK_DATA"] = str(nltk_data.unpacked(folder, NLTK_PARTS, scratch.folder("nltk")))
    if arguments.allow_network_downloads:
        found |= ONLINE
    if arguments.allow_network_downloads or searches(context.job, arguments):
        found |= {name: os.environ[name] for name in PROXIES if name in os.environ}
        # The gateway is on this machine.
        found |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return found


def tokenizer(job: Job, arguments: Arguments, environ: Mapping[str, str] = os.environ) -> str:
    """Where the tokenizer is; ConfigurationError when nobody says."""
    place = arguments.tokenizer or environ.get(TOKENIZER_VARIABLE)
    if not place:
        raise ConfigurationError(
            f"job {job.id}: nobody says where to find the model's tokenizer",
            "Needle-in-a-Haystack counts its lengths with it",
            f"give backend_args.tokenizer, or export {TOKENIZER_VARIABLE}=/FOLDER",
        )
    return place

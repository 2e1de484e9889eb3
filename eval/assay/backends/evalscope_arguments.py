"""What a job may say to EvalScope, and what of it contradicts the benchmark, the job or itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from assay.backends import places
from assay.backends.evalscope_benchmarks import (
    BENCHMARKS,
    BFCL,
    IFBENCH,
    MEMORY_VECTOR,
    NEEDLE,
    NLTK,
    OWN,
    STATEFUL,
)
from assay.errors import ConfigurationError
from assay.names import nearest
from assay.suite.job import Job
from assay.suite.target import Table

SUBSET = r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}$"
OF: Mapping[str, tuple[str, ...]] = {
    BFCL: ("is_fc_model", "underscore_to_dot"),
    IFBENCH: ("nltk_data",),
    NEEDLE: ("context_lengths", "depths", "tokenizer"),
}


class Spaced(Table):
    """Numbers that lie evenly between two.

    Attributes:
        min: The first.
        max: The last.
        intervals: How many.
    """

    min: int = Field(ge=0)
    max: int = Field(ge=0)
    intervals: int = Field(gt=0, le=1000)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min is {self.min} and max {self.max}")
        if self.intervals == 1 and self.min != self.max:
            raise ValueError("one number lies between two only where they are the same: set min to max")
        return self


LENGTHS = Spaced(min=1000, max=32000, intervals=10)
DEPTHS = Spaced(min=0, max=100, intervals=10)


class Arguments(Table):
    """The job's `backend_args`. What is left out is as EvalScope has it.

    Attributes:
        subset_list: Subsets to ask; empty for all.
        few_shot_num: Worked examples before each question.
        prompt_template: Around each question, which stands as `{question}`.
        system_prompt: Before each question.
        seed: EvalScope's own, by which it shuffles options; the requests have the generation's.
        params: More of the benchmark's own parameters (its `extra_params`).
        local_data: Where the data are (`assay.backends.places`), instead of where they are pinned.
        allow_network_downloads: Whether EvalScope may fetch what is not given; else all of it is offline.
        is_fc_model: Of BFCL: whether functions are offered as tools, or in the prompt.
        underscore_to_dot: Of BFCL: whether a name's underscores count as dots.
        context_lengths: Of Needle-in-a-Haystack: lengths of the text, in tokens.
        depths: Of Needle-in-a-Haystack: where in it the needle lies, in percent.
        tokenizer: Of Needle-in-a-Haystack: the folder of the model's tokenizer (`assay.backends.places`);
            None for what the variable ASSAY_TOKENIZER names.
        nltk_data: Of IFBench: the folder of NLTK's data (`assay.backends.places`).
    """

    subset_list: tuple[str, ...] = ()
    few_shot_num: int | None = Field(default=None, ge=0)
    prompt_template: str | None = None
    system_prompt: str | None = None
    seed: int = Field(default=42, ge=0)
    params: Mapping[str, Any] = {}
    local_data: str | None = Field(default=None, pattern=places.PATTERN)
    allow_network_downloads: bool = False
    is_fc_model: bool = True
    underscore_to_dot: bool = True
    context_lengths: Spaced = LENGTHS
    depths: Spaced = DEPTHS
    tokenizer: str | None = Field(default=None, pattern=places.PATTERN)
    nltk_data: str = Field(default=NLTK, pattern=places.PATTERN)

    def data_of(self, dataset: str) -> str | None:
        """Where a benchmark's data are; None where they come with it, or nobody has said."""
        known = BENCHMARKS.get(dataset)
        return self.local_data or (known.data if known is not None else None)

    def subsets_of(self, dataset: str) -> tuple[str, ...]:
        """The subsets that are asked of a known benchmark, in order; none of one that is not known."""
        known = BENCHMARKS.get(dataset)
        return self.subset_list or (tuple(known.subsets) if known is not None else ())

    def limited(self, job: Job) -> bool:
        """Whether less than the whole benchmark is asked."""
        known = BENCHMARKS.get(job.dataset)
        every = set(known.subsets) if known is not None else set()
        return job.limit is not None or (known is not None and set(self.subsets_of(job.dataset)) != every)


def check(job: Job, arguments: Arguments) -> None:
    """Refuse what contradicts the job or the benchmark; ConfigurationError says what."""

    def refuse(what: str, why: str, next: str) -> ConfigurationError:
        return ConfigurationError(f"job {job.id}: {what}", why, next)

    default = Arguments()
    for dataset, names in OF.items():
        given = [name for name in names if getattr(arguments, name) != getattr(default, name)]
        if given and job.dataset != dataset:
            raise refuse(f"{', '.join(given)} belongs to the dataset {dataset}", "", "leave it out")
    twice = [name for name in arguments.subset_list if arguments.subset_list.count(name) > 1]
    if twice:
        raise refuse(f"subset_list names {twice[0]!r} twice", "", "name each subset once")
    known = BENCHMARKS.get(job.dataset)
    for name in arguments.subset_list:
        if known is not None and name not in known.subsets:
            raise refuse(
                f"{job.dataset} has no subset {name!r}", nearest(name, known.subsets), "mend subset_list"
            )
    if known is None and arguments.local_data is None and not arguments.allow_network_downloads:
        raise refuse(
            f"nobody says where the data of {job.dataset} are",
            "no data of that name are pinned; " + nearest(job.dataset, [*BENCHMARKS, *OWN]),
            "give local_data, or allow_network_downloads = true",
        )
    if job.dataset in OWN and arguments.local_data is None:
        raise refuse(f"{job.dataset} asks data of your own", "", "give local_data, and subset_list")
    if job.dataset == BFCL and arguments.local_data is not None:
        raise refuse("the data of BFCL come with it", "", "leave local_data out")
    vector = job.dataset == BFCL and MEMORY_VECTOR in arguments.subsets_of(BFCL)
    if vector and not arguments.allow_network_downloads:
        raise refuse(
            f"{MEMORY_VECTOR} downloads a model to search with",
            "BFCL names it, and no digest of it is pinned",
            "allow_network_downloads = true, or leave it out of subset_list",
        )
    stateful = [name for name in arguments.subsets_of(job.dataset) if name in STATEFUL]
    if job.dataset == BFCL and job.repeats > 1 and stateful:
        raise refuse(
            f"{stateful[0]} cannot be repeated",
            "BFCL keeps what an entry has changed, so its second rollout would begin where the first ended",
            "repeats = 1, or only subsets of single turns",
        )

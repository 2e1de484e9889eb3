"""EvalScope's benchmarks that are known here: how many samples, which metric counts, where the data are.

The counts are those of EvalScope 1.10.0 and of the data that `datasets.lock` pins; they tell a plan its total
and a result whether everything was asked. Another benchmark of EvalScope can be asked too; its total is then
unknown until its data are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BFCL = "bfcl_v4"
IFBENCH = "ifbench"
NEEDLE = "needle_haystack"
# Data of the user's own, in EvalScope's form: only the files say how many samples there are.
OWN = {"general_mcq": "val", "general_qa": "test"}
NLTK = "nltk-ifbench:packages"
NLTK_PARTS = ("tokenizers/punkt_tab", "corpora/stopwords", "taggers/averaged_perceptron_tagger_eng")


@dataclass(frozen=True)
class Benchmark:
    """What is known of one.

    Attributes:
        subsets: Samples by subset, in EvalScope's order.
        primary: The metric that counts, by its name in the records.
        data: Where its data are pinned (`assay.backends.places`); None where they come with the evaluator.
        reads: Whether its scorer reads an answer out of the text, and can find none.
    """

    subsets: Mapping[str, int]
    primary: str = "acc"
    data: str | None = None
    reads: bool = True


# BFCL's groups: its figure for a group means something when all of these were asked whole.
BFCL_GROUPS: Mapping[str, Mapping[str, int]] = {
    "NON_LIVE": {
        "simple_python": 400,
        "simple_java": 100,
        "simple_javascript": 50,
        "multiple": 200,
        "parallel": 200,
        "parallel_multiple": 200,
    },
    "HALLUCINATION": {"irrelevance": 240, "live_irrelevance": 884},
    "LIVE": {
        "live_simple": 258,
        "live_multiple": 1053,
        "live_parallel": 16,
        "live_parallel_multiple": 24,
    },
    "MULTI_TURN": {
        "multi_turn_base": 200,
        "multi_turn_miss_func": 200,
        "multi_turn_miss_param": 200,
        "multi_turn_long_context": 200,
    },
    "AGENTIC": {
        "memory_kv": 155,
        "memory_vector": 155,
        "memory_rec_sum": 155,
        "web_search_base": 100,
        "web_search_no_snippet": 100,
    },
}
OVERALL = "OVERALL"
# Asked, and part of no group's figure.
BFCL_UNSCORED = {"live_relevance": 16}
WEB_SEARCH = ("web_search_base", "web_search_no_snippet")
MEMORY_VECTOR = "memory_vector"
# Between two repeats of an entry of these EvalScope keeps what the first has changed.
STATEFUL = (*BFCL_GROUPS["MULTI_TURN"], *BFCL_GROUPS["AGENTIC"])

BENCHMARKS: Mapping[str, Benchmark] = {
    "aime24": Benchmark({"default": 30}, data="evalscope-aime24:"),
    "aime25": Benchmark({"default": 30}, data="evalscope-aime25:"),
    "aime26": Benchmark({"default": 30}, data="evalscope-aime26:"),
    "gpqa_diamond": Benchmark({"default": 198}, data="evalscope-gpqa-diamond:"),
    IFBENCH: Benchmark({"default": 300}, "prompt_level_strict", "evalscope-ifbench:", reads=False),
    "erqa": Benchmark(
        {
            "Trajectory Reasoning": 66,
            "Action Reasoning": 72,
            "Pointing": 34,
            "State Estimation": 55,
            "Spatial Reasoning": 84,
            "Multi-view Reasoning": 37,
            "Task Reasoning": 38,
            "Other": 14,
        },
        data="evalscope-erqa:",
    ),
    "real_world_qa": Benchmark({"default": 765}, data="evalscope-realworldqa:"),
    NEEDLE: Benchmark({"english": 100, "chinese": 100}, data="evalscope-needle-corpus:", reads=False),
    BFCL: Benchmark({**{k: v for group in BFCL_GROUPS.values() for k, v in group.items()}, **BFCL_UNSCORED}),
}

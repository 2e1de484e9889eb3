"""A list of edges is uploaded to the sandbox as a file; asked are the nodes a walk or a parent search finds.

A stand-in: the repository's name is written down here, as in the real taskset, so that it finds its rows
only through the working directory; `task.scoring` is the real option.
"""

from __future__ import annotations

import re
from typing import Literal

import verifiers.v1 as vf

CONTEXT = "context/graph.txt"
MARK = "Here is the graph to operate on:"
ANSWER = re.compile(r"Final Answer:\s*\[(.*?)\]", re.IGNORECASE)


class GraphWalksData(vf.TaskData):
    graph: str
    """The edges; uploaded, never part of the prompt."""
    answer_nodes: list[str]
    problem_type: str


class GraphWalksTaskConfig(vf.TaskConfig):
    scoring: Literal["exact", "f1"] = "exact"


class GraphWalksTask(vf.Task[GraphWalksData, vf.State, GraphWalksTaskConfig]):
    async def setup(self, runtime: vf.Runtime) -> None:
        await runtime.write(CONTEXT, self.data.graph.encode())

    @vf.reward
    async def nodes(self, trace: vf.Trace) -> float:
        replies = ANSWER.findall(trace.last_reply or "")
        found = {node.strip() for node in replies[-1].split(",") if node.strip()} if replies else set()
        gold = set(self.data.answer_nodes)
        if self.config.scoring == "exact":
            return float(bool(replies) and found == gold)
        return 2 * len(found & gold) / (len(found) + len(gold)) if found or gold else 0.0


class GraphWalksConfig(vf.TasksetConfig):
    task: GraphWalksTaskConfig = GraphWalksTaskConfig()


class GraphWalksTaskset(vf.Taskset[GraphWalksTask, GraphWalksConfig]):
    def load(self) -> list[GraphWalksTask]:
        from datasets import load_dataset

        tasks = []
        for index, row in enumerate(load_dataset("openai/graphwalks", split="train")):
            _, _, graph = row["prompt"].partition(MARK)
            edges, _, operation = graph.partition("\n\n")
            data = GraphWalksData(
                idx=index,
                prompt=f"The file {CONTEXT} holds the edges of a directed graph.\n{operation.strip()}",
                graph=edges.strip() + "\n",
                answer_nodes=row["answer_nodes"],
                problem_type=row["problem_type"],
            )
            tasks.append(GraphWalksTask(data, self.config.task))
        return tasks

"""Questions of a profile's run, built again from the evaluator's native records.

Verifiers keeps no request as it was sent, but all that it is made of: the messages before each answer, the
tools, the model, and the sampling of each call (of 0.1: the plan's). Each turn of a rollout is a question of
its own, with the recorded context before it, so that one answer that differs does not change the next
question. What the order of keys or a header was is not recorded, and decides no answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.errors import RunError
from assay.gateway.message import Request
from assay.plan import NAME, EntryPlan, Plan, load_plan
from assay.record.asked import V0, sampling
from assay.record.native import text_of
from assay.record.sample import Sample
from assay.reproduce.choose import pick
from assay.reproduce.question import Chosen, Question
from assay.reproduce.said import Choice, Said, call_of
from assay.view.lines import Lines
from assay.view.view import View

CHAT = "/v1/chat/completions"
FINISHED = frozenset({"scored", "truncated"})
HEADERS = ((b"content-type", b"application/json"),)
# As Verifiers asks since it streams; what it says of usage is told apart.
STREAMED: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


class UnaskableError(Exception):
    """A turn that its record does not hold whole."""


def choose(view: View, seed: int, most: int) -> Chosen:
    """Pick samples of a profile's run, and build their requests again.

    Args:
        view: The run.
        seed: Decides which.
        most: How many samples.

    Raises:
        VerificationError: the run's records cannot be read.
        RunError: no sample of it was finished.
    """
    plan = load_plan(view.run / NAME)
    lottery = pick(
        ((row.entry, row.task_key, row.rollout) for row in view.samples() if row.status in FINISHED),
        seed,
        most,
    )
    if not lottery.finished:
        raise RunError(f"{view.run} has no finished sample", "nothing can be asked again", "")
    entries = {entry.name: entry for entry in plan.entries}
    lines = Lines(view.run)
    questions: list[Question] = []
    left_out: list[str] = []
    for row in view.samples():
        if (row.entry, row.task_key, row.rollout) in lottery.picked and row.entry in entries:
            try:
                questions += _questions(plan, entries[row.entry], row, lines)
            except (UnaskableError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                left_out.append(f"{row.entry} {row.task_key} rollout {row.rollout}: {_why(error)}")
    if not questions:
        raise RunError(
            f"none of the {len(lottery.picked)} samples that were picked can be asked again",
            "; ".join(left_out),
            "pick others: --seed S, or more of them: -n N",
        )
    return Chosen(tuple(questions), lottery.finished, len(lottery.picked), tuple(left_out))


def _why(error: Exception) -> str:
    if isinstance(error, UnaskableError):
        return str(error)
    return f"its record cannot be read: {type(error).__name__}: {error}"


def _questions(plan: Plan, entry: EntryPlan, row: Sample, lines: Lines) -> list[Question]:
    value = lines.line(row.record, row.line)
    if value is None:
        raise UnaskableError(f"the run has no {row.record} line {row.line}")
    planned = sampling(plan.dialect, plan.native(entry))
    if row.seed is not None:
        planned["seed"] = row.seed
    turns = _flat(value) if plan.dialect == V0 else _traced(value)
    found = []
    for number, (messages, tools, call, then) in enumerate(turns):
        given = {**planned, **(call.get("sampling") or {})}
        if plan.dialect == V0:
            given = _as_v0_asks(given)
        body = {
            **{name: item for name, item in given.items() if item is not None},
            "model": str(call.get("model") or plan.server.model),
            "messages": messages,
            **({"tools": tools} if tools else {}),
            **({} if plan.dialect == V0 else STREAMED),
        }
        request = Request("POST", CHAT, HEADERS, json.dumps(body).encode("ascii"))
        of = {"entry": row.entry, "task_key": row.task_key, "rollout": row.rollout, "turn": number + 1}
        found.append(Question(f"{row.record} line {row.line}", of, "", request, then))
    if not found:
        raise UnaskableError("its record holds no answer of the model")
    return found


Turn = tuple[list[dict[str, Any]], list[dict[str, Any]], Mapping[str, Any], Said]
"""The messages before an answer, the tools, what the record tells of the call, and the answer."""


def _traced(episode: Mapping[str, Any]) -> Iterator[Turn]:
    """The turns of a trace: each call that was answered, its context up the tree of messages."""
    trace = episode["traces"][-1]
    if trace.get("response_rewrites"):
        raise UnaskableError(
            "the harness rewrote what the model answered, and the record holds what it wrote"
        )
    nodes = trace["nodes"]
    for call in trace["calls"]:
        at = call.get("node")
        if at is None or not nodes[at].get("sampled"):
            continue  # An attempt that failed has left no message.
        endpoint = call.get("endpoint") or "/chat/completions"
        if endpoint != "/chat/completions":
            raise UnaskableError(f"its harness asked {endpoint}, whose requests are not rebuilt")
        path = _path(nodes, at)
        tools = [_tool(tool) for tool in nodes[path[0]].get("tools") or trace.get("tools") or []]
        above = [nodes[index] for index in path[:-1]]
        messages = [_wire(node["message"], streamed=bool(node.get("sampled"))) for node in above]
        yield messages, tools, call, _recorded(nodes[at]["message"], call)


def _path(nodes: Sequence[Mapping[str, Any]], at: int) -> list[int]:
    """A message's place and all before it, from the first one."""
    path: list[int] = []
    place: int | None = at
    while place is not None:
        if not 0 <= place < len(nodes) or len(path) > len(nodes):
            raise UnaskableError("the messages before it do not hang together")
        path.append(place)
        place = nodes[place].get("parent")
    return path[::-1]


def _as_v0_asks(given: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling options as Verifiers 0.1 sends them: one choice, and the bound by its newer name."""
    named = {"max_completion_tokens" if name == "max_tokens" else name: given[name] for name in given}
    return {"n": 1, **named}


def _flat(value: Mapping[str, Any]) -> Iterator[Turn]:
    """The turns of a row of Verifiers 0.1: each message of the model, with all that stands before it."""
    prompt, completion = value["prompt"], value["completion"]
    tools = [_tool(tool) for tool in value.get("tool_defs") or []]
    for place, message in enumerate(completion):
        if message["role"] == "assistant":
            before = [_wire(each) for each in [*prompt, *completion[:place]]]
            yield before, tools, {}, _recorded(message, {})


def _recorded(message: Mapping[str, Any], call: Mapping[str, Any]) -> Said:
    calls = tuple(call_of(_call(each)) for each in message.get("tool_calls") or [])
    thinking = str(message.get("reasoning_content") or "")
    finish = call.get("finish_reason")
    # Tokens read are counted otherwise there: those that the server had kept are left out.
    made = (call.get("usage") or {}).get("completion_tokens")
    choice = Choice(text_of(message), thinking, calls, finish if isinstance(finish, str) else None)
    return Said((choice,), usage={"completion_tokens": made} if type(made) is int else None)


def _wire(message: Mapping[str, Any], streamed: bool = False) -> dict[str, Any]:
    """A recorded message as the protocol has it.

    Args:
        message: As it is recorded.
        streamed: The harness had it from a stream, and sends it back as the client library put it together.
    """
    role = message["role"]
    if role == "tool":
        named = {name: message[name] for name in ("name",) if message.get(name)}
        return {"role": role, "tool_call_id": message["tool_call_id"], "content": message["content"], **named}
    if role != "assistant":
        return {"role": role, "content": message["content"]}
    calls = [_wire_call(_call(call)) for call in message.get("tool_calls") or []]
    if streamed:
        calls = [call | {"index": index} for index, call in enumerate(calls)]
    # No text is recorded as none, whether it was sent as an empty one or left out: a stream begins with one.
    wire: dict[str, Any] = {"role": role, "content": message.get("content") or ""}
    if message.get("provider_state"):
        wire["reasoning_details"] = message["provider_state"]
    elif message.get("reasoning_content") is not None:
        wire["reasoning_content"] = message["reasoning_content"]
    return wire | ({"tool_calls": calls} if calls else {})


def _call(call: Any) -> Mapping[str, Any]:
    """A recorded tool call; Verifiers 0.1 writes each as a text of JSON."""
    value = json.loads(call) if isinstance(call, str) else call
    if not isinstance(value, Mapping):
        raise UnaskableError("a tool call of its record cannot be read")
    return value


def _wire_call(call: Mapping[str, Any]) -> dict[str, Any]:
    if call.get("type") == "custom":
        return {
            "id": call["id"],
            "type": "custom",
            "custom": {"name": call["name"], "input": call["arguments"]},
        }
    name, arguments = call_of(call)
    return {"id": call["id"], "type": "function", "function": {"name": name, "arguments": arguments}}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded tool as the protocol has it, its keys in the harness's order: templates show them so."""
    kind = tool.get("type", "function")
    if kind != "function":
        raise UnaskableError(f"it has a tool of the kind {kind}, which is not rebuilt")
    names = ("name", "description", "parameters", "strict")
    return {"type": kind, "function": {name: tool[name] for name in names if tool.get(name) is not None}}


def first_record(run: Path, plan: Plan) -> Path:
    """Where a profile's run recorded who its server was, before the first entry."""
    return run / "provenance" / "server" / f"{plan.entries[0].name}.before.json"

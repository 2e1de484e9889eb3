"""A stand-in for the evaluator's command: its options, its record and its exit codes, in a tenth of a second.

It asks a server over HTTP as the real one does (three attempts a call) and writes the same form of record.
A table `[toy]` in the entry's TOML scripts what a well-behaved evaluator would not do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from toy_tasks.tasks import Task, load

ATTEMPTS = 3
programs: set[subprocess.Popen[bytes]] = set()
lock = threading.Lock()


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        out[key] = (
            merge(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
        )
    return out


def read(words: list[str]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for index, word in enumerate(words):
        if word == "@":
            text = Path(words[index + 1]).read_text("utf-8")
            over = json.loads(text) if words[index + 1].endswith(".json") else tomllib.loads(text)
            config = merge(config, over)
    return config


def main(words: list[str]) -> int:
    config = read(words)
    toy = config.get("toy", {})
    if "refuse" in toy:
        print(toy["refuse"], file=sys.stderr)
        return 1
    if "--dry-run" in words:
        return 0
    handler = signal.SIG_IGN if toy.get("deaf") else leave
    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)
    folder = Path(config["output_dir"]) / config["run"]["dir"]
    if folder.exists():
        print("the run directory is not empty", file=sys.stderr)
        return 1
    (folder / "configs/resolved").mkdir(parents=True)
    (folder / "logs/attempt_1").mkdir(parents=True)
    (folder / "logs/latest").symlink_to("attempt_1")
    (folder / "configs/resolved/eval.json").write_text(json.dumps(config))
    print(toy.get("say", "toy evaluator"), flush=True)
    with (folder / "traces.jsonl").open("ab", buffering=0) as record:
        jobs = [task for task in load(config) for _ in range(config["num_rollouts"])]
        jobs = jobs[toy.get("leaves_out", 0) :]
        with ThreadPoolExecutor(config["max_concurrent"]) as pool:
            for line in pool.map(lambda task: rollout(config, task), jobs):
                with lock:
                    record.write(line)
                    if toy.get("twice"):
                        record.write(line)
        if toy.get("stranger"):
            record.write(line.replace(jobs[-1].key.encode(), b"stranger/0"))
        record.write(toy.get("tail", "").encode())
    return int(toy.get("exit_code", 0))


def leave(number: int, frame: object) -> None:
    for program in list(programs):
        program.kill()
    os._exit(130)


def rollout(config: dict[str, Any], task: Task) -> bytes:
    toy = config.get("toy", {})
    program = None
    if toy.get("program"):
        program = subprocess.Popen(["sleep", "600"], start_new_session=True)
        programs.add(program)
    begin = time.time()
    calls: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    prompt = [{**message, "content": message["content"] + toy.get("aside", "")} for message in task.prompt]
    text, finish = ask(config, prompt, calls, errors)
    if program is not None:
        program.kill()
        programs.discard(program)
    ok = finish is not None
    nodes: list[dict[str, Any]] = [{"message": message, "sampled": False} for message in prompt]
    if ok:
        nodes.append({"message": {"role": "assistant", "content": text}, "sampled": True})
        calls[-1]["node"] = len(prompt)
    for number in range(1, len(nodes)):
        nodes[number]["parent"] = number - 1
    score = float(f"<answer>{task.answer}</answer>" in text)
    span = {"start": begin, "end": time.time()}
    agent = {"config": {"runtime": config["env"]["agent"]["runtime"]}, "runtime": {"type": "subprocess"}}
    data = {"id": task.key, "name": task.key, "prompt": prompt[1:], "system_prompt": prompt[0]["content"]}
    trace = {
        "version": 1,
        "agent": agent,
        "nodes": nodes,
        "calls": calls,
        "rewards": {"answer_score": {"score": score, "weight": 1.0}} if ok else {},
        "metrics": {},
        "ok": ok,
        "stop_condition": "agent_completed" if ok else "error",
        "errors": errors,
        "timing": dict.fromkeys(("boot", "setup", "agent", "scoring"), span),
        "num_input_tokens": 7,
        "num_output_tokens": 3,
    }
    episode = {
        "task": {"type": "Toy", "key": task.key, "data": data},
        "ok": ok,
        "errors": [],
        "traces": [trace],
    }
    return json.dumps(episode).encode() + b"\n"


def ask(
    config: dict[str, Any],
    prompt: list[dict[str, str]],
    calls: list[dict[str, Any]],
    errors: list[dict[str, Any]],
) -> tuple[str, str | None]:
    body = json.dumps({"model": config["model"], "messages": prompt, "stream": True, **config["sampling"]})
    client = config["client"]
    call = {"model": config["model"], "sampling": config["sampling"], "endpoint": "/chat/completions"}
    request = urllib.request.Request(f"{client['base_url']}/chat/completions", body.encode())
    request.add_header("Authorization", f"Bearer {os.environ[client['api_key_var']]}")
    for _ in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                chunks = [
                    json.loads(line.removeprefix(b"data: "))
                    for line in answer.read().split(b"\n\n")
                    if line.startswith(b"data: {")
                ]
        except OSError as error:
            reason = f"{type(error).__name__}: {error}"
            continue
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        finish = next(choice["finish_reason"] for choice in choices if choice["finish_reason"])
        calls.append({**call, "finish_reason": finish, "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
        return text, finish
    calls.append({**call, "error": reason})
    errors.append({"type": "ProviderError", "message": reason})
    return "", None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

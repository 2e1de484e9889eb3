"""The mock backend's evaluator: answers nobody needs, by rule, at whatever speed is asked for.

`python -m assay.backends.mock_child JOB.json` writes `records.jsonl` into the working directory, a line for
each rollout when it has ended, and last `ended.json`, which says how it ended. With `ask`, each rollout is a
chat request to the address in the job, with the key of a variable; without, nobody is asked. What it finds
is the same every time. It needs the standard library alone, and starts in no time.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import local
from typing import Any, BinaryIO
from urllib.parse import urlsplit

RECORDS = "records.jsonl"
ENDED = "ended.json"
KEY_VARIABLE = "ASSAY_MOCK_KEY"
FLUSH_S = 0.2
STOPPED = 130
encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def prompt(item: int) -> str:
    """What is asked for an item."""
    return f"Item {item}: name a number that is larger than {item}."


def body(job: Mapping[str, Any], item: int, rollout: int) -> dict[str, Any]:
    """The request of a rollout: repeats of it differ in the seed, unless all of it is greedy."""
    generation = dict(job["generation"])
    if job["sampled"]:
        generation["seed"] = int(generation.get("seed", 0)) + rollout
    messages = [{"role": "user", "content": prompt(item)}]
    return {"model": job["model"], "messages": messages, **generation, **job["extra_body"]}


def wrong(job: Mapping[str, Any], item: int, rollout: int) -> bool:
    """Whether an answer counts as wrong: every so many are, over items and over repeats."""
    every = job["wrong_every"]
    return every is not None and (item + rollout + 1) % every == 0


def text(job: Mapping[str, Any], item: int, rollout: int) -> str:
    """The answer where nobody is asked; repeats of a sampled job answer differently."""
    return f"{item + 1 + (rollout if job['sampled'] else 0)}"


class Asker:
    """Asks at one address, over one connection a thread."""

    def __init__(self, base_url: str, key: str) -> None:
        parts = urlsplit(base_url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._path = f"{parts.path}/chat/completions"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._threads = local()

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer; OSError or ValueError when there is none."""
        connection = getattr(self._threads, "connection", None)
        if connection is None:
            # Nothing here may give up on a request: who waits how long is the lane's business.
            connection = self._threads.connection = http.client.HTTPConnection(*self._address)
        try:
            connection.request("POST", self._path, json.dumps(request).encode("utf-8"), self._headers)
            response = connection.getresponse()
            said = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._threads.connection = None
            raise OSError(f"{type(error).__name__}: {error}") from error
        if response.status != 200:
            raise OSError(f"HTTP {response.status}: {said[:200].decode('utf-8', 'replace')}")
        answer = json.loads(said)
        if not isinstance(answer, dict):
            raise ValueError("the answer is no object")
        return answer


def rollout(job: Mapping[str, Any], ask: Asker | None, item: int, number: int) -> dict[str, Any]:
    """Carry out one rollout and tell what became of it."""
    begin = time.monotonic()
    if job["sleep"]:
        time.sleep(job["sleep"])
    row: dict[str, Any] = {"item": item, "rollout": number, "right": not wrong(job, item, number)}
    if ask is None:
        row |= {"text": text(job, item, number), "finish": "stop"}
    else:
        try:
            answer = ask(body(job, item, number))
            choice = answer["choices"][0]
            used = answer.get("usage") or {}
            message = choice["message"]
            row |= {"text": message.get("content") or "", "thought": message.get("reasoning_content")}
            row |= {"finish": choice.get("finish_reason")}
            row |= {"sent": count(used.get("prompt_tokens")), "made": count(used.get("completion_tokens"))}
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            row |= {"error": f"{type(error).__name__}: {error}"}
    row["seconds"] = round(time.monotonic() - begin, 6)
    return row


def count(value: Any) -> int | None:
    """A number of tokens, if it is one."""
    return value if type(value) is int and value >= 0 else None


def rollouts(job: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """What is to be done, in order: item, number of the repeat."""
    for item in range(job["items"]):
        for number in range(job["repeats"]):
            yield item, number


class Records:
    """The file of records: whole lines, handed to the system a few times a second."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._flushed = time.monotonic()
        self.count = 0

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one."""
        # A model's text may hold half a surrogate pair, which is no UTF-8: it costs a sign and not the run.
        self._file.write(encode(row).encode("utf-8", "replace") + b"\n")
        self.count += 1
        now = time.monotonic()
        if now - self._flushed >= FLUSH_S:
            self._file.flush()
            self._flushed = now


class FailureError(Exception):
    """The job says that the evaluator fails here."""


def work(job: Mapping[str, Any], records: Records) -> None:
    """Do all of it, with so many workers, each result written when it is there."""
    ask = Asker(job["base_url"], os.environ.get(KEY_VARIABLE, "")) if job["ask"] else None
    if job["workers"] == 1 or not (job["ask"] or job["sleep"]):
        for item, number in rollouts(job):
            stand_or_fall(job, item)
            records.append(rollout(job, ask, item, number))
        return
    pool = ThreadPoolExecutor(job["workers"])
    running: set[Future[dict[str, Any]]] = set()
    try:
        for item, number in rollouts(job):
            if len(running) == job["workers"]:
                running = collect(running, records)
            stand_or_fall(job, item)
            running.add(pool.submit(rollout, job, ask, item, number))
    except FailureError:
        while running:
            running = collect(running, records)
        raise
    while running:
        running = collect(running, records)


def collect(running: set[Future[dict[str, Any]]], records: Records) -> set[Future[dict[str, Any]]]:
    """Write what has ended, once something has; what still runs is returned."""
    done, running = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        records.append(future.result())
    return running


def stand_or_fall(job: Mapping[str, Any], item: int) -> None:
    """Fail where the job says so."""
    if item == job["fail_at"]:
        raise FailureError(f"fail_at: the evaluator fails at item {item}")


def main() -> int:
    """Do the job, and say in `ended.json` how it ended; 0 when all of it was done.

    A signal ends it at once: what had ended is written, what is in flight is given up.
    """
    job = json.loads(Path(sys.argv[1]).read_bytes())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    error = None
    with Path(RECORDS).open("wb", buffering=1 << 16) as file:
        records = Records(file)
        try:
            work(job, records)
        except FailureError as failed:
            error = str(failed)
            print(error, flush=True)
        except KeyboardInterrupt:
            file.flush()
            os._exit(STOPPED)  # threads that wait for an answer would keep it
    Path(ENDED).write_text(json.dumps({"rollouts": records.count, "error": error}) + "\n", "utf-8")
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())

"""The rows behind the stand-in tasksets: made here, laid out as the hub and the bucket keep the real ones.

Every file is a function of this module alone, so `tests/pins/datasets.lock` can pin sizes and digests.
Columns and file names are the real ones, but for the ending: JSON lines where the real ones are Parquet.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CARD = "---\nconfigs:\n{configs}---\n\nRows made for tests. No benchmark.\n"
CONFIG = "- config_name: {name}\n  data_files:\n"
SPLIT = "  - split: {split}\n    path: {path}\n"
KINDS = ("boolean", "parity", "order", "drawing")
# One for each of the six files; the last three lie in the default date filter, two of them on its borders.
PROGRAM_DATES = ("2023-05-07", "2023-09-10", "2024-03-02", "2024-08-01", "2024-12-14", "2025-05-01")
PROGRAMS_A_FILE = 6
NEEDLES = 8
K = 1024
RANGES = {"32k-64k": (32 * K, 64 * K), "128k-256k": (128 * K, 256 * K)}


@dataclass(frozen=True)
class Repository:
    """A data repository of the hub at one revision.

    Attributes:
        name: In the lock.
        repo: `organisation/name` at the hub.
        files: Bytes by path.
    """

    name: str
    repo: str
    files: Mapping[str, bytes]

    def large(self, path: str) -> bool:
        """Whether the hub keeps the file as a large one, named by SHA-256; as with the real repository."""
        return self.name != "aime25" and path != "README.md"

    @property
    def revision(self) -> str:
        """Forty hexadecimal digits that change with any byte of it."""
        seen = hashlib.sha1(self.repo.encode())
        for path, data in sorted(self.files.items()):
            seen.update(f"\n{path} {hashlib.sha256(data).hexdigest()}".encode())
        return seen.hexdigest()


@dataclass(frozen=True)
class BucketObject:
    """An object of a bucket at one generation.

    Attributes:
        name: Of the data set in the lock.
        part: Of the object in the data set.
        bucket: The bucket's name.
        object: The object's name, unquoted.
        data: Its bytes.
    """

    name: str
    part: str
    bucket: str
    object: str
    data: bytes

    @property
    def generation(self) -> str:
        """Decimal digits that change with any byte of it."""
        return str(10**15 + int(hashlib.sha256(self.data).hexdigest()[:12], 16))


def repositories() -> list[Repository]:
    """All data repositories, in the lock's order."""
    return [
        Repository("aime24", "HuggingFaceH4/aime_2024", _aime24()),
        Repository("aime25", "opencompass/AIME2025", _aime25()),
        Repository("aime26", "MathArena/aime_2026", _aime26()),
        Repository("i3-logic", "PrimeIntellect/INTELLECT-3-RL", _i3_logic()),
        Repository("livecodebench", "livecodebench/code_generation_lite", _livecodebench()),
        Repository("mmlu-pro", "TIGER-Lab/MMLU-Pro", _mmlu_pro()),
        Repository("graphwalks", "openai/graphwalks", _graphwalks()),
    ]


def objects() -> list[BucketObject]:
    """All objects of the bucket."""
    return [_mrcr(part, low, high) for part, (low, high) in RANGES.items()]


def _aime24() -> dict[str, bytes]:
    rows = [
        {
            "id": index,
            "problem": text,
            "solution": f"{text} {answer}",
            "answer": answer,
            "url": "",
            "year": "2024",
        }
        for index, (text, answer) in enumerate(_sums(24, 30))
    ]
    return _table("data/train-00000-of-00001.jsonl", rows, ("default", [("train", "data/train-*")]))


def _aime25() -> dict[str, bytes]:
    sums = list(_sums(25, 30))
    contests = {
        "AIME2025-I": ("aime2025-I.jsonl", sums[:15]),
        "AIME2025-II": ("aime2025-II.jsonl", sums[15:]),
    }
    card = _card(*((name, [("test", path)]) for name, (path, _) in contests.items()))
    tables = {
        path: _lines({"question": text, "answer": answer} for text, answer in part)
        for path, part in contests.values()
    }
    return {"README.md": card, **tables}


def _aime26() -> dict[str, bytes]:
    rows = [
        {"problem_idx": index, "problem": text, "answer": int(answer)}
        for index, (text, answer) in enumerate(_sums(26, 30), 1)
    ]
    return _table("data/train-00000-of-00001.jsonl", rows, ("default", [("train", "data/train-*")]))


def _i3_logic() -> dict[str, bytes]:
    rows = []
    for index in range(40):
        kind = KINDS[index % len(KINDS)]
        question, answer = _puzzle(kind, random.Random(f"logic {index}"))
        info = json.dumps({"task_name": kind, "answer": answer})
        rows.append({"question": question, "info": info})
    return _table("logic/train-00000-of-00001.jsonl", rows, ("logic", [("train", "logic/train-*")]))


def _livecodebench() -> dict[str, bytes]:
    files = {}
    for number, date in enumerate(PROGRAM_DATES, 1):
        rows = []
        for index in range(PROGRAMS_A_FILE):
            factor = 1 + index + PROGRAMS_A_FILE * number
            cases = [{"input": f"{value}\n", "output": f"{factor * value}\n"} for value in (0, 7, -12, 1000)]
            rows.append(
                {
                    "question_title": f"Times {factor}",
                    "question_content": f"One line holds a whole number. Print {factor} times that number.",
                    "question_id": f"times_{factor}",
                    "contest_date": f"{date}T00:00:00",
                    "difficulty": "easy",
                    "starter_code": "",
                    "public_test_cases": json.dumps(cases[:1]),
                    "private_test_cases": json.dumps(cases),
                }
            )
        files["test.jsonl" if number == 1 else f"test{number}.jsonl"] = _lines(rows)
    return files


def _mmlu_pro() -> dict[str, bytes]:
    splits = {"test": 20, "validation": 4}
    card = _card(("default", [(split, f"data/{split}-*") for split in splits]))
    tables = {}
    for split, size in splits.items():
        rows = []
        for index in range(size):
            draw = random.Random(f"choice {split} {index}")
            left, right = draw.randint(2, 40), draw.randint(2, 40)
            options = [str(left + right + offset) for offset in range(10)]
            draw.shuffle(options)
            place = options.index(str(left + right))
            letter = "ABCDEFGHIJ"[place]
            rows.append(
                {
                    "question_id": index + (1000 if split == "validation" else 0),
                    "question": f"Which number is {left} + {right}?",
                    "options": options,
                    "answer": letter,
                    "answer_index": place,
                    "cot_content": f"{left} + {right} = {left + right}.\nAnswer: {letter}",
                    "category": ("math", "physics")[index % 2],
                    "src": "made",
                }
            )
        tables[f"data/{split}-00000-of-00001.jsonl"] = _lines(rows)
    return {"README.md": card, **tables}


def _graphwalks() -> dict[str, bytes]:
    names = ("graphwalks_128k_and_shorter.jsonl", "graphwalks_256k_to_1mil.jsonl")
    rows = [_walk(index) for index in range(24)]
    card = _card(("default", [("train", "graphwalks_*.jsonl")]))
    return {"README.md": card, names[0]: _lines(rows[:16]), names[1]: _lines(rows[16:])}


def _walk(index: int) -> dict[str, Any]:
    draw = random.Random(f"walk {index}")
    nodes = [f"{draw.getrandbits(40):010x}" for _ in range(8 + index)]
    edges = sorted({(left, draw.choice(nodes)) for left in nodes for _ in range(2)})
    start = draw.choice(nodes)
    if index % 2:
        kind, asked = "parents", f"Find the parents of node {start}."
        gold = sorted({left for left, right in edges if right == start})
    else:
        kind, asked = "bfs", f"Perform a BFS from node {start} with depth 1."
        gold = sorted({right for left, right in edges if left == start})
    prompt = (
        "You will be given a graph as a list of directed edges.\n\n"
        "Here is the graph to operate on:\n"
        + "\n".join(f"{left} -> {right}" for left, right in edges)
        + f"\n\nOperation:\n{asked}\n"
        "End with one line: Final Answer: [node1, node2, ...], with empty brackets where there is none.\n"
    )
    return {"prompt": prompt, "answer_nodes": gold, "prompt_chars": len(prompt), "problem_type": kind}


def _mrcr(part: str, low: int, high: int) -> BucketObject:
    out = io.StringIO(newline="")
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["queries", "answer", "context_len"])
    for index in range(12):
        draw = random.Random(f"needles {part} {index}")
        told = [_tale(draw) for _ in range(NEEDLES)]
        turns = []
        for tale in told:
            turns.append(f"User: Tell a tale about a {draw.choice(('lamp', 'boat', 'well'))}.")
            turns.append(f"Assistant: {_tale(draw)}")
            turns.append(f"User: Tell a tale about a gate.\nAssistant: {tale}")
        wanted = draw.randrange(NEEDLES)
        prefix = "".join(draw.choice("abcdefghijkmnpqrstuvwxyz") for _ in range(12))
        turns.append(f"User: Write {prefix} and then, word for word, tale number {wanted + 1} about a gate.")
        queries = "\n".join(turns)
        table.writerow([queries, prefix + told[wanted], len(queries)])
    name = f"mrcr_v2p1_{NEEDLES}needle_in_({low},{high})_dynamic_fewshot_text_style_fast.csv"
    return BucketObject("mrcr-v2", part, "mrcr_v2", name, out.getvalue().encode())


def _tale(draw: random.Random) -> str:
    who, did, where = (
        draw.choice(words)
        for words in (
            ("A miller", "The old pilot", "Two sisters", "A clerk"),
            ("waited for rain", "counted the stones", "sang until dusk", "lost a key"),
            ("by the river", "under the bridge", "behind the market", "on the hill"),
        )
    )
    return f"{who} {did} {where}, on day {draw.randint(1, 365)}."


def _sums(year: int, size: int) -> Iterable[tuple[str, str]]:
    for index in range(size):
        draw = random.Random(f"sum {year} {index}")
        left, right = draw.randint(1, 400), draw.randint(1, 400)
        yield f"What is {left} + {right}?", str(left + right)


def _puzzle(kind: str, draw: random.Random) -> tuple[str, str]:
    if kind == "boolean":
        left, right = draw.sample("abcpqr", 2)
        return f"Write ~({left} | {right}) without brackets, with & and ~.", f"~{left} & ~{right}"
    if kind == "parity":
        number = draw.randint(10, 99)
        return f"Is {number} even or odd?", ("even", "odd")[number % 2]
    names = draw.sample(["Ann", "Bob", "Cid", "Dee"], 3)
    question = (
        f"{names[0]} is taller than {names[1]}, and {names[1]} is taller than {names[2]}. Who is shortest?"
    )
    return (question, names[2]) if kind == "order" else (f"Draw {names[0]}.", "")


def _table(
    path: str, rows: Iterable[Mapping[str, Any]], config: tuple[str, list[tuple[str, str]]]
) -> dict[str, bytes]:
    return {"README.md": _card(config), path: _lines(rows)}


def _card(*configs: tuple[str, list[tuple[str, str]]]) -> bytes:
    parts = [
        CONFIG.format(name=name) + "".join(SPLIT.format(split=split, path=path) for split, path in splits)
        for name, splits in configs
    ]
    return CARD.format(configs="".join(parts)).encode()


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write(folder: Path) -> None:
    """Everything below a folder: `hub/ORGANISATION/NAME/…` and `bucket/NAME/OBJECT`."""
    for repository in repositories():
        for path, data in repository.files.items():
            _write(folder / "hub" / repository.repo / path, data)
    for found in objects():
        _write(folder / "bucket" / found.bucket / found.object, found.data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    write(Path(sys.argv[1]))

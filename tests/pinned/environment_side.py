"""Run by the direct evaluator's own Python: load environments as upstream does and print what is there.

The argument is a JSON list of `[id, arguments]`. Each gives its number of rows and the first one, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import verifiers as vf


def found(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    rows = vf.load_environment(name, **arguments).get_eval_dataset()
    return {"rows": len(rows), "first": {key: rows[0][key] for key in ("prompt", "answer")}}


if __name__ == "__main__":
    json.dump([found(*request) for request in json.loads(sys.argv[1])], sys.stdout)

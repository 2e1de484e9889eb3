"""`python -m assay.signing.schema`: the predicate's JSON Schema, as docs/schemas/eval-run.v1.json has it."""

from __future__ import annotations

import sys
from typing import Any

from assay.files import json_text
from assay.signing.predicate import PREDICATE_TYPE, EvalRun

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema as JSON values, made from the model that statements are read and written with."""
    return {"$schema": DIALECT, "$id": PREDICATE_TYPE, **EvalRun.model_json_schema(mode="validation")}


if __name__ == "__main__":
    sys.stdout.write(json_text(schema()))
